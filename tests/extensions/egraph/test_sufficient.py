"""Sums over many rows of constants become sums over few: where, and with which digits."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify
from loopax.ir import check, evaluate
from loopax.lowering.redundancy.fold_constants import fold_constants

pytest.importorskip("egglog", reason="the extra egraph")

from loopax.extensions.egraph.optimize import egraph, take_cheapest
from tests.extensions.egraph.prices import by_chance

N = 400
RNG = np.random.default_rng(0)
Y, X = RNG.normal(size=N), RNG.normal(size=(N, 5))
GROUP = np.arange(N) % 10
b, a, s = pt.tensor("b", shape=(5,)), pt.tensor("a", shape=(10,)), pt.tensor("s", shape=(1,))
AT = {b: RNG.normal(size=5), a: RNG.normal(size=10), s: np.array([1.3])}

RESIDUALS = {
    "a number": (Y - s, [s]),
    "columns": (Y - pt.dot(X, b), [b]),
    "constants times numbers": (Y - b[1:2] * X[:, 1] - s * X[:, 2] / b[:1], [b, s]),
    "groups": (Y - a[GROUP], [a]),
    "groups with slopes": (Y - a[GROUP] - pt.exp(a)[GROUP[::-1].copy()] * s * X[:, 0], [a, s]),
    "groups and columns": (Y - a[GROUP] * X[:, 3] - pt.dot(X[:, :2], b[:2]), [a, b]),
}
SUMS = {
    "squares": lambda r: pt.sqr(r / s).sum(),
    "density": lambda r: (-0.5 * np.ones(1) * pt.sqr(r / s) - pt.log(s) - np.ones(1)).sum(),
    "itself": lambda r: (r * s).sum(),
    "times a constant": lambda r: (r * X[:, 4] / s).sum(),
    "in groups": lambda r: pt.inc_subtensor(a[GROUP], r * X[:, 0] / s),
    "products": lambda r: pt.dot(X.T.copy(), r / s),
}


def longest(graph):
    """The most rows of anything that is computed."""
    fold_constants(graph)
    computed = [v for n in graph.toposort() for v in (*n.inputs, *n.outputs)]
    shapes = [v.type.shape for v in computed if not isinstance(v, Constant)]
    return max(max(shape, default=1) for shape in shapes)


def both(outputs, inputs):
    """A graph before and after, and the values of its inputs."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    before, after = (FunctionGraph(inputs, outputs, clone=True) for _ in range(2))
    egraph(after)
    check(after)
    return before, after, [AT[v] for v in inputs]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("of", SUMS)
@pytest.mark.parametrize("residual", RESIDUALS)
def test_no_sum_is_over_all_rows(residual, of):
    r, inputs = RESIDUALS[residual]
    inputs = list(dict.fromkeys([*inputs, s, *([a] if of == "in groups" else [])]))
    before, after, at = both(SUMS[of](r), inputs)
    [wanted], [actual] = evaluate(before, *at), evaluate(after, *at)
    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(actual, wanted, rtol=1e-11, atol=1e-11)
    if (residual, of) != ("groups and columns", "in groups"):
        assert longest(before) == N > longest(after)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_regression_with_its_gradient(backend):
    point = pt.tensor("point", shape=(16,))
    beta, levels, log_sigma = point[:5], point[5:15], point[15:]
    r = (Y - pt.dot(X, beta) - levels[GROUP]) / pt.exp(log_sigma)
    logp = (-0.5 * np.ones(1) * pt.sqr(r) - log_sigma).sum()
    at, outputs = RNG.normal(size=16) / 3, [logp, pytensor.grad(logp, point)]
    plain, few = (
        jaxify([point], outputs, backend=backend, optimize=how)(at) for how in ("none", "egraph")
    )
    for actual, wanted in zip(few, plain, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-10)


