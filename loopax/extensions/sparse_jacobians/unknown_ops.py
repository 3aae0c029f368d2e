"""The structure of an op without a rule: each element of its outputs depends on all of its inputs."""

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
from loopax.facts.elementwise import is_elementwise
from loopax.facts.scalars import is_float
from loopax.ir.evaluation.evaluate import evaluate


def broadcast_shape(node: Apply, operands: Sequence[Known]) -> Lengths:
    lengths: list[int | None] = []
    for axis, static in enumerate(node.outputs[0].type.shape):
        length = static
        for v, x in zip(node.inputs, operands, strict=True):
            if length is None and v.type.shape[axis] != 1 and x.shape[axis] is not None:
                length = x.shape[axis]
        lengths.append(length)
    return tuple(lengths)


def all_of_all(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Dependence of each element on all elements of the inputs, in its own row of a batch."""
    op: Any = node.op
    n_batch = op.batch_ndim(node) if isinstance(op, Blockwise) else 0
    shapes = shapes_of(node, operands)
    outs = []
    for v, shape in zip(node.outputs, shapes, strict=True):
        if not is_float(v):
            outs.append(Known(shape))
            continue
        full = Known(shape).full_shape
        batch = full[:n_batch]
        ids = np.arange(prod(batch)).reshape(batch)
        parts = []
        for x in operands:
            if x.deps is None:
                continue
            own = x.full_shape[:n_batch]
            groups = np.arange(prod(own)).reshape((*own, *[1] * (len(x.shape) - n_batch)))
            groups = np.broadcast_to(groups, x.full_shape)
            rows = gathered(x.deps, groups, prod(own))
            parts.append(rows_at(rows, np.broadcast_to(np.arange(prod(own)).reshape(own), batch)))
        element_rows = np.broadcast_to(ids.reshape((*batch, *[1] * (len(full) - n_batch))), full)
        outs.append(Known(shape, None, rows_at(union(parts), element_rows)))
    return outs


def shapes_of(node: Apply, operands: Sequence[Known]) -> list[Lengths]:
    """The shapes of the outputs, with None for an unknown length."""
    static = [tuple(getattr(v.type, "shape", ())) for v in node.outputs]
    if not any(n is None for shape in static for n in shape):
        return static
    if is_elementwise(node):
        return [broadcast_shape(node, operands)] * len(node.outputs)
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
