"""How many rows an array has, told from its graph; and what of it is read."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax.importer.legacy_scan import lengths
from loopax.importer.legacy_scan.reads import heads, reads
from loopax.ir.sizes import Dims

X, M = pt.dvector("x"), pt.dmatrix("m")
N = pt.lscalar("n")
ROWS = X.shape[0]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ROWS - 1 + 1, ROWS),
        (pt.cast(ROWS, "int32") + 2, 2 + X.shape[0]),
        (pt.zeros((ROWS + 1,)).shape[0] - 1, ROWS),
        (pt.zeros_like(X).shape[0], ROWS),
        (pt.set_subtensor(pt.zeros((ROWS + 2, 3))[2:], 1.0)[::-1].shape[0], ROWS + 2),
        (pt.concatenate([X, pt.zeros(2)])[1:-1].shape[0], ROWS),
        (pt.concatenate([X, X]).shape[0] - ROWS, ROWS),
        (X[0:][:ROWS].shape[0], ROWS),
        (pt.zeros((4, 2))[1:, 0].shape[0], pt.constant(3)),
    ],
    ids=str,
)
def test_equal_lengths(a, b):
    dims = Dims()
    assert dims.value(a) == dims.value(b)
    graph = pytensor.function([X], [a, b], mode="FAST_COMPILE", on_unused_input="ignore")
    actual = graph(np.arange(5.0))
    assert actual[0] == actual[1]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ROWS - 1, ROWS),
        (N, ROWS),
        (X[1:].shape[0] + 1, ROWS),  # of no rows at all there are none
        (X[:-1].shape[0] + 1, ROWS),
        (X[:3].shape[0], pt.constant(3)),
        (X[::2].shape[0], ROWS),
        (X[N:].shape[0] + N, ROWS),
        (X[:N].shape[0], N),
        (pt.concatenate([M, M], axis=1).shape[0], 2 * M.shape[0]),
        (2 * ROWS, ROWS),
    ],
    ids=str,
)
def test_lengths_that_may_differ(a, b):
    dims = Dims()
    assert dims.value(a) != dims.value(b)


def plain(n):
    return lengths.plain(n, Dims())


def rows_exactly(x, n):
    return lengths.rows_exactly(x, n, Dims())


def test_what_a_number_of_steps_comes_to():
    assert plain(N - 1 + 1) is N
    assert plain(N + 1).owner is not None and plain(2 * N) is not N


def test_slices_that_take_all_rows_are_left_out():
    n = X.shape[0]
    assert rows_exactly(X, n) is X
    assert rows_exactly(X[0:][:n][:n], n) is X
    assert rows_exactly(X[::-1][:n], n).owner.inputs[0] is X
    longer = X[0:][:N]
    assert rows_exactly(longer[:N], N) is longer
    assert rows_exactly(X, N).owner.inputs[0] is X
    # Too few rows are an error of the loop: the slice that makes them stays.
    short = X[:3]
    assert rows_exactly(short, n).owner.inputs[0] is short


def test_reads():
    def kinds(*outputs):
        graph = FunctionGraph([X, N], list(outputs), clone=False)
        return [
            (r.row, r.first, r.left, r.backwards, r.length, r.filled is not None)
            for r in reads(graph, X)
        ]

    nothing = (None, None, None, False, False, False)
    assert kinds(X[-2]) == [(-2, *nothing[1:])]
    assert kinds(X[1:], X[:-1])[0][1:3] == (1, 0)
    assert kinds(X[:-1])[0][1:3] == (0, 1)
    assert kinds(X[::-1])[0][3] and kinds(X.shape[0])[0][4] and kinds(pt.zeros_like(X))[0][5]
    assert kinds(X[0:][-1]) == [(-1, *nothing[1:])]
    assert kinds(X[N], X[::2], X + 1, X) == [nothing] * 4
    assert kinds(X[N:]) == [(None, None, 0, False, False, False)]  # it may be any row
    assert kinds(pt.second(X, pt.arange(3.0))) == [nothing]


def test_heads():
    def taken(*outputs):
        actual = heads(FunctionGraph([X], list(outputs), clone=False), X)
        return actual and [n for _, n in actual]

    assert taken(X[:2], pt.concatenate([X, pt.zeros(3)])[:1]) == [2, 1]
    for other in (X[0], X[1:], X[:-1], X + 1, pt.concatenate([pt.zeros(3), X])[:1]):
        assert taken(X[:2], other) is None
    assert taken(pt.concatenate([X, X])[:1]) is None
