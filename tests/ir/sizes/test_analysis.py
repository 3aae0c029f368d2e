"""Dims: what is claimed of lengths and numbers of steps holds in every run."""

import random
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from loopax import scan
from loopax.ir import evaluate
from loopax.ir.ops.rows import FitRows, KeepRows
from loopax.ir.sizes import DimExpr, Dims, Window, loop_facts, window_of
from tests.support.random_loops import RANDOM

x, y = pt.dvector("x"), pt.dmatrix("y")
n, m = pt.lscalar("n"), pt.lscalar("m")
small, wide = pt.scalar("small", dtype="int8"), pt.scalar("wide", dtype="int64")
natural, other = pt.scalar("natural", dtype="uint32"), pt.scalar("other", dtype="uint32")


def test_affine():
    dims = Dims()
    rows = dims.length(x)
    assert dims.value(x.shape[0] + 2 - n) == rows + 2 - dims.value(n)
    assert dims.value(2 * n + n - 3 * n).constant == 0
    assert dims.value(n) != dims.value(m)
    assert dims.length(pt.concatenate([x, x, [1.0]])) == rows * 2 + 1
    assert dims.length(pt.alloc(0.0, n + 1, 3)) == dims.value(n) + 1
    assert dims.length((x + 1)[::-1]) == rows
    assert dims.length(y.T.sum(axis=0)) == dims.length(y)
    assert dims.length(pt.set_subtensor(x[:2], 0.0)) == rows
    assert dims.length(pt.split(x, pt.stack([n, m]), n_splits=2, axis=0)[1]) == dims.value(m)
    assert dims.length(pt.arange(x.shape[0])) == rows
    assert DimExpr(offset=3).constant == 3 and dims.value(7).constant == 7
    assert rows.constant is None and (rows * 0).constant == 0


def test_the_two_halves_of_an_array_have_its_length():
    dims = Dims()
    rows = dims.length(x)
    assert dims.length(pt.concatenate([x[n:], x[:n]])) == rows
    assert dims.length(pt.concatenate([x[: n - 1], [1.0], x[n - 1 :]])) == rows + 1
    assert dims.length(pt.roll(x, n)) == rows
    assert dims.length(pt.roll(y, n, axis=1), 1) == dims.length(y, 1)
    front, back = x[:n], x[n:]
    assert dims.length(pt.concatenate([back, front, front])) == rows + dims.length(front)
    assert dims.length(pt.concatenate([back, back, front, front])) == rows * 2
    assert dims.length(pt.concatenate([back, back])) == dims.length(back) * 2
    for different in (x[:m], x[: n + 1], (2 * x)[:n], x[:n:2], y[:n, 0]):
        length = dims.length(pt.concatenate([back, different]))
        assert length == dims.length(back) + dims.length(different)


def test_lengths_are_not_negative_and_variables_may_be():
    dims = Dims()
    assert dims.at_least(dims.length(x)) and not dims.at_least(dims.length(x), 1)
    assert not dims.at_least(dims.value(n)) and not dims.at_least(-dims.length(x))
    assert dims.at_least(dims.value(natural)) and not dims.at_least(-dims.value(natural))


def test_loops_that_are_there_say_that_they_take_no_negative_number_of_steps():
    final, ys = scan(lambda c, _: (c * 2, c), pt.constant(1.0), length=n)
    shorter, _ = scan(lambda c, _: (c * 2, c), pt.constant(1.0), length=x.shape[0] - 1)
    graph = FunctionGraph([n, x], [final, ys, shorter], clone=False)
    dims = Dims(loop_facts(graph, Dims()))
    assert dims.at_least(dims.value(n)) and not dims.at_least(dims.value(n), 1)
    assert dims.at_least(dims.length(x), 1) and dims.length(ys) == dims.value(n)
    plain = Dims()
    assert plain.length(ys) == plain.value(n) and not plain.at_least(plain.value(n))
    assert not plain.at_least(plain.length(x), 1)


@pytest.mark.parametrize(
    "rows", [slice(n), slice(1, None), slice(-2, None), slice(None, None, 2), slice(2, n, -1)]
)
def test_windows_that_nobody_knows(rows):
    """A negative bound counts from the end, one behind the end is clipped."""
    assert window_of(Dims(), x, rows) is None


def test_windows_of_what_is_long_enough():
    dims = Dims()
    z = pt.concatenate([x, [1.0, 2.0]])
    rows = dims.length(x)
    assert window_of(dims, z, slice(1, None)) == Window(z, DimExpr(offset=1), rows + 1)
    assert window_of(dims, z, slice(-2, None, -1)) == Window(z, rows, rows + 1, -1)
    assert window_of(dims, z, slice(2, 1)).count.constant == 0
    assert dims.length(y[0, 1:]) != dims.length(y, 1) - 1
    assert dims.length(pt.concatenate([y, y], axis=0)[:, None, 0]).constant is None


