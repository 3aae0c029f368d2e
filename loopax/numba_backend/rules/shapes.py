"""Shapes, and ops that move elements without computing any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp, ViewOp
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape

from loopax.base.upstream.pytensor import joined_by
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import (
    Dim,
    Expr,
    Index,
    as_dim,
    as_element,
    call,
    expr,
    literal,
)
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import (
    Array,
    Opaque,
    Small,
    Value,
    Virtual,
    index_before,
    is_gathered,
    is_static,
    reindexed,
    shape_before,
    shared,
    small,
)


@rule(Shape)
def shape(site: Site, x: Value | Opaque) -> Any:
    if isinstance(x, Opaque):  # a sparse matrix, here and below
        return leaf(site, x)
    return small([as_element(n) for n in x.shape], "int64")


@rule(Shape_i)
def shape_i(site: Site, x: Value | Opaque) -> Any:
    if isinstance(x, Opaque):
        return leaf(site, x)
    return small(as_element(x.shape[site.op.i]), "int64")


@rule(ScalarFromTensor, TensorFromScalar)
def same_scalar(site: Site, x: Value) -> Any:
    return small(site.emit.scalar(x), x.dtype)


@rule(MakeVector)
def make_vector(site: Site, *xs: Value) -> Any:
    if any(x.dtype != site.op.dtype for x in xs):
        return leaf(site, *xs)
    return small([site.emit.scalar(x) for x in xs], site.op.dtype)


@rule(ViewOp, DeepCopyOp, TypeCastingOp)
def same(site: Site, x: Value) -> Any:
    # Another variable for the same memory, which is therefore shared.
    return shared(x)


@rule(SpecifyShape)
def specify_shape(site: Site, x: Value | Opaque, *dims: Value | None) -> Any:
    if isinstance(x, Opaque):
        return leaf(site, x, *dims)
    emit = site.emit
    lengths: list[Dim] = []
    for n, dim in zip(x.shape, dims, strict=True):
        specified = n if dim is None else as_dim(emit.scalar(dim))
        if isinstance(specified, int) and isinstance(n, int) and specified != n:
            emit.fail("AssertionError", "SpecifyShape: a length is not the one specified")
        elif not emit.scopes.same(specified, n):
            emit.equate("specified", n, specified)
        lengths.append(specified if isinstance(specified, int) else n)
    if isinstance(x, Small):
        return x
    if isinstance(x, Array):
        return site.returns(x, lengths)
    return site.result(reindexed(x, lengths, x.at))


@rule(CheckAndRaise)
def check_and_raise(site: Site, x: Value, *conditions: Value) -> Any:
    emit = site.emit
    for condition in conditions:
        error, holds = emit.bind(site.op.exc_type, "Error"), emit.scalar(condition)
        with emit.when(expr("not {}", holds)):
            emit.fail(error, site.op.msg)
        emit.are_equal(*emit.equal.get(holds, ()))
    return same(site, x)


# -- axes ------------------------------------------------------------------------------------------


@rule(DimShuffle)
def dimshuffle(site: Site, x: Value) -> Any:
    order = site.op.new_order
    dropped = [k for k in range(len(x.shape)) if k not in order]
    for k in dropped:
        if x.shape[k] != 1:
            site.emit.agree(1, x.shape[k])
    if isinstance(x, Small):
        elements = x.elements.reshape(
            [n for k, n in enumerate(x.elements.shape) if k not in dropped]
        )
        ranks = sorted(k for k in order if k != "x")
        moved = elements.transpose([ranks.index(k) for k in order if k != "x"])
        shape = iter(moved.shape)
        return Small(moved.reshape([1 if k == "x" else next(shape) for k in order]), x.dtype)

    kept_axes = [k for k in order if k != "x"]
    strided = kept_axes != sorted(kept_axes) and kept_axes[-1] != max(kept_axes)
    if strided:
        x = site.emit.for_scalar_code(x)
    is_transpose = tuple(order) == (1, 0) and len(x.shape) == 2
    base = site.emit.view_in_memory(x) if is_transpose else None

    def at(index: Sequence[Index]) -> Expr:
        where = dict(zip(order, index, strict=True))
        return site.emit.read(x, [where.get(k, 0) for k in range(len(x.shape))])

    shape = tuple(1 if k == "x" else x.shape[k] for k in order)
    view = None if base is None else base.T
    flat = x if isinstance(x, Array) else x.flat if isinstance(x, Virtual) else None
    run = site.emit.run_of(x)
    if kept_axes != sorted(kept_axes):
        flat = run = None
    if flat is not None and flat.shape == shape:
        return shared(flat)
    cost = x.cost if isinstance(x, Virtual) else None
    gathered = strided or is_gathered(x)
    return site.result(
        reindexed(x, shape, at, view=view, flat=flat, run=run, cost=cost, is_gathered=gathered)
    )


READS_ONCE[DimShuffle] = lambda node, position: True


# -- filled arrays ---------------------------------------------------------------------------------


def _dims(emit: Emitter, dims: Iterable[Value]) -> tuple[Dim, ...]:
    lengths = [as_dim(emit.scalar(n)) for n in dims]
    return tuple(map(emit.size, lengths))


@rule(Alloc)
def alloc(site: Site, x: Value, *dims: Value) -> Any:
    emit = site.emit
    shape = _dims(emit, dims)
    skipped = len(shape) - len(x.shape)
    stretched = site.node.inputs[0].type.broadcastable
    for n, m, is_stretched in zip(shape[skipped:], x.shape, stretched, strict=True):
        if not is_stretched:
            emit.agree(n, m)
    if emit.is_small(shape):
        own = shape_before(shape[skipped:], stretched)
        return Small(np.broadcast_to(emit.in_locals(x, own).elements, shape), x.dtype)
    x = emit.for_many_reads(x)

    def at(index: Sequence[Index]) -> Expr:
        return emit.read(x, index_before(index[skipped:], stretched))

    element = emit.scalar(x) if isinstance(x, Small) and x.elements.size == 1 else None
    return Virtual(shape, x.dtype, at, element=element)


@rule(AllocEmpty)
def alloc_empty(site: Site, *dims: Value) -> Any:
    dtype = site.op.dtype
    zero = literal(0, dtype)  # reads of uninitialised memory must agree from run to run
    return Virtual(_dims(site.emit, dims), dtype, lambda at: zero, empty=True)


# -- joining and splitting -------------------------------------------------------------------------


def static_axis(site: Site, inputs: Sequence[Any]) -> int | None:
    """The axis of a join, a split or a sort, from 0 on; None where only the program knows it.

    PyTensor 3.3 made it a property of the op; in 3.0 it is the first of ``inputs``.
    """
    axis = getattr(site.op, "axis", None)
    axis = as_dim(site.emit.scalar(inputs[0])) if axis is None else axis
    ndim = site.out.type.ndim
    return axis % ndim if ndim and isinstance(axis, int) else None


@rule(Join)
def join(site: Site, *inputs: Any) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    axis, values = static_axis(site, inputs), joined_by(site.op, inputs)
    if axis is None or any(v.dtype != dtype for v in values):
        return leaf(site, *inputs)
    if all(isinstance(v, Small) for v in values):
        whole = np.concatenate([v.elements for v in values], axis)
        if emit.is_small(whole.shape):
            return Small(whole, dtype)
    shape: list[Dim] = []
    for k in range(site.out.type.ndim):
        sizes = [v.shape[k] for v in values]
        shape.append(emit.agree(*sizes) if k != axis else emit.number(sum(sizes), "n"))
    # Each part is copied in turn: to select the part at each read costs more.
    name = emit.empty(shape, dtype)
    start: Dim = 0
    is_of_runs = axis == 0 and is_static(shape[1:])
    for v in values:
        first = emit.number(start * prod(shape[1:])) if is_of_runs else None
        if first is None or not emit.copied_run(v, name, first):
            with emit.loops(v.shape) as indices:
                for i in indices:
                    k = emit.number(start + i[axis])
                    emit.set(name[*i[:axis], k, *i[axis + 1 :]], emit.read(v, i))
        start = start + v.shape[axis]
        start = start if isinstance(start, int) else emit.number(call("hidden", start))
    return Array(name, tuple(shape), dtype, fresh=True, compact=True)


# Each part is computed at its place in the result.
READS_ONCE[Join] = lambda node, position: True


@rule(Split)
def split(site: Site, x: Value, *inputs: Any) -> Any:
    emit, sizes = site.emit, inputs[-1]
    axis, static_sizes = static_axis(site, inputs), emit.constant_data(sizes)
    if axis is None or not (isinstance(sizes, Small) or static_sizes is not None):
        return leaf(site, x, *inputs)
    lengths = [as_dim(e) for e in sizes.elements] if static_sizes is None else static_sizes.tolist()
    total = emit.number(sum(lengths))
    if not emit.scopes.same(total, x.shape[axis]):
        with emit.when(expr("{} != {}", total, x.shape[axis])):
            emit.fail("ValueError", "Split sizes do not sum to the length of the axis")
    x = x if isinstance(x, Small) and is_static(lengths) else emit.dense(x)
    parts, start = [], 0
    starts: list[Dim] = []
    for n in lengths:
        starts.append(start)
        start = emit.number(start + n)
    for first, n, v in zip(starts, lengths, site.node.outputs, strict=True):
        static = v.type.shape[axis]
        count = n if isinstance(n, int) else emit.number(call("size", n), "n", may_raise=True)
        parts.append(_part(emit, x, axis, first, count if static is None else static))
    return tuple(parts)


def _part(emit: Emitter, x: Value, axis: int, first: Dim, count: Dim) -> Value:
    if isinstance(x, Small):
        assert isinstance(first, int) and isinstance(count, int)
        index = (slice(None),) * axis + (slice(first, first + count),)
        return Small(x.elements[index], x.dtype)

    def at(index: Sequence[Index]) -> Expr:
        k = emit.number(first + index[axis])
        return emit.read(x, [*index[:axis], k, *index[axis + 1 :]])

    return Virtual((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype, at)
