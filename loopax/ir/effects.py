"""What a node does besides computing its outputs: what it may raise, what it draws, prints or overwrites.

Whoever moves a computation asks here: to another place in the program (`speculation`), to all rows of a
loop at once or to fewer of its steps (`errors`), to the time when a program is transpiled or traced
(`effects`). What is not listed may do anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Flag, IntEnum, auto
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor import gradient
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import HasInnerGraph
from pytensor.printing import Print
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.ir.ops.call import Call
from loopax.ir.ops.inner_graph_op import InnerGraphOp, is_foreign
from loopax.ir.sizes import Dims, access_of


class Effects(Flag):
    """What an op does besides computing its outputs from its inputs."""

    NONE = 0
    DRAWS = auto()  # numbers from a generator
    PRINTS = auto()
    OVERWRITES = auto()  # an input
    UNKNOWN = auto()  # neither PyTensor's nor ours: it may read what changes between two calls


class Errors(Flag):
    """What a node may raise, for some values of inputs of its types."""

    NONE = 0
    SHAPE = auto()  # lengths do not fit one another
    LENGTH = auto()  # one is negative, or zero where there must be an entry
    INDEX = auto()  # there is no such entry
    VALUE = auto()  # anything else


class Speculation(IntEnum):
    """How freely a node may run where it did not before."""

    FREE = 0  # nothing is computed: another view of the same numbers
    CHEAP = 1  # cannot raise
    GUARDED = 2  # may raise, or is expensive
    FIXED = 3  # stays where it is


# -- effects -----------------------------------------------------------------------------------------


def effects(op: Any) -> Effects:
    """Those of ``op``, and of all that is inside of it."""
    found = Effects.OVERWRITES if op.destroy_map else Effects.NONE
    if isinstance(op, RandomVariable):
        found |= Effects.DRAWS
    if isinstance(op, Print):
        found |= Effects.PRINTS
    if is_foreign(op):
        found |= Effects.UNKNOWN
    if isinstance(op, Blockwise):
        found |= effects(op.core_op)
    if isinstance(op, HasInnerGraph):
        for node in op.fgraph.apply_nodes:  # what they overwrite is inside as well
            found |= effects(node.op) & ~Effects.OVERWRITES
    return found


# -- errors ------------------------------------------------------------------------------------------


def errors(node: Apply) -> Errors:
    """What ``node`` may raise, by its op, the types of its inputs and what these are made of."""
    op: Any = node.op
    if isinstance(op, Shape | Shape_i | MakeVector | ScalarFromTensor | TensorFromScalar):
        return Errors.NONE
    if isinstance(op, Dot | Join):
        return Errors.SHAPE
    if isinstance(op, DimShuffle):  # one that drops an axis raises where that is not of length 1
        dropped = [k for k in range(op.input_ndim) if k not in op.new_order]
        is_one = all(node.inputs[0].type.shape[k] == 1 for k in dropped)
        return Errors.NONE if is_one else Errors.SHAPE
    if isinstance(op, Subtensor):
        return _index_errors(node)
    if isinstance(op, IncSubtensor):
        return Errors.SHAPE | _index_errors(node)
    if isinstance(op, Elemwise):
        shape = Errors.NONE if _agree(node) else Errors.SHAPE
        return shape if _is_total(op.scalar_op, node) else shape | Errors.VALUE
    if isinstance(op, ps.ScalarOp):
        return Errors.NONE if _is_exact(node) and _is_total(op, node) else Errors.VALUE
    if isinstance(op, CAReduce):  # of nothing there is no largest entry
        is_partial = raises_of_nothing(op) and not all(node.inputs[0].type.shape)
        return Errors.LENGTH if is_partial else Errors.NONE
    if isinstance(op, Alloc):
        is_shape = all(map(_is_length, node.inputs[1:]))
        return Errors.SHAPE if is_shape else Errors.SHAPE | Errors.LENGTH
    if isinstance(op, Reshape):
        asked = entries_of(node.inputs[1])
        is_shape = asked is not None and _is_shape(asked)
        return Errors.SHAPE if is_shape else Errors.SHAPE | Errors.LENGTH
    if isinstance(op, ARange):
        step = node.inputs[2]
        return Errors.NONE if isinstance(step, Constant) and step.data else Errors.VALUE
    return ~Errors.NONE


def _index_errors(node: Any) -> Errors:
    found, access = Errors.NONE, access_of(node)
    for n, entry in zip(access.array.type.shape, access.index, strict=False):
        if isinstance(entry, slice):
            step = entry.step
            if step is not None and not (isinstance(step, Constant) and int(step.data)):
                found |= Errors.VALUE
        elif n is None or not isinstance(entry, Constant) or not -n <= int(entry.data) < n:
            found |= Errors.INDEX
    return found


def _agree(node: Apply) -> bool:
    """Whether the shapes of an Elemwise's inputs are known to fit one another."""
    for lengths in zip(*(v.type.shape for v in node.inputs), strict=True):
        others = [n for n in lengths if n != 1]
        if len(others) > 1 and (None in others or len(set(others)) > 1):
            variables = [v for v, n in zip(node.inputs, lengths, strict=True) if n != 1]
            if len(set(variables)) > 1:
                return False
    return True


