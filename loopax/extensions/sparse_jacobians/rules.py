"""Rules for the structure of outputs of PyTensor's ops.

An op that only moves elements runs on their numbers, which show where the elements go. For an unknown
op each element of the outputs depends on all elements of the inputs, in the same row of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import prod
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.extensions.sparse_jacobians.known import (
    Known,
    Lengths,
    gathered,
    linked,
    masked,
    rows_at,
    stacked,
    union,
)
from loopax.facts.elementwise import function_of, is_elementwise
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.evaluation.evaluate import evaluate

_MOVERS = (
    Alloc,
    DeepCopyOp,
    DimShuffle,
    ExtractDiag,
    Join,
    MakeVector,
    Repeat,
    Reshape,
    ScalarFromTensor,
    SpecifyShape,
    Split,
    Subtensor,
    TensorFromScalar,
    AdvancedSubtensor,
    AdvancedSubtensor1,
)
_WRITERS = (IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)
_EXACT = 2**24  # the largest range of integers that float32 represents


def known_outputs(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Infer the structure of the outputs of ``node``, which has no body, from its operands."""
    op: Any = node.op
    if isinstance(op, Blockwise) and not op.batch_ndim(node):  # a matrix product, for instance
        node = op.core_op.make_node(*node.inputs)
        op = node.op
    if isinstance(op, Shape | Shape_i):
        return _shape_of_shape(node, operands)
    if not any(k.deps is not None for k in operands):
        return [Known(shape) for shape in _shapes(node, operands)]
    if function_of(op) is not None:
        return _elementwise(node, operands)
    if isinstance(op, ViewOp | CheckAndRaise):  # a subclass of ViewOp stops derivatives
        cut = isinstance(op, ViewOp) and type(op) is not ViewOp
        return [Known(operands[0].shape, None, None if cut else operands[0].deps)]
    if isinstance(op, CAReduce):
        return _reduced(node, operands)
    if isinstance(op, Dot):
        return _product(node, operands)
    if isinstance(op, CumOp | Softmax | LogSoftmax):
        return _along_axis(node, operands)
    if isinstance(op, _MOVERS):
        return _moved(node, operands)
    if isinstance(op, _WRITERS):
        return _written(node, operands)
    return _all_of_all(node, operands)


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
    shape = _broadcast(node, operands) if is_elementwise(node) else ()
    if not any(is_float(v) or isinstance(v.type, ps.ScalarType) for v in node.outputs):
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
    return [Known(shape, None, deps if _has_slope(v) else None) for v in node.outputs]


def _has_slope(v: Any) -> bool:
    return str(getattr(v.type, "dtype", "")).startswith(("float", "complex"))


def _passes(scalar_op: Any, k: int) -> bool:
    """Whether a derivative passes through input ``k``, which is no condition and no shape."""
    if isinstance(scalar_op, ps.Second | ps.Switch):
        return k > 0
    return True


def _mask(scalar_op: Any, k: int, operands: Sequence[Known], full: tuple[int, ...]) -> Any:
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


def _broadcast(node: Apply, operands: Sequence[Known]) -> Lengths:
    lengths: list[int | None] = []
    for axis, static in enumerate(node.outputs[0].type.shape):
        length = static
        for v, x in zip(node.inputs, operands, strict=True):
            if length is None and v.type.shape[axis] != 1 and x.shape[axis] is not None:
                length = x.shape[axis]
        lengths.append(length)
    return tuple(lengths)


# -- along axes --------------------------------------------------------------------------------------


def _reduced(node: Apply, operands: Sequence[Known]) -> list[Known]:
    op: Any = node.op
    full = operands[0].full_shape
    axes = range(len(full)) if op.axis is None else op.axis
    remaining = tuple(n for axis, n in enumerate(full) if axis not in axes)
    if not _has_slope(node.outputs[0]):
        return [Known(remaining)]
    groups = np.arange(prod(remaining)).reshape([1 if k in axes else n for k, n in enumerate(full)])
    ids = np.broadcast_to(groups, full)
    return [Known(remaining, None, gathered(operands[0].deps, ids, prod(remaining)))]


