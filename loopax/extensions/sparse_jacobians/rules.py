"""Rules for the structure of outputs of PyTensor's ops.

An op that only moves elements is applied to their numbers, which shows where they go. Each rule here is
more precise than the axes of the op's record, from which `by_axes` infers the structure of all other ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.extensions.sparse_jacobians.axes import by_axes, of_axes, shapes_of
from loopax.extensions.sparse_jacobians.known import Known, linked, masked, rows_at, union
from loopax.extensions.sparse_jacobians.moves import moved_outputs, written_outputs
from loopax.facts.elementwise import function_of, is_elementwise
from loopax.facts.scalars import is_float
from loopax.ir.derivatives import inner_gradients

_MOVERS = (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    Repeat,
    Reshape,
    Split,
    Subtensor,
    AdvancedSubtensor,
    AdvancedSubtensor1,
)
_WRITERS = (IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)


def known_outputs(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Infer the structure of the outputs of ``node``, which has no body, from its operands."""
    op: Any = node.op
    if isinstance(op, Blockwise) and not op.batch_ndim(node):  # a matrix product, for instance
        node = op.core_op.make_node(*node.inputs)
        op = node.op
    if isinstance(op, Shape | Shape_i):
        return _shape_of_shape(node, operands)
    if not any(k.deps is not None for k in operands):
        return [Known(shape) for shape in shapes_of(node, operands)]
    if function_of(op) is not None:
        return _elementwise(node, operands)
    if isinstance(op, ViewOp) and type(op) is not ViewOp:  # a subclass stops derivatives
        return [Known(operands[0].shape)]
    if isinstance(op, Dot):
        return _product(node, operands)
    if isinstance(op, CumOp):
        return _cumulated(node, operands)
    if isinstance(op, _MOVERS):
        return moved_outputs(node, operands)
    if isinstance(op, _WRITERS):
        return written_outputs(node, operands)
    return by_axes(node, operands)


def _shape_of_shape(node: Apply, operands: Sequence[Known]) -> list[Known]:
    op: Any = node.op
    if isinstance(op, Shape_i):
        n = operands[0].shape[op.i]
        return [Known((), None if n is None else np.asarray(n, "int64"))]
    shape = operands[0].shape
    unknown = any(n is None for n in shape)
    return [Known((len(shape),), None if unknown else np.asarray(shape, "int64"))]


# -- element by element ------------------------------------------------------------------------------


def _elementwise(node: Apply, operands: Sequence[Known]) -> list[Known]:
    shape = of_axes(node, operands) if is_elementwise(node) else ()
    if not any(
        inner_gradients.is_float(v) or isinstance(v.type, ps.ScalarType) for v in node.outputs
    ):
        return [Known(shape) for _ in node.outputs]
    full = Known(shape).full_shape
    scalar_op: Any = getattr(node.op, "scalar_op", node.op)
    parts = []
    for k, x in enumerate(operands):
        if x.deps is None or not _passes(scalar_op, k):
            continue
        ids = np.broadcast_to(np.arange(x.size).reshape(x.full_shape), full)
        deps = rows_at(x.deps, ids)
        mask = _mask(scalar_op, k, operands, full)
        parts.append(deps if mask is None else masked(deps, mask))
    deps = union(parts)
    return [Known(shape, None, deps if is_float(v) else None) for v in node.outputs]


def _passes(scalar_op: ScalarOp, k: int) -> bool:
    """Whether a derivative passes through input ``k``, which is neither a condition nor a shape."""
    if isinstance(scalar_op, ps.Second | ps.Switch):
        return k > 0
    return True


def _mask(scalar_op: ScalarOp, k: int, operands: Sequence[Known], full: tuple[int, ...]) -> Any:
    """Flags of the entries that may depend on input ``k``; None where all may."""
    if isinstance(scalar_op, ps.Mul):
        zeros = [x.value for j, x in enumerate(operands) if j != k and x.value is not None]
        mask = np.ones(full, dtype=bool)
        for z in zeros:
            mask &= np.broadcast_to(np.asarray(z) != 0, full)
        return mask if zeros else None
    if isinstance(scalar_op, ps.Switch) and operands[0].value is not None:
        chosen = np.broadcast_to(np.asarray(operands[0].value) != 0, full)
        return chosen if k == 1 else ~chosen
    return None


# -- along axes --------------------------------------------------------------------------------------


def _cumulated(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Dependence of each element on the elements along its axis up to it."""
    op: Any = node.op
    full = operands[0].full_shape
    ids = np.arange(prod(full)).reshape(full if op.axis is not None else -1)
    n = ids.shape[op.axis or 0]
    lines = np.moveaxis(ids, op.axis or 0, -1).reshape(-1, n)
    target, source = np.tril_indices(n)
    rows, columns = lines[:, target].ravel(), lines[:, source].ravel()
    return [Known(ids.shape, None, linked(rows, columns, (ids.size, ids.size), operands[0].deps))]


def _product(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Dependence of ``out[i, j]`` on ``a[i, k]`` and ``b[k, j]`` where the other may be nonzero."""
    a, b = operands
    (m, n), (_, p) = _matrix(a.full_shape, first=True), _matrix(b.full_shape, first=False)
    parts = []
    for x, other, is_left in ((a, b, True), (b, a, False)):
        if x.deps is None:
            continue
        size = (n, p) if is_left else (m, n)
        value = other.value
        nonzero = np.ones(size, bool) if value is None else np.asarray(value).reshape(size) != 0
        r, s = np.nonzero(nonzero)
        if is_left:  # out[i, s] from a[i, r]
            i = np.repeat(np.arange(m), len(r))
            rows, columns = i * p + np.tile(s, m), i * n + np.tile(r, m)
        else:  # out[r, j] from b[s, j]
            j = np.repeat(np.arange(p), len(r))
            rows, columns = np.tile(r, p) * p + j, np.tile(s, p) * p + j
        parts.append(linked(rows, columns, (m * p, x.size), x.deps))
    shape = (*a.full_shape[:-1], *b.full_shape[1:])
    return [Known(shape, None, union(parts))]


def _matrix(shape: tuple[int, ...], first: bool) -> tuple[int, int]:
    if len(shape) == 2:
        return shape[0], shape[1]
    return (1, shape[0]) if first else (shape[0], 1)
