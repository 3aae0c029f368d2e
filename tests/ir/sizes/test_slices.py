"""Slices as positions, and back: what NumPy takes, for every length that an array may have."""

from itertools import product
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from loopax.ir import evaluate
from loopax.ir.sizes import (
    Clipped,
    DimExpr,
    Dims,
    Length,
    access_of,
    mirrored_row,
    position,
    read_of,
    slice_of,
    window_of,
)
from loopax.ir.sizes.dim_expr import Bound

x = pt.dvector("x")
anything, natural = pt.lscalar("anything"), pt.scalar("natural", dtype="uint32")
ROWS = x.shape[0]
LENGTH = DimExpr.variable(Length(x, 0))
LENGTHS = range(6)
DIMS = Dims()
INPUTS = (anything, natural.astype("int64"), -natural.astype("int64") - 1)

BOUNDS = st.one_of(
    st.none(),
    st.integers(-7, 7),
    st.integers(-2, 7).map(lambda k: ROWS - k),
    st.sampled_from(INPUTS),
)
SLICES = st.builds(slice, BOUNDS, BOUNDS, st.sampled_from([None, 1, -1, 2, -3]))
NUMBERS = st.tuples(st.integers(-7, 7), st.integers(0, 7))
EVERY = settings(max_examples=300)


class At:
    """One run: ``x`` has ``n`` rows."""

    def __init__(self, n: int, numbers: tuple[int, int]) -> None:
        self.n, self.rows = n, np.arange(n)
        self.values = {anything: numbers[0], natural: numbers[1], Length(x, 0): n}

    def number(self, expr: DimExpr) -> int:
        return expr.offset + sum(k * self._variable(v) for v, k in expr.terms)

    def _variable(self, v: Any) -> int:
        if isinstance(v, Clipped):
            return (max if v.largest else min)(self.number(v.a), self.number(v.b))
        if isinstance(v, Bound):
            at = self.number(v.at)
            return at + self.number(v.length) if at < 0 else at
        return self.values[v]

    def entry(self, entry: slice) -> slice:
        """``entry``, of variables, in numbers."""
        parts = (entry.start, entry.stop, entry.step)
        return slice(*(None if v is None else self.number(DIMS.value(v)) for v in parts))

    def taken(self, actual: Any) -> list[int]:
        """The rows at the positions of a Slice, as far as they are there."""
        low, high = (0, self.n) if actual.step > 0 else (-1, self.n - 1)
        start, stop = (min(max(self.number(p), low), high) for p in (actual.start, actual.stop))
        return list(range(start, stop, actual.step))


def runs(numbers: tuple[int, int]) -> list[At]:
    return [At(n, numbers) for n in LENGTHS]


@seed(1)
@EVERY
@given(SLICES, NUMBERS)
def test_positions(entry, numbers):
    actual = slice_of(DIMS, entry, LENGTH)
    for at in runs(numbers):
        wanted = list(at.rows[at.entry(entry)])
        assert at.taken(actual) == wanted
        low, high = map(at.number, actual.span)
        assert all(low <= k < high for k in wanted)
        assert [at.n - 1 - k for k in at.taken(actual.mirrored())] == wanted
        if actual.step in (1, -1):
            assert at.taken(actual.backwards()) == wanted[::-1]
        if actual.takes_all(DIMS):
            assert sorted(wanted) == list(range(at.n))
        first = actual.first(DIMS)
        assert first is None or not wanted or at.number(first) == wanted[0]


@seed(2)
@EVERY
@given(SLICES, NUMBERS)
def test_windows_are_exact(entry, numbers):
    window = window_of(DIMS, x, entry)
    if window is None:
        return
    for at in runs(numbers):
        wanted = list(at.rows[at.entry(entry)])
        assert len(wanted) == at.number(window.count)
        for w, rows in ((window, wanted), (window.backwards(), wanted[::-1])):
            start, count = at.number(w.start), at.number(w.count)
            assert [start + k * w.step for k in range(count)] == rows
            assert at.number(w.stop) == start + count * w.step
            assert at.taken(w.slice(LENGTH)) == rows
            if rows:
                part = w.part(DimExpr(offset=1), w.count - 1)
                assert at.taken(part.slice(LENGTH)) == rows[1:]
                part = w.part(DimExpr(), w.count - 1)
                assert at.taken(part.slice(LENGTH)) == rows[:-1]


