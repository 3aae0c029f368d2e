"""Records of the common kinds of ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from loopax.facts.record import Axes, Errors, Groups, OpFacts, Structure, Work

# An axis, several, or None for all.
AxisOf = Callable[[Apply], Any]


def ndim_of(v: Any) -> int:
    return getattr(v.type, "ndim", 0)


def same_axes(node: Apply) -> Axes:
    """The axes of an op whose output axes run along the same axes of every input."""
    return (range(ndim_of(node.outputs[0])),) * len(node.inputs)


def leading_axes(*inputs: int) -> Callable[[Apply], Axes]:
    """The axes of an op that works row by row on the inputs at ``inputs``, and reads the others whole."""

    def axes(node: Apply) -> Axes:
        whole = (None,) * ndim_of(node.outputs[0])
        own = range(ndim_of(node.outputs[0]))
        return [own if k in inputs else whole for k in range(len(node.inputs))]

    return axes


def in_first(node: Apply) -> Groups:
    """The groups of an op that is linear in its first input."""
    return (frozenset({0}),)


def normalized(axis: Sequence[int] | int | None, ndim: int) -> tuple[int, ...]:
    """``axis`` as numbers from 0 on: an axis, several, or None for all of ``ndim``."""
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(k % ndim for k in axes)


def elementwise_op(
    errors: Callable[[Apply], Errors],
    linear: Callable[[Apply], Groups] = lambda node: (),
    **more: Any,
) -> OpFacts:
    """Facts of an op that computes each entry from one entry of every input, broadcast, of equal ranks.

    Parameters
    ----------
    errors, linear
        As in `OpFacts`.
    **more
        Other fields of `OpFacts`.
    """
    return OpFacts(
        structure=Structure.ELEMENTWISE,
        work=Work.ENTRY,
        errors=errors,
        axes=same_axes,
        behind=lambda node, n: node.op,
        linear=linear,
        **more,
    )


def reduction_op(
    axis_of: AxisOf,
    with_axes: Callable[[Any, tuple[int, ...]], Any],
    errors: Callable[[Apply], Errors],
    linear: Callable[[Apply], Groups] = lambda node: (),
) -> OpFacts:
    """Facts of an op of one input whose result lacks the reduced axes.

    Parameters
    ----------
    axis_of
        The axes of a node: a number, several, or None for all.
    with_axes
        Maps an op and other axes to the op along those.
    errors, linear
        As in `OpFacts`.
    """

    def reduced(node: Apply) -> tuple[int, ...]:
        return normalized(axis_of(node), ndim_of(node.inputs[0]))

    def axes(node: Apply) -> Axes:
        along = reduced(node)
        return (tuple(k for k in range(ndim_of(node.inputs[0])) if k not in along),)

    return OpFacts(
        structure=Structure.REDUCES,
        errors=errors,
        axes=axes,
        behind=lambda node, n: _shifted(node.op, reduced(node), n, with_axes),
        linear=linear,
    )


def op_along_axes(
    axis_of: AxisOf,
    with_axes: Callable[[Any, tuple[int, ...]], Any],
    structure: Structure = Structure.OTHER,
    errors: Callable[[Apply], Errors] = lambda node: Errors.NONE,
    linear: Callable[[Apply], Groups] = lambda node: (),
) -> OpFacts:
    """Facts of an op of one input that keeps its shape and works along some axes, such as a sort.

    The parameters are as in `reduction_op`.
    """

    def moved(node: Apply) -> tuple[int, ...]:
        return normalized(axis_of(node), ndim_of(node.inputs[0]))

    def axes(node: Apply) -> Axes | None:
        if ndim_of(node.outputs[0]) != ndim_of(node.inputs[0]):
            return None  # ``axis=None`` of NumPy's functions: they flatten the array
        along = moved(node)
        own = tuple(None if k in along else k for k in range(ndim_of(node.outputs[0])))
        return (own, *((None,) * len(own) for _ in node.inputs[1:]))

    return OpFacts(
        structure=structure,
        errors=errors,
        axes=axes,
        sizes=lambda node: None if axes(node) is None else leading_axes(0)(node),
        behind=lambda node, n: (
            _shifted(node.op, moved(node), n, with_axes)
            if ndim_of(node.outputs[0]) == ndim_of(node.inputs[0])
            else None
        ),
        linear=linear,
    )


def _shifted(
    op: Op, axes: Sequence[int], n: int, with_axes: Callable[[Any, tuple[int, ...]], Any]
) -> Any:
    return None if min(axes, default=0) + n < 0 else with_axes(op, tuple(k + n for k in axes))
