"""Choices from a list of arrays built in the program -> choices from the rows of one array.

    choose(index, [x, y])  ->  choose(index, stack([x, y]))

A list has no derivative, and native code would keep it as an object. PyTensor declares that the choices
have the shape of the index: a list with an element of higher rank stays.
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Choose
from pytensor.typed_list.basic import MakeList

from loopax.importer.broadcasting import broadcast_with


def choice_from_rows(node: Apply) -> Any:
    """The output of ``node`` without a list; None if it is not such a choice."""
    if not isinstance(node.op, Choose):
        return None
    index, choices = node.inputs
    out: Any = node.outputs[0]
    if choices.owner is None or not isinstance(choices.owner.op, MakeList):
        return None
    rows: Any = choices.owner.inputs
    if any(v.type.ndim > index.type.ndim for v in rows):
        return None
    chosen: Any = node.op(index, pt.stack([broadcast_with(v, rows) for v in rows]))
    return out.type.filter_variable(chosen.astype(out.type.dtype))
