"""Bodies that are equal in part have the same nodes: what holds for one loop need not for another."""

import numpy as np
import pytensor.tensor as pt

from loopax.ir import check, evaluate
from tests.numba_backend.interpreted import interpreted, lowered
from tests.support.bare_loops import While
from tests.support.compare import imported

n, k = pt.lscalars("n", "k")
buffer = pt.dvector("buffer")


def agrees(outputs, *values):
    graph = imported([n], outputs).graph
    check(graph)
    wanted = evaluate(graph, *map(np.asarray, values))
    for actual, expected in zip(interpreted(graph)(*values), wanted, strict=True):
        np.testing.assert_allclose(actual, expected, strict=True)


def test_a_write_that_is_in_place_in_one_loop_only():
    """Both set row k of a buffer to k + 1; the second one also keeps the buffer as it was before."""
    following, old = k + 1, pt.dvector("old")
    written = pt.set_subtensor(buffer[k], following.astype("float64"))
    goes_on, zero = pt.lt(following, n), pt.constant(0, dtype="int64")
    fill = While.from_body([k, buffer], [n], [following, written], goes_on)
    keep = While.from_body([k, buffer, old], [n], [following, written, buffer + 0.5], goes_on)
    filled = fill.bind(pt.gt(n, 0), [zero, pt.zeros((n,))], [n])[1]
    # It starts from what the first one made, so that it is written behind it.
    kept = keep.bind(pt.gt(n, 0), [zero, filled * 0.0, pt.zeros((n,))], [n])
    agrees([filled, *kept[1:]], 4)


def test_a_count_of_one_loop_is_no_count_of_the_next():
    """The second loop starts at another number: its index is checked, and counted from the end."""
    following = k + 1
    seen = pt.dscalar("seen")
    body = ([k, seen], [buffer, n], [following, seen + buffer[k]], pt.lt(following, n))
    loop = While.from_body(*body)
    rows = pt.arange(1.0, n + 1.0)
    zero = pt.constant(0.0, dtype="float64")
    actual = [
        loop.bind(pt.gt(n, 0), [pt.constant(first, dtype="int64"), zero], [rows, n])[1]
        for first in (0, -2)
    ]
    agrees(actual, 5)
    graph = lowered([n], actual)
    assert "index(" in interpreted(graph).source
