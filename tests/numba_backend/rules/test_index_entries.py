"""What a step reads at its index needs no check where there is a row for each: nothing is compiled here."""

import re

import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import scan, while_loop
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, evaluate
from tests.numba_backend.interpreted import interpreted, lowered

ZERO = pt.constant(0.0, dtype="float64")


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_read_at_the_index_needs_no_check(reverse):
    xs, k = pt.dvector("xs"), pt.lscalar("k")
    run = interpreted(
        lowered([xs], [scan(lambda s, x: (s * 0.5 + x, s), ZERO, xs, reverse=reverse)[0]])
    )
    assert "index(" not in run.source and "break" not in run.source
    np.testing.assert_allclose(run(np.array([1.0, 2.0, 4.0])), [3.0 if reverse else 5.25])
    other = scan(lambda s, i: (s + xs[i + k], s), ZERO, pt.arange(xs.shape[0]))
    run = interpreted(lowered([xs, k], [other[0]]))
    with pytest.raises(IndexError, match="out of bounds"):
        run(np.ones(3), 1)
    assert run(np.ones(3), 0) == [3.0]


@pytest.mark.parametrize("n", [0, 2, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_that_stops_is_left(reverse, n):
    """Its index, the steps that it took, and whether its body stopped it, zero steps included."""
    i, s = pt.lscalar("i"), pt.lscalar("s")
    stops = Scan.from_body(
        BodyArgs(i, [], [s], []), BodyOuts([s * 10 + i], [], s > 99), ScanOptions(reverse=reverse)
    )
    steps = pt.lscalar("steps")
    graph = lowered([steps], stops.bind(ScanArgs(steps, [], [pt.constant(1, dtype="int64")], [])))
    run = interpreted(graph)
    assert len(re.findall(r"\n +for ", run.source)) == 1 and "break" in run.source
    assert run(np.asarray(n)) == evaluate(graph, np.asarray(n))


def test_what_nobody_reads_of_an_end_is_not_kept():
    s = pt.dscalar("s")
    run = interpreted(lowered([s], [while_loop(lambda c: c < 9.0, lambda c: c * 2.0, s)]))
    assert "n_done" not in run.source and "stopped" not in run.source
    assert run(np.asarray(1.0)) == [16.0] and run(np.asarray(10.0)) == [10.0]