KEPT = {
    "no square": (pt.log1p(pt.sqr(Y - s)).sum(), [s]),
    "a variance for each row": (pt.sqr((Y - s) / pt.exp(s * X[:, 0])).sum(), [s]),
    "a cube": ((pt.sqr(Y - s) * (Y - s)).sum(), [s]),
    "a product of two groups' constants with an infinity": (
        pt.sqr(np.where(GROUP == 3, np.inf, Y) - s).sum(),
        [s],
    ),
    "few rows": (pt.sqr(Y[:20] - s).sum(), [s]),
    "a group for each row": (pt.sqr(Y - pt.tile(a, 40)[np.arange(N)[::-1].copy()]).sum(), [a]),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_no_such_sum_stays(case):
    before, after, at = both(*KEPT[case])
    np.testing.assert_allclose(evaluate(after, *at), evaluate(before, *at), rtol=1e-12)
    assert longest(after) == longest(before)


@pytest.mark.parametrize("mean", [0.0, 30.0, 1e3])
def test_digits_of_data_far_from_zero(mean):
    """What is lost is what a rounding of the data loses."""
    y = mean + Y
    before, after, _ = both(pt.sqr(y - s).sum(), [s])
    at, eps = np.longdouble(mean + 0.1), np.finfo(float).eps
    exact, moved = (float(np.sum((y.astype(np.longdouble) - at * k) ** 2)) for k in (1, 1 + eps))
    assert longest(after) < N
    [actual] = evaluate(after, np.array([float(at)]))
    np.testing.assert_allclose(actual, exact, rtol=1e-14, atol=64 * abs(moved - exact))


def test_data_whose_differences_would_lose_digits_stay():
    """``y - s`` is exact in each row where the two are close to each other."""
    _, after, _ = both(pt.sqr(1e8 + Y - s).sum(), [s])
    assert longest(after) == N


def test_columns_that_follow_from_others_take_no_rows():
    x = np.column_stack([X[:, 0], 2 * X[:, 0] - 1, X[:, 1], np.ones(N)])
    beta = pt.tensor("beta", shape=(4,))
    AT[beta] = RNG.normal(size=4)
    before, after, at = both(pt.sqr(Y - pt.dot(x, beta)).sum(), [beta])
    np.testing.assert_allclose(evaluate(after, *at), evaluate(before, *at), rtol=1e-12)
    assert longest(after) == 4  # ones, two columns, y


class Written:
    """Sums of polynomials of degree 2, of numbers and of groups, from a seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        n = int(self.rng.integers(33, 60))
        self.n_groups = int(self.rng.integers(1, 9))
        self.group = self.rng.integers(0, self.n_groups, n)
        self.data = [self.rng.normal(size=n) for _ in range(3)]
        self.few = pt.tensor("few", shape=(self.n_groups,))
        self.numbers = [pt.tensor(name, shape=(1,)) for name in "pq"]
        self.inputs = [self.few, *self.numbers]
        self.values = [self.rng.normal(size=v.type.shape) for v in self.inputs]
        of = [pt.as_tensor(self.form(2)) for _ in range(2)]  # some have no variable in them
        base = pt.zeros((self.n_groups,))
        self.outputs = [
            *(v.sum() for v in of),
            pt.inc_subtensor(base[self.group], self.form(2)),
            pt.dot(np.stack(self.data), self.form(1)[:, None]),
        ]
        value = sum(v.sum() for v in self.outputs)
        self.outputs += pytensor.grad(value, self.inputs, disconnected_inputs="ignore")

    def chance(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def coefficient(self):
        one = self.chance(*self.numbers, self.few[self.group], pt.exp(self.few)[self.group])
        return self.chance(one, -one, pt.tanh(one), one * self.chance(*self.numbers))

    def form(self, degree, depth=3):
        if degree == 0 or depth == 0:
            constant = self.chance(*self.data)
            return self.chance(
                constant, constant * self.coefficient(), constant - self.coefficient()
            )
        x = self.form(degree, depth - 1)
        if degree == 2 and self.rng.random() < 0.4:
            x, y = self.form(1, depth - 1), self.form(1, depth - 1)
            return self.chance(pt.sqr(x), x * y)
        y = self.form(degree, depth - 1)
        return self.chance(
            x + y, x - y, -x, x * self.coefficient(), x / (1 + pt.exp(self.numbers[0]))
        )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 3))
def test_polynomials_by_chance(first):
    for seed in range(first, first + 3):
        program = Written(seed)
        graph = FunctionGraph(program.inputs, program.outputs, clone=True)
        wanted = evaluate(graph, *program.values)
        take_cheapest(graph, by_chance(seed), enough=np.inf)
        check(graph)
        for k, (x, y) in enumerate(zip(evaluate(graph, *program.values), wanted, strict=True)):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            scale = 1 + np.max(np.abs(y), initial=0.0)
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * scale, err_msg=f"{seed}, {k}")
