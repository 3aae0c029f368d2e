"""Products of matrices and vectors, unrolled if they are small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor.tensor.math import Dot

from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, call, expr, literal
from loopax.numba_backend.emit.scalar_expressions import cast
from loopax.numba_backend.emit.schedule import ready, sum_of_products
from loopax.numba_backend.emit.statements import If, SizeTest
from loopax.numba_backend.emit.tree_passes.outlining import outlined
from loopax.numba_backend.emit.values import (
    Array,
    Small,
    Value,
    Virtual,
    indices_of,
    is_cheap,
    is_static,
    shared,
)
from loopax.numba_backend.runtime.products import (
    LARGEST_MATRIX,
    LARGEST_PRODUCT,
    LARGEST_UNROLLED_MATRIX,
    LARGEST_UNROLLED_PRODUCT,
)

_LARGEST = 8  # above this size BLAS is faster than an unrolled product


_OUTLINED = 8  # least multiplications of an outlined product


@rule(Dot)
def dot(site: Site, a: Value, b: Value) -> Any:
    emit = site.emit
    dtype = site.out.type.dtype
    shape = (*a.shape[:-1], *b.shape[1:])
    n = emit.agree(a.shape[-1], b.shape[0])
    if emit.is_small(shape) and isinstance(n, int) and n <= _LARGEST:
        x, y = emit.in_locals(a, (*a.shape[:-1], n)), emit.in_locals(b, (n, *b.shape[1:]))
        if n * prod(shape) >= _OUTLINED:
            return outlined(site, _written_out, "dot", x, y)
        return _written_out(site, x, y)
    if n == 1:
        return _outer(site, a, b, shape)
    floats = a.dtype == b.dtype == dtype and dtype in ("float32", "float64")
    if floats and len(a.shape) == len(b.shape) == 2 and 1 not in shape:
        return _matrix_by_matrix(emit, a, b, shape, dtype)
    vectors = [v for v, k in ((a, -2), (b, -1)) if len(v.shape) == 1 or v.shape[k] == 1]
    if floats and len(vectors) == 1:
        return _matrix_by_vector(site, a, b, shape, vectors[0] is b)
    if any(m != 1 for m in shape):  # each element is read more than once
        a, b = emit.dense(a), emit.dense(b)
    a, b = emit.indexable(a), emit.indexable(b)

    is_float = dtype in ("float32", "float64")

    def at(index: Sequence[int]) -> Expr:
        rows: list[Index] = list(index[: len(a.shape) - 1])
        columns: list[Index] = list(index[len(a.shape) - 1 :])
        total = emit.temp(literal(0, dtype), "sum")
        with emit.loops([n]) as indices:
            for (k,) in indices:
                p, q = _factor(emit, a, [*rows, k], dtype), _factor(emit, b, [k, *columns], dtype)
                if dtype == "bool":
                    new = expr("{} | ({} & {})", total, p, q)
                else:
                    new = call("plus", total, p * q) if is_float else (total + p * q).astype(dtype)
                emit.set(total, new)
        return total

    return site.result(Virtual(shape, dtype, at, cheap=False, is_gathered=True))


def _written_out(site: Site, a: Small, b: Small) -> Small:
    emit, dtype = site.emit, site.out.type.dtype
    x, y = _elements_in(dtype, a), _elements_in(dtype, b)
    elements = np.empty((*x.shape[:-1], *y.shape[1:]), dtype=object)
    for at in indices_of(elements.shape):
        in_column: tuple[slice | int, ...] = (slice(None), *at[x.ndim - 1 :])
        pairs = list(zip(x[at[: x.ndim - 1]], y[in_column], strict=True))
        elements[at] = _cast(
            emit, sum_of_products(emit, pairs) if pairs else literal(0, dtype), dtype
        )
        when = max((ready(emit, x) for pair in pairs for x in pair), default=-1)
        if when >= 0:
            emit.ready[elements[at]] = when + 4 + 4 * len(pairs).bit_length()
    return Small(elements, dtype)


def _elements_in(dtype: str, a: Small) -> np.ndarray:
    """The elements of a factor, in the dtype of the product if that is a float dtype."""
    if a.dtype == dtype or dtype not in ("float32", "float64"):
        return a.elements
    elements = np.empty_like(a.elements)
    for at in indices_of(elements.shape):
        elements[at] = cast(a.elements[at], a.dtype, dtype)
    return elements


def _factor(emit: Emitter, v: Value, index: Sequence[Index], dtype: str) -> Expr:
    """An element of a factor, in the dtype of the product."""
    return cast(emit.read(v, index), v.dtype, dtype)


def _outer(site: Site, a: Value, b: Value, shape: Sequence[Dim]) -> Any:
    """An outer product: a sum of one term."""
    emit, dtype = site.emit, site.out.type.dtype
    rows = len(a.shape) - 1
    a, b = map(emit.for_many_reads, (a, b))

    def at(index: Sequence[Index]) -> Expr:
        p = _factor(emit, a, [*index[:rows], 0], dtype)
        q = _factor(emit, b, [0, *index[rows:]], dtype)
        return _cast(emit, p * q, dtype)

    return site.result(Virtual(tuple(shape), dtype, at, cheap=False))


def _matrix_by_matrix(
    emit: Emitter, a: Value, b: Value, shape: tuple[Dim, ...], dtype: str
) -> Array:
    room = emit.empty(shape, dtype)
    x, y = emit.view(a), emit.view(b)
    operands = x.name, y.name, room, x.is_transposed, y.is_transposed
    sizes = shape[0], a.shape[1], shape[1]
    if _is_unrolled(sizes, LARGEST_UNROLLED_PRODUCT):
        emit.do("unrolled_matmul", *operands, *sizes)
    else:
        _by_size(
            emit,
            sizes,
            LARGEST_PRODUCT,
            lambda: emit.do("matmul", *operands),
            lambda: emit.do("matmul_by_blas", *operands),
        )
    return Array(room, shape, dtype, fresh=True, compact=True)


def _is_unrolled(sizes: Sequence[Dim], most: int) -> bool:
    """Whether all ``sizes`` are known, and a product has at most so many multiplications."""
    return is_static(sizes) and prod(sizes) <= most


def _by_size(
    emit: Emitter,
    lengths: Sequence[Dim],
    most: int,
    write_loops: Callable[[], None],
    call_blas: Callable[[], None],
) -> None:
    """Write loops for at most ``most`` multiplications, the product of ``lengths``, else a call of BLAS."""
    size = emit.product(lengths)
    if isinstance(size, int):
        (write_loops if size <= most else call_blas)()
        return
    test = If(expr("{} <= {}", size, most))
    emit.size_tests.append(SizeTest(test, tuple(map(emit.scopes.canonical, lengths)), most))
    if_small, if_large = emit.branches_of(test)
    with emit.inside(if_small):
        write_loops()
    with emit.inside(if_large):
        call_blas()


def _matrix_by_vector(site: Site, a: Value, b: Value, shape: Sequence[Dim], right: bool) -> Any:
    """Compute ``a @ b`` for a column ``b`` (``right``), or as ``b.T @ a`` for a row ``a``."""
    emit, dtype = site.emit, site.out.type.dtype
    matrix, vector = (a, b) if right else (_transposed(emit, b), a)
    if len(vector.shape) == 2:
        vector = _line(emit, vector, 0 if right else 1)
    m = matrix.shape[0]
    room = emit.empty([m], dtype)
    view, x = emit.view(matrix), emit.contiguous(vector)
    operands = view.name, x, room
    function = "transposed_matvec" if view.is_transposed else "matvec"
    if _is_unrolled(matrix.shape, LARGEST_UNROLLED_MATRIX):
        emit.do("unrolled_matvec", *operands, view.is_transposed, *matrix.shape)
    else:
        _by_size(
            emit,
            matrix.shape,
            LARGEST_MATRIX,
            lambda: emit.do(function, *operands),
            lambda: emit.do("matvec_by_blas", *operands, view.is_transposed),
        )
    line = Array(room, (m,), dtype, fresh=True, compact=True)
    if len(shape) == 1:
        return line
    line = shared(line)
    return Virtual(tuple(shape), dtype, lambda at: emit.read(line, [at[not right]]), flat=line)


def _line(emit: Emitter, v: Value, axis: int) -> Value:
    """Convert a matrix of one column or row to a vector along ``axis``."""
    v = emit.indexable(v)
    array = v.flat if isinstance(v, Virtual) else v
    if isinstance(array, Array) and len(array.shape) == 1:
        return array
    if isinstance(array, Array) and array.compact:
        name = emit.temp(call("in_line", array.name), "line")
        return Array(name, (v.shape[axis],), v.dtype, compact=True)
    return Virtual(
        (v.shape[axis],), v.dtype, lambda at: emit.read(v, [at[0], 0] if axis == 0 else [0, at[0]])
    )


def _transposed(emit: Emitter, v: Value) -> Value:
    if isinstance(v, Small):
        return Small(v.elements.T, v.dtype)
    view = emit.view_in_memory(v)
    return Virtual(
        v.shape[::-1],
        v.dtype,
        lambda at: emit.read(v, at[::-1]),
        is_cheap(v),
        view=None if view is None else view.T,
    )


def _cast(emit: Emitter, x: Expr, dtype: str) -> Expr:
    """A sum of products of factors in ``dtype``: Numba computes narrow integers in 64 bits."""
    return emit.temp(x if dtype in ("float64", "float32") else x.astype(dtype))