def _along_axis(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Dependence of each element on all along its axis; in a cumulative sum on those up to it."""
    op: Any = node.op
    full = operands[0].full_shape
    ids = np.arange(prod(full)).reshape(full if op.axis is not None else -1)
    n = ids.shape[-1 if op.axis is None else op.axis]
    lines = np.moveaxis(ids, -1 if op.axis is None else op.axis, -1).reshape(-1, n)
    target, source = (
        np.tril_indices(n) if isinstance(op, CumOp) else np.indices((n, n)).reshape(2, -1)
    )
    rows, columns = lines[:, target].ravel(), lines[:, source].ravel()
    deps = linked(rows, columns, (prod(full), prod(full)), operands[0].deps)
    return [Known(full if op.axis is not None or not isinstance(op, CumOp) else (n,), None, deps)]


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


# -- elements moved ----------------------------------------------------------------------------------


def _moved(node: Apply, operands: Sequence[Known]) -> list[Known]:
    numbered, deps = _numbered(node, operands)
    if numbered is None:
        return _all_of_all(node, operands)
    moved = []
    for v, ids in zip(node.outputs, _performed(node, numbered), strict=True):
        ids = np.asarray(ids).astype("int64")
        moved.append(Known(ids.shape, None, rows_at(deps, ids - 1) if _has_slope(v) else None))
    return moved


def _numbered(node: Apply, operands: Sequence[Known]) -> tuple[Any, Any]:
    """The inputs with numbers from 1 on for elements with dependences, 0 for others; and all
    dependences.

    None where an unknown value decides where the elements go.
    """
    values, parts, n = [], [], 1
    for v, x in zip(node.inputs, operands, strict=True):
        if x.deps is not None:
            values.append(np.arange(n, n + x.size).reshape(x.full_shape))
            parts.append(x.deps)
            n += x.size
        elif _has_slope(v):
            values.append(np.zeros(x.full_shape, dtype="int64"))
        elif x.value is None:
            return None, None
        else:
            values.append(x.value)
    return (values, stacked(parts)) if n <= _EXACT else (None, None)


def _written(node: Apply, operands: Sequence[Known]) -> list[Known]:
    numbered, deps = _numbered(node, operands)
    if numbered is None:
        return _all_of_all(node, operands)
    op: Any = node.op
    if isinstance(op, IncSubtensor):  # writes each element once
        setting_op = copy(op)
        setting_op.set_instead_of_inc = True
        (ids,) = _performed(node, numbered, setting_op)
        parts = [rows_at(deps, ids.astype("int64") - 1)]
        if not op.set_instead_of_inc:
            parts.append(rows_at(deps, numbered[0] - 1))
        return [Known(ids.shape, None, union(parts))]
    for k in range(2):  # tuples, which addition concatenates
        ids, numbered[k] = numbered[k], np.empty(numbered[k].shape, dtype=object)
        numbered[k][...] = np.frompyfunc(lambda i: (i,) if i else (), 1, 1)(ids)
    (written,) = _performed(node, numbered)
    links = [(row, i - 1) for row, ids in enumerate(written.ravel()) for i in ids]
    rows, columns = np.asarray(links, dtype="int64").reshape(-1, 2).T
    return [Known(written.shape, None, linked(rows, columns, (written.size, deps.shape[0]), deps))]


def _performed(node: Apply, values: Sequence[Any], like: Any = None) -> list[Any]:
    op: Any = like or node.op
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    op.perform(node, list(values), storage)
    return [cell[0] for cell in storage]


# -- unknown ops ----------------------------------------------------------------------------------


def _all_of_all(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Dependence of each element on all elements of the inputs, in its own row of a batch."""
    op: Any = node.op
    n_batch = op.batch_ndim(node) if isinstance(op, Blockwise) else 0
    shapes = _shapes(node, operands)
    outs = []
    for v, shape in zip(node.outputs, shapes, strict=True):
        if not _has_slope(v):
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


def _shapes(node: Apply, operands: Sequence[Known]) -> list[Lengths]:
    """The shapes of the outputs, with None for an unknown length."""
    static = [tuple(getattr(v.type, "shape", ())) for v in node.outputs]
    if not any(n is None for shape in static for n in shape):
        return static
    if is_elementwise(node):
        return [_broadcast(node, operands)] * len(node.outputs)
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


def _value(length: Any) -> int | None:
    """The value of a symbolic length; None where it depends on an unknown value."""
    try:
        (n,) = evaluate(FunctionGraph([], [length], clone=True))
    except Exception:  # it needs the value of an input
        return None
    return int(n)
