"""Bodies that are equal in part have the same nodes: what holds for one loop need not for another."""

import numpy as np
import pytensor.tensor as pt

from loopax.ir import Loop, check, evaluate
from tests.compare import imported
from tests.numba_backend.interpreted import interpreted

n, k = pt.lscalars("n", "k")
buffer = pt.dvector("buffer")


def filling(extra):
    """Row k of a buffer is set to k + 1, from k = 0 on; with a state of its sum beside it, or without."""
    following, s = k + 1, pt.dscalar("s")
    written = pt.set_subtensor(buffer[k], following.astype("float64"))
    # The sum is of the buffer as it was before the write.
    loop = Loop.from_body(
        [k, buffer, s] if extra else [k, buffer],
        [n],
        [following, written, *([s + buffer.sum()] if extra else [])],
        pt.lt(following, n),
    )
    start, room = pt.constant(0, dtype="int64"), pt.zeros((n,))
    states = [start, room, *([pt.constant(0.0, dtype="float64")] if extra else [])]
    return loop.bind(pt.gt(n, 0), states, [n])


def agrees(outputs, *values):
    graph = imported([n], outputs).graph
    check(graph)
    wanted = evaluate(graph, *map(np.asarray, values))
    for found, expected in zip(interpreted(graph)(*values), wanted, strict=True):
        np.testing.assert_allclose(found, expected, strict=True)


def test_a_write_that_is_in_place_in_one_loop_only():
    agrees([filling(False)[1], *filling(True)[1:]], 4)


def test_a_count_of_one_loop_is_no_count_of_the_next():
    """The second loop starts at another number: its index is checked, and counted from the end."""
    following = k + 1
    seen = pt.dscalar("seen")
    body = ([k, seen], [buffer, n], [following, seen + buffer[k]], pt.lt(following, n))
    loop = Loop.from_body(*body)
    rows = pt.arange(1.0, n + 1.0)
    zero = pt.constant(0.0, dtype="float64")
    found = [
        loop.bind(pt.gt(n, 0), [pt.constant(first, dtype="int64"), zero], [rows, n])[1]
        for first in (0, -2)
    ]
    agrees(found, 5)
