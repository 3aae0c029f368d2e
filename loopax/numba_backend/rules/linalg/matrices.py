"""Common parts of the rules of linear algebra: the choice of an algorithm by size.

Very small matrices are unrolled, larger ones go through the loops of `runtime.linalg` in place in a
copy, large ones through `runtime.large_matrices` or PyTensor's calls of LAPACK. Bad input gives the
results of PyTensor's Numba mode: nan from a solve or a factorization that fails, an error from the
inverse of a singular matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from loopax.numba_backend.emit.emitter import Emitter, Site
from loopax.numba_backend.emit.expressions import Dim, Expr, expr, literal
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.scalar_expressions import cast
from loopax.numba_backend.emit.tree_passes.outlining import outlined
from loopax.numba_backend.emit.values import Array, Small, Value, Virtual, as_tuple, small
from loopax.numba_backend.runtime.large_matrices import LARGEST_IN_LOOPS

_REAL = ("float32", "float64")


def square(emit: Emitter, a: Value) -> Dim:
    """The order of ``a``, checked to be square."""
    n, m = a.shape
    if isinstance(n, int) and isinstance(m, int):
        if n != m:
            emit.do("square", n, m)
        return min(n, m)
    if not emit.scopes.same(n, m):
        emit.equate("square", n, m)
    return n if isinstance(n, int) else m


def typed(emit: Emitter, a: Value, dtype: str) -> Value:
    """Convert ``a`` to the dtype of the result."""
    if a.dtype == dtype:
        return a
    source = emit.indexable(a)
    return Virtual(
        a.shape, dtype, lambda at: emit.temp(cast(emit.read(source, at), a.dtype, dtype))
    )


def target_in_c_order(site: Site, position: int, value: Value) -> Array:
    """The array in C order of an input to write into: itself where nothing else reads it, else a copy.

    LAPACK's results, which PyTensor's conversions return, are in Fortran's order.
    """
    array = site.target(position, value)
    return array if array.compact else site.emit.fresh(array)


def written_out(emit: Emitter, n: Dim, largest: int, *shapes: Sequence[Dim]) -> bool:
    return isinstance(n, int) and n <= largest and all(emit.is_small(s) for s in shapes)


def nan_unless(emit: Emitter, good: Expr, array: Array) -> None:
    with emit.when(expr("not {}", good)):
        emit.do("fill", array.name, literal(np.nan, array.dtype))


def room_for_pivots(emit: Emitter, n: Dim) -> Expr:
    return emit.empty([n], "int32", "pivots")


def by_size(function: Callable[..., Any]) -> Any:
    """Decorate a rule of float matrices: loops for small ones, LAPACK for large ones.

    LAPACK takes seconds to compile. For a matrix of unknown size it is called outside of loops over
    steps; inside of one the size decides at run time.
    """

    @of_any_size
    @wraps(function)
    def chosen(site: Site, *values: Value) -> Any:
        emit, n = site.emit, values[0].shape[0]
        if isinstance(n, int):
            return function(site, *values) if n <= LARGEST_IN_LOOPS else leaf(site, *values)
        if not emit.scopes.frames:
            return leaf(site, *values)
        operands = [emit.dense(v) for v in values]
        n = operands[0].shape[0]
        if_small, if_large = emit.branches(expr("{} <= {}", n, LARGEST_IN_LOOPS))
        with emit.inside(if_small):
            places = [_place(emit, v) for v in as_tuple(function(site, *operands))]
        with emit.inside(if_large):
            for place, v in zip(places, as_tuple(leaf(site, *operands)), strict=True):
                _place(emit, v, place)
        return tuple(places)

    return chosen


def of_any_size(function: Callable[..., Any]) -> Any:
    """Decorate a rule of float matrices; other dtypes go through PyTensor's conversions."""

    def chosen(site: Site, *values: Value) -> Any:
        n = values[0].shape[0]
        if any(v.type.dtype not in _REAL for v in site.node.outputs if v.type.dtype != "int32"):
            return leaf(site, *values)
        in_locals = [v for v in values if isinstance(v, Small)]
        if isinstance(n, int) and n > 1 and len(in_locals) == len(values):
            return outlined(site, function, function.__name__, *in_locals)
        return function(site, *values)

    return chosen


def by_size_of(n: Dim, function: str) -> str:
    """The name of a runtime function for matrices of order ``n``: with loops, or with blocks of rows."""
    return function if isinstance(n, int) and n <= LARGEST_IN_LOOPS else f"large_{function}"


def _place(emit: Emitter, value: Value, place: Any = None) -> Any:
    """Assign ``value`` to a new local, or to the local of ``place``."""
    if not value.shape:
        name = emit.local("y") if place is None else emit.scalar(place)
        emit.set(name, emit.scalar(value))
        return small(name, value.dtype)
    name = emit.local("a") if place is None else place.name
    emit.set(name, emit.fresh(value).name)
    emit.scopes.rooms.add(name)  # each step may reuse its memory
    return Array(name, value.shape, value.dtype, compact=True)
