"""Moves of elements that undo each other are left out, and no others."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import SpecifyShape

from loopax.lowering.redundancy.simplify_moves import simplify_moves
from tests.support.kept import rewritten

x = pt.tensor("x", shape=(3, 1), dtype="float64")
rows = pt.tensor("rows", shape=(2, 3), dtype="float64")
open_rows = pt.dmatrix("open_rows")
AT = [
    np.array([[0.4], [-0.9], [2.0]]),
    np.arange(6.0).reshape(2, 3),
    np.arange(8.0).reshape(2, 4) - 3.0,
]


def simplified(output):
    graph = FunctionGraph([x, rows, open_rows], [output], clone=True)
    return rewritten(graph, simplify_moves, AT)


@pytest.mark.parametrize(
    "output",
    [
        rows.T.T,
        rows[:, None, :][:, 0],
        rows.dimshuffle(1, "x", 0).dimshuffle(2, 0, 1)[..., 0],
        SpecifyShape()(rows, 2, 3),
        SpecifyShape()(rows, None, 3),
        pt.reshape(rows, (2, 3)),
        rows[0:2, 0:3],
        rows[-2:, :5],
        rows[0:2:1][:, ::1],
    ],
)
def test_what_moves_nothing_is_the_array_itself(output):
    graph = simplified(output)
    assert graph.outputs[0] is graph.inputs[1]


@pytest.mark.parametrize(
    "output",
    [x[:, 0], x[:, -1].dimshuffle("x", 0).T[:, 0], x.T.dimshuffle(1)],
    ids=["first", "last, spread", "of a transpose"],
)
def test_an_axis_of_length_1_is_dropped_by_one_dimshuffle(output):
    graph = simplified(output)
    (node,) = graph.apply_nodes
    assert node.inputs[0] is graph.inputs[0] and node.outputs[0].type.shape == (3,)


@pytest.mark.parametrize(
    "output",
    [
        rows.T,
        rows[::-1],
        rows[0:1],
        rows[1],
        rows[:, 0],
        rows[:-1],
        open_rows[0:2],
        open_rows[:, :4],
        pt.specify_shape(open_rows, (2, 4)),
        pt.reshape(rows, (3, 2)),
        pt.reshape(open_rows, (2, 4)),
    ],
)
def test_a_move_of_elements_or_a_check_stays(output):
    assert len(simplified(output).apply_nodes) == 1


def test_a_longer_axis_is_never_dropped():
    """The error of a length other than 1 stays that of the last move."""
    moved = open_rows.dimshuffle(0, "x", 1).dimshuffle(2, 0, 1)
    (node,) = simplified(moved).apply_nodes
    assert tuple(node.op.new_order) == (1, 0, "x")
