"""Records of ops that move, reduce or run along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax
from pytensor.tensor.special import LogSoftmax, Softmax

from loopax.facts.families import in_first, op_along_axes, reduction_op
from loopax.facts.record import Axes, Errors, Groups, OpFacts, Structure, Work, facts_of, register
from loopax.facts.scalars import is_float

# -- axes of inputs and outputs ----------------------------------------------------------------------


def axes_along_input(node: Apply, k: int) -> dict[int, int]:
    """Map axes of the output of ``node`` to the axes of input ``k`` along which they run.

    Axes along which the input is broadcast are excluded.

    >>> import pytensor.tensor as pt
    >>> axes_along_input(pt.dmatrix("x").sum(axis=0).owner, 0)
    {0: 1}
    """
    along = facts_of(node.op).axes(node)
    if along is None:
        return {}
    shape = getattr(node.inputs[k].type, "shape", ())
    return {n: axis for n, axis in enumerate(along[k]) if axis is not None and shape[axis] != 1}


# -- transposes --------------------------------------------------------------------------------------


def unshuffled(v: Variable) -> Any:
    """The variable beneath any number of dimshuffles of ``v``."""
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        v = v.owner.inputs[0]
    return v


def unshuffled_with_order(v: Any, order: Sequence[Any] | None = None) -> tuple[Any, list[Any]]:
    """Return `unshuffled` of ``v``, and the order that gives ``v.dimshuffle(order)``, or ``v``, from it."""
    order = list(range(v.type.ndim) if order is None else order)
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        order = [k if k == "x" else v.owner.op.new_order[k] for k in order]
        v = v.owner.inputs[0]
    return v, order


def shuffled(x: Any, order: Sequence[Any]) -> Any:
    """Build ``x.dimshuffle(order)``, directly from the variable that ``x`` was shuffled from."""
    x, order = unshuffled_with_order(x, order)
    same = order == list(range(x.type.ndim))
    return x if same else x.dimshuffle(*order)


def _order(node: Apply) -> Axes:
    op: Any = node.op
    return (tuple(None if k == "x" else k for k in op.new_order),)


def _behind(node: Apply, n: int) -> Any:
    op: Any = node.op
    order = list(op.new_order)
    if n < 0:
        if order[:-n] != list(range(-n)):
            return None
        order = [k if k == "x" else k + n for k in order[-n:]]
    else:
        order = [*range(n), *(k if k == "x" else k + n for k in order)]
    return lambda x: shuffled(x, order)


def _dropped(node: Apply) -> Errors:
    """The error of dropping an axis whose length is not known to be 1."""
    op: Any = node.op
    x: Any = node.inputs[0]
    gone = [k for k in range(op.input_ndim) if k not in op.new_order]
    return Errors.NONE if all(x.type.shape[k] == 1 for k in gone) else Errors.SHAPE


register(
    DimShuffle,
    OpFacts(
        structure=Structure.MOVES,
        work=Work.VIEW,
        errors=_dropped,
        axes=_order,
        behind=_behind,
        linear=in_first,
    ),
)

# -- reductions --------------------------------------------------------------------------------------


def raises_of_nothing(op: CAReduce) -> bool:
    """Whether an empty reduction is an error: extremes without ``initial`` (PyTensor 3.3)."""
    is_extreme = isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum)
    return is_extreme and not getattr(op, "initial", False)


def _of_nothing(node: Apply) -> Errors:
    x: Any = node.inputs[0]
    return Errors.LENGTH if raises_of_nothing(node.op) and not all(x.type.shape) else Errors.NONE


def _of_sum(node: Apply) -> Groups:
    op: Any = node.op
    is_sum = isinstance(op.scalar_op, ps.Add) and is_float(node.outputs[0])
    return in_first(node) if is_sum else ()


def _axis(node: Apply) -> Any:
    return node.op.axis


def _may_be_empty(node: Apply) -> Errors:
    x: Any = node.inputs[0]
    return Errors.NONE if all(x.type.shape) else Errors.LENGTH


register(CAReduce, reduction_op(_axis, lambda op, axes: op.clone(axis=axes), _of_nothing, _of_sum))
register(Argmax, reduction_op(_axis, lambda op, axes: Argmax(axis=axes), _may_be_empty))

# -- along axes --------------------------------------------------------------------------------------


def _one(make: Callable[..., Any]) -> Any:
    """Adapt ``make(op, axis)`` to a list of axes, for ops that take a single axis, or all."""
    return lambda op, axes: make(op, axes[0]) if len(axes) == 1 else None


register(Softmax, op_along_axes(_axis, _one(lambda op, axis: type(op)(axis=axis))))
register(LogSoftmax, op_along_axes(_axis, _one(lambda op, axis: type(op)(axis=axis))))
register(
    CumOp,
    op_along_axes(
        _axis,
        _one(lambda op, axis: CumOp(axis=axis, mode=op.mode)),
        linear=lambda node: (
            in_first(node) if node.op.mode == "add" and is_float(node.outputs[0]) else ()
        ),
    ),
)