@pytest.mark.parametrize(
    ("v", "value"),
    [
        (pt.constant(100, dtype="int8") + pt.constant(100, dtype="int8"), -56),
        ((small + 100).astype("int64"), -56),
        (small.astype("uint8").astype("int64"), 100),
        (natural - other, 2**32 - 1),
        (-natural, 2**32 - 2),
        (n // 2, 1),
    ],
)
def test_what_wraps_around_is_not_followed(v, value):
    """The last one is here to see that the values are right."""
    at = {small: 100, n: 3, natural: 2, other: 3}
    graph = FunctionGraph([*at], [v], clone=True)
    assert evaluate(graph, *map(np.asarray, at.values()))[0] == value
    dims = Dims()
    actual = dims.value(v)
    assert actual.constant in (None, value)
    for base in (small, n, natural, other):
        assert all(atom is not base for atom, _ in actual.terms) or v.owner is None


def test_sizes_as_variables():
    """Of short integers too: what they are in int64."""
    dims = Dims()
    unsigned = pt.scalar("unsigned", dtype="uint8")
    for size, value in (
        (dims.value(small) + 100, 220),
        (dims.value(unsigned) * 2, 400),
        (-dims.value(unsigned) + 1, -199),
        (dims.length(x) * 3 - 4, 5),
        (dims.value(pt.maximum(n, x.shape[0])), 3),
        (DimExpr(offset=-2), -2),
    ):
        v = dims.variable(size)
        assert v.type.dtype == "int64"
        at = {small: 120, unsigned: 200, x: np.ones(3), n: 1}
        graph = FunctionGraph([*at], [v], clone=True)
        given = [np.asarray(value, dtype=k.type.dtype) for k, value in at.items()]
        assert evaluate(graph, *given)[0] == value


def test_floats_are_no_sizes():
    f = pt.dscalar("f")
    dims = Dims()
    assert dims.length(pt.arange(0.0, f, 1.0)) != dims.value(f)
    assert dims.value(pt.constant(2.5)).constant is None


def test_rows_that_are_kept():
    dims = Dims()
    assert dims.length(FitRows()(x, n)) != dims.value(n)  # which may be negative
    assert dims.length(KeepRows()(x, n, x.shape[0])) == dims.length(x)


@pytest.mark.slow
def test_a_long_chain():
    v, z = n, x
    for _ in range(2000):
        v = v + 1
        z = pt.concatenate([z, [1.0]])
    dims = Dims()
    assert dims.value(v) == dims.value(n) + 2000 and dims.length(z) == dims.length(x) + 2000


# -- random expressions ------------------------------------------------------------------------------


class _Expressions:
    """Random integers and vectors over `n`, `m` and vectors of other lengths."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.integers: list[Any] = [n, m, small, natural, pt.constant(1), pt.constant(-1)]
        self.vectors: list[Any] = [x, pt.concatenate([x, [0.0, 0.0]])]
        for _ in range(6):
            self.integers.append(self.integer())
            self.vectors.append(self.vector())

    def integer(self) -> Any:
        rng = self.rng
        p, q = rng.choice(self.integers), rng.choice(self.integers)
        k = rng.randint(-2, 3)
        return rng.choice(
            [
                lambda: rng.choice(self.vectors).shape[0],
                lambda: rng.choice(self.vectors).shape[0] + k,
                lambda: p + k,
                lambda: p - q,
                lambda: -p,
                lambda: p * k,
                lambda: pt.maximum(p, q),
                lambda: pt.minimum(p, q),
                lambda: pt.switch(pt.lt(p, q), p, q),
                lambda: pt.switch(pt.ge(p, k), p, k),
                lambda: p.astype("int64"),
                lambda: pt.alloc(p, 4)[k],
                lambda: pt.alloc(p[None], 2)[0],
            ]
        )()

    def bound(self) -> Any:
        return self.rng.choice([None, self.rng.randint(-3, 3), self.rng.choice(self.integers)])

    def vector(self) -> Any:
        rng, v = self.rng, self.rng.choice(self.vectors)
        return rng.choice(
            [
                lambda: v[self.bound() : self.bound() : rng.choice([None, 1, -1, 2])],
                lambda: v[self.bound() : self.bound() : rng.choice([None, -1])],
                lambda: pt.concatenate([v, rng.choice(self.vectors)]),
                lambda: v * 2,
                # Not more: an unsigned integer that wraps around is four thousand million.
                lambda: pt.zeros(pt.minimum(pt.maximum(rng.choice(self.integers), 0), 50)),
            ]
        )()


@pytest.mark.slow
@seed(1)
@RANDOM
@given(st.integers(0, 10**9))
def test_claims_hold(number):
    rng = random.Random(number)
    made = _Expressions(rng)
    dims = Dims()
    windows = []
    for v in made.vectors:
        rows = slice(made.bound(), made.bound(), rng.choice([None, 1, -1]))
        if (actual := window_of(dims, v, rows)) is not None:
            windows.append((v, rows, actual))
    asked = [*map(dims.value, made.integers), *map(dims.length, made.vectors)]
    truth = [*made.integers, *(v.shape[0] for v in made.vectors)]
    written = [dims.variable(a) for a in asked]
    around = [
        (pt.arange(v.shape[0])[rows], dims.variable(window.start), dims.variable(window.count))
        for v, rows, window in windows
    ]
    outputs = [v.astype("int64") for v in truth] + written + [z for t in around for z in t]
    graph = FunctionGraph([n, m, small, natural, x], outputs, clone=True)
    for _ in range(6):
        at = [rng.randint(-4, 4), rng.randint(-4, 4), rng.randint(-4, 4), rng.randint(0, 3)]
        given_values = [
            np.asarray(v, dtype=k.type.dtype) for v, k in zip(at, graph.inputs, strict=False)
        ]
        values = evaluate(graph, *given_values, np.ones(rng.randint(0, 4)))
        known = [int(v) for v in values[: len(truth)]]
        assert known == [int(v) for v in values[len(truth) : 2 * len(truth)]]
        for one, k in zip(asked, known, strict=True):
            for least in range(-3, 4):
                assert not dims.at_least(one, least) or k >= least
            for two, j in zip(asked, known, strict=True):
                assert one != two or k == j
                assert not dims.at_least(one - two) or k >= j
        rest = iter(values[2 * len(truth) :])
        for (_, _, window), rows, start, count in zip(windows, rest, rest, rest, strict=True):
            assert len(rows) == count
            np.testing.assert_array_equal(rows, start + window.step * np.arange(count))
