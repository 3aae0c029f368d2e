"""Records of ops that read shapes, set shapes, or join arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.gradient import DisconnectedGrad, ZeroGrad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    Choose,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    Nonzero,
    PermuteRowElements,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
    join,
)
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.reshape import SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape

from loopax.base.upstream.pytensor import axis_of, joined_by
from loopax.facts.families import in_first, leading_axes, ndim_of
from loopax.facts.record import Axes, Errors, Groups, OpFacts, Structure, Work, register


def _all(node: Apply) -> Groups:
    return (frozenset(range(len(node.inputs))),)


def _no_errors(node: Apply) -> Errors:
    return Errors.NONE


_class: type

# -- shapes that are asked ---------------------------------------------------------------------------

for _class in (Shape, Shape_i):
    register(
        _class,
        OpFacts(
            structure=Structure.SHAPE, work=Work.ENTRY, errors=_no_errors, reads=lambda node: ()
        ),
    )

# -- numbers and arrays ------------------------------------------------------------------------------

_NUMBER = OpFacts(structure=Structure.MOVES, work=Work.VIEW, errors=_no_errors, linear=in_first)
register(ScalarFromTensor, _NUMBER)
register(TensorFromScalar, _NUMBER)
register(
    MakeVector, OpFacts(structure=Structure.MOVES, work=Work.ENTRY, errors=_no_errors, linear=_all)
)

# -- shapes that are given ---------------------------------------------------------------------------


def _of_value(node: Apply) -> Axes:
    """The axes of an Alloc: the axes of its value are the last axes of its result."""
    ndim, own = ndim_of(node.outputs[0]), ndim_of(node.inputs[0])
    of_value = tuple(None if k < ndim - own else k - (ndim - own) for k in range(ndim))
    return (of_value, *((None,) * ndim for _ in node.inputs[1:]))


def _filled_behind(node: Apply, n: int) -> Any:
    """An Alloc with fewer leading lengths."""

    def filled(value: Variable, *lengths: object) -> Any:
        return pt.alloc(value, *lengths[-n:]) if len(lengths) > -n else value

    return filled if n < 0 else None


def _step_is_known(node: Apply) -> Errors:
    step = node.inputs[2]
    return Errors.NONE if isinstance(step, Constant) and step.data else Errors.VALUE


def _shape_or_length(node: Apply) -> Errors:
    return Errors.SHAPE | Errors.LENGTH


register(
    Alloc,
    OpFacts(
        structure=Structure.MOVES,
        errors=_shape_or_length,
        lengths=lambda node: node.inputs[1:],
        axes=_of_value,
        behind=_filled_behind,
        linear=in_first,
    ),
)
register(AllocEmpty, OpFacts(structure=Structure.MAKES, lengths=lambda node: node.inputs))
register(Eye, OpFacts(structure=Structure.MAKES, lengths=lambda node: node.inputs[:2]))
register(
    ARange,
    OpFacts(
        structure=Structure.MAKES, errors=_step_is_known, lengths=lambda node: node.inputs[1:2]
    ),
)
register(
    Repeat,
    OpFacts(structure=Structure.MOVES, lengths=lambda node: node.inputs[1:], linear=in_first),
)
register(
    Reshape,
    OpFacts(
        structure=Structure.MOVES,
        errors=_shape_or_length,
        lengths=lambda node: node.inputs[1:],
        linear=in_first,
    ),
)
register(
    SplitDims,
    OpFacts(structure=Structure.MOVES, lengths=lambda node: node.inputs[1:], linear=in_first),
)
register(SpecifyShape, OpFacts(structure=Structure.MOVES, axes=leading_axes(0), linear=in_first))

# -- parts and wholes --------------------------------------------------------------------------------


def _pieces(node: Apply) -> Groups:
    pieces = joined_by(node.op, node.inputs)
    n = len(node.inputs)
    return (frozenset(range(n - len(pieces), n)),)


def _beside_the_axis(node: Apply) -> Axes | None:
    axis = axis_of(node)
    if axis is None:
        return None
    own = tuple(None if k == axis else k for k in range(ndim_of(node.outputs[0])))
    n = len(node.inputs) - len(joined_by(node.op, node.inputs))
    return [own if k >= n else (None,) * len(own) for k in range(len(node.inputs))]


def _joined_behind(node: Apply, n: int) -> Any:
    axis = axis_of(node)
    if axis is None or axis + n < 0:
        return None
    return lambda *inputs: join(axis + n, *joined_by(node.op, inputs))


register(
    Join,
    OpFacts(
        structure=Structure.MOVES,
        errors=lambda node: Errors.SHAPE,
        axes=_beside_the_axis,
        behind=_joined_behind,
        linear=_pieces,
    ),
)
register(
    Split,
    OpFacts(structure=Structure.MOVES, lengths=lambda node: node.inputs[-1:], linear=in_first),
)

for _class in (AllocDiag, ExtractDiag, Choose, PermuteRowElements, Nonzero):
    register(_class, OpFacts(structure=Structure.MOVES))

# -- the same value ----------------------------------------------------------------------------------

for _class in (ViewOp, DeepCopyOp, DisconnectedGrad, ZeroGrad):
    register(
        _class,
        OpFacts(
            errors=_no_errors, axes=leading_axes(0), behind=lambda node, n: node.op, zero=in_first
        ),
    )
register(CheckAndRaise, OpFacts(axes=leading_axes(0), zero=in_first))


def entries_of(shape: Variable) -> list[Any] | None:
    """The scalars from which the vector ``shape`` is made; None if they are not known."""
    if isinstance(shape, Constant):
        return [pt.constant(int(k), dtype="int64") for k in shape.data]
    is_made = shape.owner is not None and isinstance(shape.owner.op, MakeVector)
    return list(shape.owner.inputs) if is_made else None


def requested_size(op: Op, operands: Sequence[Any]) -> float | None:
    """The number of entries of a new array whose lengths are ``operands``; None for any other op."""
    match op:
        case Alloc():
            return float(np.prod([float(n) for n in operands[1:]]))
        case Eye():
            return float(operands[0]) * float(operands[1])
        case ARange():
            start, stop, step = map(float, operands)
            return (stop - start) / step if step else 0.0
    return None
