"""Arrays of zeros around one array become windows of one frame."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import IncSubtensor

from loopax.lowering.redundancy.share_frames import share_frames
from tests.support.kept import rewritten

x = pt.tensor("x", shape=(5,), dtype="float64")
image = pt.tensor("image", shape=(8, 9), dtype="float64")
open_row = pt.dvector("open_row")
k = pt.lscalar("k")
INPUTS = [x, image, open_row, k]
VALUES = [np.arange(1.0, 6), np.arange(72.0).reshape(8, 9), np.ones(5), np.int64(1)]


def shared(*outputs):
    return rewritten(FunctionGraph(INPUTS, list(outputs), clone=True), share_frames, VALUES)


def writes(graph):
    return [node for node in graph.apply_nodes if isinstance(node.op, IncSubtensor)]


def padded(v, *widths):
    shape = [n + a + b for n, (a, b) in zip(v.type.shape, widths, strict=True)]
    place = tuple(slice(a, a + n) for n, (a, b) in zip(v.type.shape, widths, strict=True))
    return pt.set_subtensor(pt.zeros(shape)[place], v)


def test_a_stencil_back():
    graph = shared(padded(x, (0, 2)) + padded(x, (1, 1)) + padded(x, (2, 0)))
    (write,) = writes(graph)
    assert write.outputs[0].type.shape == (9,)


def test_two_axes_and_lengths_that_differ():
    graph = shared(padded(image, (1, 0), (0, 2)), padded(image, (0, 0), (1, 1)))
    assert len(writes(graph)) == 1


def test_by_negative_bounds():
    zeros = pt.zeros((7,))
    graph = shared(pt.set_subtensor(zeros[-5:], x), pt.set_subtensor(zeros[:-2], x))
    assert len(writes(graph)) == 1


@pytest.mark.parametrize(
    "outputs",
    [
        [padded(x, (0, 40)), padded(x, (40, 0))],  # mostly zeros
        [padded(x, (0, 1)), padded(2 * x, (1, 0))],  # two arrays
        [padded(x, (0, 1)), pt.set_subtensor(pt.ones((6,))[1:], x)],
        [padded(x, (0, 1)), pt.inc_subtensor(pt.zeros((6,))[1:], x)],
        [padded(x, (0, 1)), pt.set_subtensor(pt.zeros((9,))[::2], x)],
        [padded(x, (0, 1)), pt.set_subtensor(pt.zeros((6,))[k : k + 5], x)],
        [padded(x, (0, 1)), pt.set_subtensor(pt.zeros((6, 5))[1:], x)],  # spread over rows
        [
            pt.set_subtensor(pt.zeros((6,))[1:], open_row),
            pt.set_subtensor(pt.zeros((6,))[:5], open_row),
        ],
    ],
    ids=["far", "other", "ones", "increment", "strided", "variable", "spread", "open"],
)
def test_other_writes_stay(outputs):
    assert len(writes(shared(*outputs))) == 2
