"""Arrays computed from indices: ranges, unit matrices, diagonals, repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.tensor.basic import ARange, ExtractDiag, Eye
from pytensor.tensor.extra_ops import FillDiagonal, FillDiagonalOffset, Repeat

from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_dim, as_element, call, expr
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.scalar_expressions import cast
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Small, Value, Virtual, is_cheap

_INTEGERS = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}


@rule(ARange)
def arange(site: Site, start: Value, stop: Value, step: Value) -> Any:
    emit = site.emit
    low, high, by = (emit.scalar(v) for v in (start, stop, step))
    dtype = site.op.dtype
    kinds = {v.dtype for v in (start, stop, step)}
    static = site.out.type.shape[0]
    if kinds <= _INTEGERS:
        first, end, stride = (
            n if isinstance(n, int) else n.astype("int64") for n in map(as_dim, (low, high, by))
        )
        n: Dim | None = static
        if n is None:  # a step may be zero
            may_raise = not isinstance(stride, int) or not stride
            n = emit.number(call("len", call("range", first, end, stride)), "n", may_raise)

        def at(index: Sequence[Index]) -> Expr:
            k = first + index[0] * stride
            if dtype == "int64":
                return as_element(emit.number(k))
            return emit.temp(as_element(k).astype(dtype))

        return Virtual((n,), dtype, at)
    if dtype != "float64" or not kinds <= _INTEGERS | {"float32", "float64"}:
        return leaf(site, start, stop, step)
    low, high, by = (
        emit.temp(cast(e, v.dtype, dtype))
        for e, v in zip((low, high, by), (start, stop, step), strict=True)
    )
    n = emit.temp(call("range_length", low, high, by), "n") if static is None else static
    # NumPy takes the distance of the first two elements, which differs from the step by rounding.
    distance = emit.temp(low + by - low)
    return Virtual((n,), dtype, lambda index: emit.temp(low + as_element(index[0]) * distance))


@rule(Eye)
def eye(site: Site, n: Value, m: Value, k: Value) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    declared = site.out.type.shape
    lengths = [as_dim(emit.scalar(v)) for v in (n, m)]
    dims = [emit.size(w) if d is None else d for w, d in zip(lengths, declared, strict=True)]
    shift = as_dim(emit.scalar(k))

    def at(index: Sequence[Index]) -> Expr:
        return emit.temp(cast(expr("{} == {}", index[0] + shift, index[1]), "bool", dtype))

    return Virtual(tuple(dims), dtype, at)


@rule(ExtractDiag)
def extract_diagonal(site: Site, x: Value) -> Any:
    emit, op = site.emit, site.op
    first, second = op.axis1, op.axis2
    if isinstance(x, Small):
        return Small(x.elements.diagonal(op.offset, first, second), x.dtype)
    down, right = max(-op.offset, 0), max(op.offset, 0)
    n, m = x.shape[first], x.shape[second]
    declared = site.out.type.shape[-1]
    if declared is None:
        if isinstance(n, int) and isinstance(m, int):
            declared = max(min(n - down, m - right), 0)
        elif emit.scopes.same(n, m) and op.offset == 0:
            declared = n
        else:
            declared = emit.number(call("max", call("min", n - down, m - right), 0), "n")
    batch_axes = [k for k in range(len(x.shape)) if k not in (first, second)]

    def at(index: Sequence[Index]) -> Expr:
        where: list[Index] = [0] * len(x.shape)
        for k, i in zip(batch_axes, index, strict=False):
            where[k] = i
        for axis, shift in ((first, down), (second, right)):
            where[axis] = emit.number(index[-1] + shift)
        return emit.read(x, where)

    shape = (*(x.shape[k] for k in batch_axes), declared)
    return site.result(Virtual(shape, x.dtype, at, is_cheap(x)))


READS_ONCE[ExtractDiag] = lambda node, position: True


@rule(FillDiagonal, FillDiagonalOffset)
def fill_diagonal(site: Site, x: Value, value: Value, *offset: Value) -> Any:
    if len(x.shape) > 2:
        return leaf(site, x, value, *offset)
    emit, filled = site.emit, site.emit.scalar(value)
    shift = as_dim(emit.scalar(offset[0])) if offset else 0
    x = x if emit.is_small(x.shape) else emit.indexable(x)

    def at(index: Sequence[Index]) -> Expr:
        on_it = expr("{} == {}", index[0] + shift, index[1])
        return emit.temp(expr("{} if {} else {}", filled, on_it, emit.read(x, index)))

    return site.result(Virtual(x.shape, x.dtype, at, cheap=False))


@rule(Repeat)
def repeat(site: Site, x: Value, counts: Value) -> Any:
    emit, axis = site.emit, site.op.axis
    x = emit.for_many_reads(x)
    places = emit.temp(call("repeated", emit.dense(counts).name, x.shape[axis]), "places")
    n = emit.temp(places.length(0), "n")
    declared = site.out.type.shape[axis]

    def at(index: Sequence[Index]) -> Expr:
        k = emit.number(places[index[axis]])
        return emit.read(x, [*index[:axis], k, *index[axis + 1 :]])

    shape = (*x.shape[:axis], n if declared is None else declared, *x.shape[axis + 1 :])
    return site.result(Virtual(shape, x.dtype, at, cheap=False))
