"""Whether outputs are affine in some inputs: what their gradient does not depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector, Split, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor

from loopax.ir.ops.inner_graph_op import core_of

_SUMS = ps.Add, ps.Sub, ps.Neg, ps.Identity, ps.Cast
_OF_THE_FIRST = Alloc, DimShuffle, Reshape, SpecifyShape, Split, Subtensor, AdvancedSubtensor, Sum
_OF_ALL = Join, MakeVector, TensorFromScalar, IncSubtensor


def is_affine(wrt: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether each of ``outputs`` is surely an affine function of ``wrt``, roots, taken together.

    >>> import pytensor.tensor as pt
    >>> from loopax.ir.derivatives.affine import is_affine
    >>> x, a = pt.dvector("x"), pt.dvector("a")
    >>> is_affine([x], [(a**2 * x[::-1]).sum() + 1]), is_affine([x, a], [a * x])
    (True, False)
    """
    moving = set(wrt)
    for node in toposort(list(outputs), blockers=list(wrt)):
        at = [k for k, v in enumerate(node.inputs) if v in moving]
        if not at:
            continue
        if not _keeps(node, at):
            return False
        moving.update(node.outputs)
    return True


def _keeps(node: Apply, at: Sequence[int]) -> bool:
    """Whether the outputs are affine in the inputs ``at``."""
    op = core_of(node.op)
    if isinstance(op, Elemwise):
        scalar_op = op.scalar_op
        if isinstance(scalar_op, _SUMS):
            return all(str(v.type.dtype).startswith(("float", "complex")) for v in node.outputs)
        if isinstance(scalar_op, ps.Mul):
            return len(at) == 1
        if isinstance(scalar_op, ps.TrueDiv):
            return at == [0]
        if isinstance(scalar_op, ps.Switch | ps.Second):
            return 0 not in at
        return False
    if isinstance(op, Dot):
        return len(at) == 1
    if isinstance(op, _OF_THE_FIRST):
        return at == [0]
    if isinstance(op, IncSubtensor):
        return max(at) <= 1
    return isinstance(op, _OF_ALL)
