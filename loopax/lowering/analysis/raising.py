"""Which ops can raise, by what they are and by the types of what they are given.

A pass that moves a computation to where it may run without need asks here. `Effort` says what is known
of one node: what is not listed may raise, or costs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor import gradient
from pytensor.graph.basic import Apply, Constant
from pytensor.printing import Print
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.ir import Call
from loopax.ir.inner_graph_op import InnerGraphOp


class Effort(IntEnum):
    """How freely a node may run where it did not before."""

    FREE = 0  # nothing is computed: another view of the same numbers
    CHEAP = 1  # cannot raise
    GUARDED = 2  # may raise, or costs
    FIXED = 3  # stays where it is


def effort(node: Apply) -> Effort:
    """What is known of ``node``, from its op and the types of its inputs and outputs."""
    op: Any = node.op
    variables = [*node.inputs, *node.outputs]
    if not all(isinstance(v.type, DenseTensorType | ps.ScalarType) for v in variables):
        return Effort.FIXED
    if _is_fixed(op):
        return Effort.FIXED
    if isinstance(op, ScalarFromTensor | TensorFromScalar):
        return Effort.FREE
    if isinstance(op, DimShuffle):  # one that drops an axis raises where that is not of length 1
        dropped = [k for k in range(op.input_ndim) if k not in op.new_order]
        is_safe = all(node.inputs[0].type.shape[k] == 1 for k in dropped)
        return Effort.FREE if is_safe else Effort.GUARDED
    if isinstance(op, Shape | Shape_i | MakeVector):
        return Effort.CHEAP
    if isinstance(op, Subtensor):
        return Effort.CHEAP if _reads_what_is_there(node) else Effort.GUARDED
    if isinstance(op, Elemwise) and _agree(node) and _cannot_raise(op.scalar_op, node):
        return Effort.CHEAP
    if isinstance(op, ps.ScalarOp) and _is_exact(node) and _cannot_raise(op, node):
        return Effort.CHEAP
    return Effort.GUARDED


def _is_fixed(op: Any) -> bool:
    """Draws, what writes to its inputs, effects; and derivatives that are not those of the values.

    Such a derivative (`grad_clip`, a `Call` with a pullback of its own) need not be linear, so that it
    makes a difference whether it is taken at every step or once of their sum.
    """
    if op.destroy_map or isinstance(op, RandomVariable | Print):
        return True
    if type(op).__module__ == gradient.__name__:
        return True
    if isinstance(op, Call) and op.pullback_body is not None:
        return True
    if isinstance(op, Blockwise):
        return isinstance(op.core_op, InnerGraphOp) or _is_fixed(op.core_op)
    if isinstance(op, InnerGraphOp):
        return any(_is_fixed(node.op) for node in op.fgraph.toposort())
    return False


def _reads_what_is_there(node: Apply) -> bool:
    op: Any = node.op
    x = node.inputs[0]
    for k, entry in enumerate(indices_from_subtensor(node.inputs[1:], op.idx_list)):
        if isinstance(entry, slice):
            if entry.step is not None and not (
                isinstance(entry.step, Constant) and int(entry.step.data)
            ):
                return False
            continue
        n = x.type.shape[k]
        if n is None or not isinstance(entry, Constant) or not -n <= int(entry.data) < n:
            return False
    return True


def _agree(node: Apply) -> bool:
    """Whether the shapes of an Elemwise's inputs are known to fit one another."""
    for lengths in zip(*(v.type.shape for v in node.inputs), strict=True):
        others = [n for n in lengths if n != 1]
        if len(others) > 1 and (None in others or len(set(others)) > 1):
            variables = [v for v, n in zip(node.inputs, lengths, strict=True) if n != 1]
            if len(set(variables)) > 1:
                return False
    return True


_BINARY = (
    ps.LogicalComparison,
    ps.basic.BinaryBitOp,
    ps.ScalarMaximum,
    ps.ScalarMinimum,
    ps.Sub,
    ps.Second,
    ps.TrueDiv,
    ps.ArcTan2,
    ps.Switch,
    ps.Clip,
)
_OF_PYTENSOR = ("pytensor.scalar.basic", "pytensor.scalar.math")


def _cannot_raise(op: Any, node: Apply) -> bool:
    """Whether NumPy has a value for any numbers of these types.

    Integers are where it has not: to a negative power, divided by zero by Python's operators, out of
    the range of a narrower type.
    """
    is_float = node.outputs[0].type.dtype.startswith(("float", "complex"))
    if isinstance(op, ps.Add | ps.Mul):  # three are added by Python, whose integers have no bound
        return is_float or len(node.inputs) <= 2
    if isinstance(op, ps.Pow):
        return is_float
    if isinstance(op, ps.IntDiv | ps.Mod):
        divisor = node.inputs[1]
        return isinstance(divisor, Constant) and bool(np.all(divisor.data))
    if isinstance(op, ps.Cast):
        before, after = node.inputs[0].type.dtype, node.outputs[0].type.dtype
        return is_float or after == "bool" or np.can_cast(before, after)
    if isinstance(op, ps.UnaryScalarOp):
        return type(op).__module__ in _OF_PYTENSOR
    return isinstance(op, _BINARY)


def _is_exact(node: Apply) -> bool:
    """Whether a scalar op is arithmetic of integers, as indices are made by."""
    op: Any = node.op
    discrete = all(
        str(getattr(v.type, "dtype", "")).startswith(("int", "uint")) for v in node.inputs
    )
    return discrete and isinstance(op, ps.Add | ps.Sub | ps.Mul | ps.Neg | ps.Cast)
