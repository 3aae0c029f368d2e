"""Batches without rows in native code: of the shape that rows would have, or refused as PyTensor does."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph

from loopax import jaxify
from tests.support.compare import FAST_COMPILE

V, X = pt.vector("v"), pt.matrix("X")


def _native(make):
    """``make`` of each row, as an op with an inner graph: PyTensor puts a Blockwise around it."""
    inner = pt.vector("inner")
    out = vectorize_graph(OpFromGraph([inner], [make(inner)])(V), {V: X})
    return jaxify(pytensor.function([X], out, mode=FAST_COMPILE), backend="numba")


@pytest.mark.parametrize(
    ("make", "shape"),
    [(lambda v: v * 2, (0, 4)), (lambda v: pt.outer(v, v), (0, 4, 4)), (lambda v: v.sum(), (0,))],
    ids=["elementwise", "outer", "sum"],
)
def test_a_batch_of_no_rows_has_the_shape_of_a_row(make, shape):
    f = _native(make)
    assert f(np.zeros((0, 4))).shape == shape
    assert f(np.ones((3, 4))).shape == (3, *shape[1:])


def _discounted(v):
    return pytensor.scan(
        lambda x, s: 0.5 * s + x, sequences=v, outputs_info=pt.zeros(()), return_updates=False
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (_discounted, (0, 4)),
        (lambda v: _discounted(v)[-1], (0,)),
        (lambda v: v.reshape((2, 2)), (0, 2, 2)),
        (lambda v: pt.tile(v, 2), (0, 8)),
        (lambda v: v[: v.shape[0] - 1], (0, 3)),
    ],
    ids=["trace", "last of a trace", "reshape", "tile", "slice"],
)
def test_a_length_that_rows_share_is_that_of_no_rows(make, shape):
    f = jaxify([X], vectorize_graph(make(V), {V: X}), backend="numba")
    assert f(np.zeros((0, 4))).shape == shape
    assert f(np.ones((3, 4))).shape == (3, *shape[1:])


def test_a_batch_of_no_rows_whose_length_follows_from_values_is_refused():
    f = _native(lambda v: v[v > 0])
    assert f(np.array([[1.0, -1.0], [-1.0, 2.0]])).tolist() == [[1.0], [2.0]]
    with pytest.raises(ValueError, match="a batch of no rows"):
        f(np.zeros((0, 4)))