@pytest.mark.slow
@seed(3)
@EVERY
@given(SLICES, NUMBERS, st.booleans())
def test_written_back(entry, numbers, turned):
    """A slice says what it was made of, a mirrored one the same of the rows backwards; in either order."""
    actual = slice_of(DIMS, entry, LENGTH)
    if not actual.is_known:
        return
    actual = actual.mirrored() if turned else actual
    ways = [(actual, 1), (actual.backwards(), -1)] if actual.step in (1, -1) else [(actual, 1)]
    for way, order in ways:
        written = way.entry(DIMS, DIMS.variable)
        assert written is not None or way.step < 0
        for at in runs(numbers) if written is not None else ():
            rows = at.rows[::-1] if turned else at.rows
            assert list(rows[at.entry(written)]) == list(at.rows[at.entry(entry)])[::order]


@seed(4)
@EVERY
@given(SLICES, NUMBERS, st.booleans())
def test_at_one_end(entry, numbers, back):
    """The rest of the array may be missing."""
    actual = slice_of(DIMS, entry, LENGTH)
    at_end = actual.at_end(back)
    if at_end is None:
        return
    index, count = at_end
    for at in runs(numbers):
        wanted = list(at.rows[at.entry(entry)])
        for k in range(max(count, 0), at.n + 1):
            rows = at.rows[at.n - k :] if back else at.rows[:k]
            assert list(rows[index]) == wanted


@seed(5)
@EVERY
@given(BOUNDS.filter(lambda v: v is not None), NUMBERS)
def test_a_row(index, numbers):
    """Outside of the array is outside, on either side."""
    actual = position(DIMS, index, LENGTH)
    for at in runs(numbers):
        k = at.number(DIMS.value(index))
        assert at.number(actual) == (k + at.n if k < 0 else k)


def test_what_takes_all():
    for entry in (
        slice(None),
        slice(None, None, -1),
        slice(0, None),
        slice(-1, None, -1),
        slice(0, ROWS),
        slice(None, -ROWS - 1, -1),
        slice(None, ROWS + 5),
    ):
        assert slice_of(DIMS, entry, LENGTH).takes_all(DIMS)
        assert window_of(DIMS, x, entry).count == LENGTH
    for entry in (slice(1, None), slice(-3, None), slice(None, None, 2), slice(anything)):
        assert not slice_of(DIMS, entry, LENGTH).takes_all(DIMS)
    assert slice_of(DIMS, slice(None, None, anything), LENGTH) is None


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (slice(0, ROWS), (None, None, None)),
        (slice(1, ROWS), (1, None, None)),
        (slice(-3, ROWS - 1), (-3, -1, None)),
        (slice(ROWS - 1, None, -1), (None, None, -1)),
        (slice(-1, -ROWS - 1, -1), (None, None, -1)),
        (slice(-2, 0, -2), (-2, 0, -2)),
        (slice(INPUTS[1], None), (DIMS.value(natural), None, None)),
    ],
    ids=str,
)
def test_the_fewest_words(entry, words):
    actual = slice_of(DIMS, entry, LENGTH)
    assert actual.entry(DIMS, lambda expr: expr) == slice(*words)


def test_accesses():
    m = pt.dmatrix("m")
    row, rows = read_of(m[2, 1:].owner), read_of(m[1:].owner)
    assert row.is_row and not row.is_whole and row.array is m and len(row.index) == 2
    assert not rows.is_row and rows.is_whole and rows.trailing == ()
    assert read_of(m[1:, :].owner).is_whole
    write = pt.set_subtensor(m[:, 1], 0.0).owner
    assert read_of(write) is None and read_of(m.owner) is None and read_of((m + 1).owner) is None
    access = access_of(write)
    assert access.array is m and access.rows == slice(None) and not access.is_whole


def test_the_mirrored_row_of_any_index():
    for k, n in product((pt.constant(2), anything, anything.astype("int8")), (3, 5)):
        graph = FunctionGraph([anything], [pt.as_tensor(mirrored_row(k))], clone=True)
        for value in (-2, 0, 2):
            actual = int(evaluate(graph, np.asarray(value))[0])
            index = value if k.owner is not None or k is anything else 2
            rows = np.arange(n)
            assert rows[::-1][actual] == rows[index]
