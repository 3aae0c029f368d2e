"""Each rule keeps values, dtypes and shapes: random programs, and of each class a term by chance.

The cheapest term is one of many. Here every term has a price by chance, so that what a rule says is taken
as often as what was there, whatever it costs.
"""

import random
from collections import Counter

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax.ir import check, evaluate
from loopax.lowering.notes import collected
from tests.extensions.egraph.prices import by_chance
from tests.random_programs import in_ir
from tests.support.kept import assert_kept

pytest.importorskip("egglog", reason="the extra egraph")

from loopax.extensions.egraph.optimize import egraph, take_cheapest

UNARY = {
    "real": [pt.neg, pt.sqr, pt.abs, pt.sigmoid, pt.tanh, pt.log1pexp],
    "positive": [pt.log, pt.sqrt, pt.log1p, pt.reciprocal],
    "small": [pt.exp, pt.expm1],
}
ROWS = 12
INDICES = [np.array([3, 1]), np.arange(30) % ROWS, np.array([0, 5, 5, 11])]


class Written:
    """A program of a few statements, of arrays with one entry and with `ROWS`, from a seed."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.dtype = self.chance.choice(["float64", "float64", "float64", "float32"])
        rng = np.random.default_rng(seed)
        shapes = [(ROWS,), (ROWS,), (1,), ()]
        self.inputs = [pt.tensor(f"v{k}", shape=s, dtype=self.dtype) for k, s in enumerate(shapes)]
        self.values = [rng.uniform(-1.5, 1.5, s).astype(self.dtype) for s in shapes]
        a, b, c, d = self.inputs
        self.arrays = [a, b]
        self.ones = [c, d.dimshuffle("x")]
        for _ in range(self.chance.randint(4, 9)):
            self.arrays.append(self.statement())
        last = self.arrays[-3:]
        self.outputs = [*last, *(v.sum() for v in last), last[-1][INDICES[seed % 3]]]
        if seed % 2:
            self.outputs.append(pt.exp(self.function(last[0])[INDICES[seed % 3]]))
        if seed % 3 == 0:  # with derivatives
            value = sum(v.sum() for v in last)
            self.outputs += pytensor.grad(value, self.inputs, disconnected_inputs="ignore")

    def operand(self):
        one = self.chance.random()
        if one < 0.2:
            return np.full(1, self.chance.choice([1.0, -1.0, 2.0, 0.5, 0.0]), self.dtype)
        return self.chance.choice(self.ones if one < 0.4 else self.arrays)

    def function(self, v):
        kind = self.chance.choice(list(UNARY))
        if kind == "positive":
            v = 0.1 + pt.abs(v) if self.chance.random() < 0.5 else pt.exp(-pt.abs(v))
        if kind == "small":
            v = -pt.abs(v)
        return self.chance.choice(UNARY[kind])(v).astype(self.dtype)

    def statement(self):
        x, y = self.chance.choice(self.arrays), self.operand()
        kind = self.chance.randrange(8)
        if kind == 0:
            mask = np.arange(ROWS) % self.chance.choice([2, 3]) == 0
            return pt.switch(mask, self.function(x), self.function(x) if kind % 2 else y)
        if kind == 1:
            # Two forms of one number differ by a rounding: what is compared is not equal by algebra.
            above = y + np.full(1, 0.0173, self.dtype)
            return pt.switch(
                x > above, self.function(x), self.function(self.chance.choice(self.arrays))
            )
        if kind == 2:
            return (
                x + self.operand() * y if self.chance.random() < 0.5 else x * y + x * self.operand()
            )
        if kind == 3:
            return x / (1 + pt.sqr(y)) if self.chance.random() < 0.5 else x - y
        if kind == 4:
            one = np.ones(1, self.dtype)
            small = -0.1 - pt.abs(x)
            return self.chance.choice(
                [
                    pt.log(one - pt.exp(small)),
                    pt.log1p(-pt.sigmoid(x)),
                    one - pt.sigmoid(x),
                    pt.log(one + pt.exp(x)),
                    pt.log(pt.sigmoid(x)),
                    pt.exp(small) * pt.exp(small * y * 0),
                ]
            ).astype(self.dtype)
        if kind == 5:
            index = np.array([2, 7])
            return pt.set_subtensor(x[index], self.chance.choice([x[index] * 2, x[:2]]))
        if kind == 6:
            return self.function(x[np.arange(ROWS)[::-1].copy()])
        return self.function(x)


def assert_same(actual, wanted, dtype):
    tolerance = 1e-9 if dtype == "float64" else 2e-3
    for a, b in zip(actual, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        scale = 1 + np.max(np.abs(b), initial=0.0)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 20))
def test_a_term_by_chance_has_the_value_of_its_class(first):
    used = Counter()
    for seed in range(first, first + 20):
        program = Written(seed)
        graph = FunctionGraph(program.inputs, program.outputs, clone=True)
        with np.errstate(all="ignore"):  # a derivative may be infinite
            wanted = evaluate(graph, *program.values)
        if not all(np.all(np.isfinite(v)) for v in wanted):
            continue
        with collected() as notes:
            take_cheapest(graph, by_chance(seed), enough=np.inf)
        check(graph)
        used.update(line.split(" (")[0] for line in notes[1:])
        try:
            assert_same(evaluate(graph, *program.values), wanted, program.dtype)
        except AssertionError as error:
            raise AssertionError(f"Written({seed}), by {notes}: {error}") from error
    assert len(used) > 25, used


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 30, 10))
def test_programs_of_all_kinds(first):
    """Loops, conditionals, lists, generators, and ops that raise."""

    def chosen(graph):
        take_cheapest(graph, by_chance(first), enough=np.inf)

    for seed in range(first, first + 10):
        assert_kept(in_ir.program(7000 + seed), [chosen, egraph])
