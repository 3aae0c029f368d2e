"""A moving window of rows: both representations are the same window."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, check, evaluate
from loopax.ir.windows import WIDEST_REGISTERS, Registers, Ring, sliding_window

ROW = pt.dvector().type


def moved(kind, size, n_steps, inside):
    """A loop that enters a row, and changes carried ones; what it read, and the rows at its end."""
    i, entering = pt.lscalar("i"), ROW("entering")
    rows, xs, n = pt.dmatrix("rows"), pt.dmatrix("xs"), pt.lscalar("n")
    w = kind(rows, size, ROW, i)
    written = {j: w.read(j) * 2 + j for j in inside} | {size: entering + w.read(0)}
    args = BodyArgs(i, [entering], w.states, [])
    reads = [w.read(j) for j in range(size)]
    scan = Scan.from_body(args, BodyOuts(w.move(written), reads))
    outs = scan.split_outputs(scan.bind(ScanArgs(n, [xs], w.inits, [])))
    graph = FunctionGraph([rows, xs, n], [*w.rows_after(outs.finals, n), *outs.traces], clone=True)
    check(graph)
    start = np.arange(2.0 * size).reshape(size, 2)
    entering = 100.0 + np.arange(2.0 * n_steps).reshape(n_steps, 2)
    actual = evaluate(graph, start, entering, np.asarray(n_steps))
    return start, entering, actual[:size], actual[size:]


@pytest.mark.parametrize("kind", [Registers, Ring])
@pytest.mark.parametrize(
    ("size", "n_steps", "inside"),
    [(1, 3, []), (2, 0, []), (3, 2, [1]), (3, 3, []), (3, 7, [2]), (4, 6, [1, 3])],
)
def test_rows_enter_are_written_and_leave(kind, size, n_steps, inside):
    start, entering, after, read = moved(kind, size, n_steps, inside)
    rows, expected = list(start), []
    for row in entering:
        expected.append(np.stack(rows))
        changed = {j: rows[j] * 2 + j for j in inside}
        rows = [*(changed.get(j, rows[j]) for j in range(1, size)), row + rows[0]]
    np.testing.assert_array_equal(np.stack(after), np.stack(rows))
    for j, trace in enumerate(read):
        np.testing.assert_array_equal(trace, np.reshape([e[j] for e in expected], (n_steps, 2)))


def test_a_wide_window_is_a_ring():
    i, rows = pt.lscalar(), pt.dmatrix()
    assert isinstance(sliding_window(rows, WIDEST_REGISTERS, ROW, i), Registers)
    assert isinstance(sliding_window(rows, WIDEST_REGISTERS + 1, ROW, i), Ring)
    assert [v.type.shape for v in sliding_window(rows, 9, ROW, i).states] == [(9, None)]


def test_a_row_that_was_only_expanded_is_taken_as_it_is():
    x, i = pt.dvector("x"), pt.lscalar()
    assert sliding_window(x[None], 1, ROW, i).inits == [x]
    assert sliding_window(pt.dmatrix(), 1, ROW, i).inits[0].owner is not None
    transposed = pt.dmatrix("m").dimshuffle("x", 1, 0)
    (row,) = sliding_window(transposed, 1, pt.dmatrix().type, i).inits
    value = np.arange(6.0).reshape(2, 3)
    actual = row.eval({transposed.owner.inputs[0]: value}, mode="FAST_COMPILE")
    np.testing.assert_array_equal(actual, value.T)


def test_a_window_of_no_rows_has_no_state():
    w = sliding_window(pt.dmatrix(), 0, ROW, pt.lscalar())
    assert (
        w.states == w.inits == [] and w.move({0: pt.dvector()}) == [] and w.rows_after([], 3) == []
    )
