"""The number that all elements of a variable are known to be, by the form of the graph.

PyTensor's function for it, which many of its rewrites use, takes an index from the end of a joined vector
for an index into the first part (3.0.7, 3.3.8):

    x * concatenate([[0.0], y])[-1]  ->  zeros, in every mode of PyTensor

Here such an element is not known. `loopax.lowering.canonical.joined_reads` hides it from the rewrites.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import Alloc, get_underlying_scalar_constant_value
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from loopax.base.upstream.pytensor import joined_rows
from loopax.facts.elementwise import is_elementwise


def constant_value(v: Any) -> np.ndarray | None:
    """The number that every element of ``v`` is known to be; None where the graph shows none."""
    try:
        value: Any = get_underlying_scalar_constant_value(v, raise_not_constant=False)
    except IndexError:  # an element beyond the end of a constant
        return None
    # A constant has few ancestors, so only those are searched.
    if isinstance(value, Variable) or any(map(is_misread, walk([v], _sources))):
        return None
    return np.asarray(value)


def is_misread(v: Variable) -> bool:
    """Whether ``v`` is an element from the end of a join that PyTensor takes for a constant."""
    if not _is_from_end(v):
        return False
    try:
        value = get_underlying_scalar_constant_value(v, raise_not_constant=False)
    except IndexError:  # the first part, a constant, has too few elements
        return True
    return not isinstance(value, Variable)


def _is_from_end(v: Any) -> bool:
    """Whether ``v`` is an element of a joined vector, at a negative constant index."""
    node = v.owner
    if node is None or not isinstance(node.op, Subtensor) or len(node.inputs) != 2:
        return False
    source, index = node.inputs
    if v.type.ndim or source.type.ndim != 1 or not isinstance(index, Constant):
        return False
    return bool(index.data < 0) and joined_rows(source.owner) is not None


def _sources(v: Any) -> list[Any]:
    """The inputs of the node of ``v`` that its elements are made of, up to a join."""
    node = v.owner
    if node is None or isinstance(node.op, Shape | Shape_i) or joined_rows(node) is not None:
        return []
    if isinstance(node.op, Alloc):
        return [node.inputs[0]]
    return [node.inputs[1]] if is_elementwise(node, ps.Second) else list(node.inputs)
