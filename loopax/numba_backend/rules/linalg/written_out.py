"""Unrolled linear algebra of very small matrices: each element is a local, without calls.

The matrices are arrays of expressions (see `Small`). The algorithms are the ones of `runtime.linalg`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import TRUE, Expr, call, expr, joined, literal, tuple_of
from loopax.numba_backend.emit.statements import Assign
from loopax.numba_backend.emit.values import indices_of

EXCHANGED = 4  # order of the largest matrix with unrolled row exchanges
TRIANGULAR = 4  # order of the largest unrolled triangular matrix


def _locals(emit: Emitter, elements: np.ndarray) -> np.ndarray:
    """Copy elements to new locals, for assignment."""
    new = np.empty(elements.shape, dtype=object)
    for at in indices_of(elements.shape):
        new[at] = emit.temp(elements[at])
    return new


def _minus(start: Expr, products: Sequence[tuple[Expr, Expr]]) -> Expr:
    for a, b in products:
        start = start - a * b
    return start


def _exchange(emit: Emitter, a: Sequence[Expr], b: Sequence[Expr]) -> None:
    emit.add(Assign((*a, *b), tuple_of([*b, *a])))


def _all(conditions: Sequence[Expr]) -> Expr:
    return joined(conditions, " and ") if conditions else TRUE


def lu_factor(
    emit: Emitter, a: np.ndarray, takes_singular: bool = False
) -> tuple[np.ndarray, list[Expr]]:
    """The factors, and the row with which each row is exchanged.

    Where a pivot is zero its column is, too: the factors are nan, or with ``takes_singular`` zero there.
    """
    n, a = len(a), _locals(emit, a)
    pivots = [emit.temp(k, "p") for k in range(n)]
    for k in range(n - 1):
        best = emit.temp(call("abs", a[k, k]))
        for i in range(k + 1, n):
            size = call("abs", a[i, k])
            with emit.when(expr("{} > {}", size, best)):
                emit.add(Assign((best, pivots[k]), tuple_of([size, i])))
        for i in range(k + 1, n):
            with emit.when(expr("{} == {}", pivots[k], i)):
                _exchange(emit, a[k], a[i])
        for i in range(k + 1, n):
            quotient = expr("{} / {}", a[i, k], a[k, k])
            if takes_singular:
                quotient = expr("{1} if {0} == 0 else {2}", a[k, k], a[i, k], quotient)
            emit.set(a[i, k], quotient)
            for j in range(k + 1, n):
                emit.set(a[i, j], a[i, j] - a[i, k] * a[k, j])
    return a, pivots


def exchanged(emit: Emitter, b: np.ndarray, pivots: Sequence[Expr]) -> np.ndarray:
    """The rows of ``b`` after the exchanges of `lu_factor`."""
    b = _locals(emit, b)
    for k, p in enumerate(pivots[:-1]):
        for i in range(k + 1, len(pivots)):
            with emit.when(expr("{} == {}", p, i)):
                _exchange(emit, b[k].ravel(), b[i].ravel())
    return b


def triangular_solve(
    emit: Emitter, a: np.ndarray, b: np.ndarray, lower: bool, unit: bool
) -> np.ndarray:
    """The solution of a triangular system for each column of ``b``."""
    n = len(a)
    x = np.empty(b.shape, dtype=object)
    for i in range(n) if lower else reversed(range(n)):
        solved = range(i) if lower else range(i + 1, n)
        for j in range(b.shape[1]):
            top = _minus(b[i, j], [(a[i, k], x[k, j]) for k in solved])
            x[i, j] = emit.temp(top if unit else expr("{} / {}", top, a[i, i]))
    return x


def cholesky(emit: Emitter, a: np.ndarray, dtype: str) -> tuple[np.ndarray, Expr]:
    """The lower factor, from the lower triangle, and whether ``a`` is positive definite."""
    n = len(a)
    factor = np.full((n, n), literal(0, dtype), dtype=object)
    squares = []
    for j in range(n):
        squares.append(emit.temp(_minus(a[j, j], [(factor[j, k],) * 2 for k in range(j)])))
        factor[j, j] = emit.temp(call("np.sqrt", squares[-1]))
        for i in range(j + 1, n):
            top = _minus(a[i, j], [(factor[i, k], factor[j, k]) for k in range(j)])
            factor[i, j] = emit.temp(expr("{} / {}", top, factor[j, j]))
    return factor, emit.temp(_all([_is_pivot(s) for s in squares]), "definite")


def nan_unless(emit: Emitter, good: Expr, x: np.ndarray, dtype: str) -> np.ndarray:
    """Copy ``x`` to new locals, which are nan where ``good`` is false."""
    if good == TRUE or not x.size:
        return x
    x = _locals(emit, x)
    with emit.when(expr("not {}", good)):
        for name in x.flat:
            emit.set(name, literal(np.nan, dtype))
    return x


def nonzero_diagonal(a: np.ndarray) -> Expr:
    return _all([expr("{} != 0", x) for x in a.diagonal()])


def regular(factors: np.ndarray) -> Expr:
    """Whether no pivot is zero, and the matrix is finite: see `runtime.linalg.is_regular`."""
    return _all([_is_pivot(call("abs", x)) for x in factors.diagonal()])


def finite(a: np.ndarray) -> Expr:
    """Whether all elements are finite."""
    return _all([expr("{} < np.inf", call("abs", x)) for x in a.flat])


def _is_pivot(size: Expr) -> Expr:
    return expr("0 < {} < np.inf", size)
