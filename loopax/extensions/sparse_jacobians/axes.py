"""The structure of an op by its axes: an element depends on input elements at equal positions.

`facts_of(op).axes` maps axes of the first output to axes of the inputs. An unknown op has no such map, and
each element of its outputs depends on all elements of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise

from loopax.extensions.sparse_jacobians.known import Known, Lengths, gathered, rows_at, union
from loopax.facts import facts_of
from loopax.facts.scalars import is_float
from loopax.ir.evaluation.evaluate import evaluate


def by_axes(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Dependence of each element on the elements of the inputs at its positions on their mapped axes."""
    outs = []
    for k, (v, shape) in enumerate(zip(node.outputs, shapes_of(node, operands), strict=True)):
        deps = None
        if is_float(v):
            full = Known(shape).full_shape
            deps = union(
                [
                    _agreeing(x, axes, full)
                    for x, axes in zip(operands, _axes(node, k), strict=True)
                    if x.deps is not None
                ]
            )
        outs.append(Known(shape, None, deps))
    return outs


def _axes(node: Apply, k: int) -> Sequence[Sequence[int | None]]:
    """For each input and each axis of output ``k``, the axis of the input that it runs along, or None."""
    op: Any = node.op
    if k == 0 and (axes := facts_of(op).axes(node)) is not None:
        return axes
    n_batch = op.batch_ndim(node) if isinstance(op, Blockwise) else 0
    return [[*range(n_batch)]] * len(node.inputs)


def _agreeing(x: Known, axes: Sequence[int | None], shape: tuple[int, ...]) -> Any:
    """The dependences of an array of ``shape`` on the elements of ``x`` at equal positions on ``axes``."""
    mapped = [(own, axis) for axis, own in enumerate(axes) if own is not None]
    lengths = [x.full_shape[own] for own, _ in mapped]
    places = np.arange(prod(lengths)).reshape(lengths)  # in the order of the output's axes

    def numbered(full: tuple[int, ...], at: Sequence[int]) -> np.ndarray:
        """The position of each element of an array that has the mapped axes ``at``, in any order."""
        beside = [1] * len(full)
        for axis, n in zip(at, lengths, strict=True):
            beside[axis] = n
        return np.broadcast_to(places.transpose(np.argsort(at)).reshape(beside), full)

    groups = numbered(x.full_shape, [own for own, _ in mapped])
    return rows_at(
        gathered(x.deps, groups, places.size), numbered(shape, [axis for _, axis in mapped])
    )


def shapes_of(node: Apply, operands: Sequence[Known]) -> list[Lengths]:
    """The shapes of the outputs, with None for an unknown length."""
    static = [tuple(getattr(v.type, "shape", ())) for v in node.outputs]
    if not any(n is None for shape in static for n in shape):
        return static
    static[0] = of_axes(node, operands)
    if not any(n is None for shape in static for n in shape):
        return static
    try:
        inputs = [
            v.type() if x.value is None else v.type.constant_type(v.type, x.value)
            for v, x in zip(node.inputs, operands, strict=True)
        ]
        lengths = [_lengths(v, x) for v, x in zip(inputs, operands, strict=True)]
        inferred = infer_shape(node.op.make_node(*inputs).outputs, inputs, lengths)
        return [
            tuple(
                n if n is not None else _value(length)
                for n, length in zip(shape, symbolic, strict=True)
            )
            for shape, symbolic in zip(static, inferred, strict=True)
        ]
    except Exception:  # shape inference of an op may raise anything
        return static


def of_axes(node: Apply, operands: Sequence[Known]) -> Lengths:
    """The shape of the first output, from the axes that share its lengths; None for an unknown length."""
    facts = facts_of(node.op)
    axes = (facts.sizes or facts.axes)(node) or ()
    lengths: list[int | None] = [*getattr(node.outputs[0].type, "shape", ())]
    for v, x, own in zip(node.inputs, operands, axes, strict=False):
        for axis, k in enumerate(own):
            if lengths[axis] is None and k is not None and v.type.shape[k] != 1:
                lengths[axis] = x.shape[k]
    return tuple(lengths)


def _lengths(v: Any, x: Known) -> Any:
    """The lengths of ``v`` as variables; None for a type without axes."""
    if not hasattr(v.type, "ndim"):
        return None
    return tuple(
        v.shape[axis] if n is None else pt.constant(n, dtype="int64")
        for axis, n in enumerate(x.shape)
    )


def _value(length: Variable) -> int | None:
    """The value of a symbolic length; None where it depends on an unknown value."""
    try:
        (n,) = evaluate(FunctionGraph([], [length], clone=True))
    except Exception:  # it needs the value of an input
        return None
    return int(n)