def _is_total(op: Any, node: Apply) -> bool:
    """Whether the scalar ``op`` has a value for any numbers of the types that ``node`` has.

    Integers are where it has none: to a negative power, divided by zero by Python's operators, out of
    the range of a narrower type; and a `Composite` divides Python's own numbers.
    """
    if type(op).__module__ not in ("pytensor.scalar.basic", "pytensor.scalar.math"):
        return False
    is_float = node.outputs[0].type.dtype.startswith(("float", "complex"))
    if isinstance(op, ps.Add | ps.Mul):  # three are added by Python, whose integers have no bound
        return is_float or len(node.inputs) <= 2
    if isinstance(op, ps.IntDiv | ps.Mod):
        divisor = node.inputs[1]
        return is_float or (isinstance(divisor, Constant) and bool(np.all(divisor.data)))
    if isinstance(op, ps.Cast):
        before, after = node.inputs[0].type.dtype, node.outputs[0].type.dtype
        return is_float or after == "bool" or np.can_cast(before, after)
    return is_float if isinstance(op, ps.Pow) else not isinstance(op, ps.Composite)


def _is_exact(node: Apply) -> bool:
    """Whether a scalar op is arithmetic of integers, as indices are made by."""
    op: Any = node.op
    discrete = all(
        str(getattr(v.type, "dtype", "")).startswith(("int", "uint")) for v in node.inputs
    )
    return discrete and isinstance(op, ps.Add | ps.Sub | ps.Mul | ps.Neg | ps.Cast)


def _is_length(v: Any) -> bool:
    dims = Dims()
    return dims.at_least(dims.value(v))


def _is_shape(asked: Sequence[Any]) -> bool:
    """Whether ``asked`` are lengths, of which one may be left open."""
    return all(_is_length(v) or is_open(v) for v in asked) and sum(map(is_open, asked)) < 2


def is_open(v: Any) -> bool:
    """Whether ``v``, an entry of the shape that a Reshape asks for, is left to the number of entries."""
    return Dims().value(v).constant == -1


def entries_of(shape: Any) -> list[Any] | None:
    """The scalars that the vector ``shape`` is made of; None where nobody can tell."""
    if isinstance(shape, Constant):
        return [pt.constant(int(k), dtype="int64") for k in shape.data]
    is_made = shape.owner is not None and isinstance(shape.owner.op, MakeVector)
    return list(shape.owner.inputs) if is_made else None


# -- speculation -------------------------------------------------------------------------------------

_FREE = (ScalarFromTensor, TensorFromScalar, DimShuffle)
_CHEAP = (*_FREE, Shape, Shape_i, MakeVector, Subtensor, Elemwise, ps.ScalarOp)
_KEEPS_ITS_PLACE = Effects.DRAWS | Effects.PRINTS | Effects.OVERWRITES


def speculation(node: Apply) -> Speculation:
    """How freely ``node`` may run where it did not, by its op and the types of its inputs and outputs."""
    op: Any = node.op
    types = [v.type for v in (*node.inputs, *node.outputs)]
    if not all(isinstance(t, DenseTensorType | ps.ScalarType) for t in types):
        return Speculation.FIXED
    if effects(op) & _KEEPS_ITS_PLACE or _has_own_derivative(op):
        return Speculation.FIXED
    if not isinstance(op, _CHEAP) or errors(node):
        return Speculation.GUARDED
    return Speculation.FREE if isinstance(op, _FREE) else Speculation.CHEAP


def _has_own_derivative(op: Any) -> bool:
    """Whether the derivative is not that of the values (`grad_clip`, a `Call` with a pullback of its own).

    It need not be linear, so that it makes a difference whether it is taken at every step or once of
    their sum.
    """
    if isinstance(op, Blockwise):
        return isinstance(op.core_op, InnerGraphOp) or _has_own_derivative(op.core_op)
    if type(op).__module__ == gradient.__name__:
        return True
    if isinstance(op, Call) and op.rule is not None:
        return True
    return isinstance(op, InnerGraphOp) and any(
        _has_own_derivative(node.op) for node in op.fgraph.apply_nodes
    )


# -- cost --------------------------------------------------------------------------------------------

_DEAR = (
    *(ps.Pow, ps.Exp, ps.Exp2, ps.Expm1, ps.Log, ps.Log2, ps.Log10, ps.Log1p, ps.ArcTan2),
    *(ps.Sin, ps.Cos, ps.Tan, ps.ArcSin, ps.ArcCos, ps.ArcTan),
    *(ps.Sinh, ps.Cosh, ps.Tanh, ps.ArcSinh, ps.ArcCosh, ps.ArcTanh),
)


def is_dear_function(op: Elemwise) -> bool:
    """Whether an entry costs more than writing and reading it: an exponential, a special function."""
    scalar: Any = op.scalar_op
    inner = getattr(scalar, "fgraph", None)
    scalar_ops = [scalar] if inner is None else [a.op for a in inner.apply_nodes]
    return any(
        isinstance(s, _DEAR) or type(s).__module__ == "pytensor.scalar.math" for s in scalar_ops
    )


def raises_of_nothing(op: CAReduce) -> bool:
    """Whether the reduction of no elements is an error: the extremes without ``initial`` (PyTensor 3.3)."""
    is_extreme = isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum)
    return is_extreme and not getattr(op, "initial", False)
