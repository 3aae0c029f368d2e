"""Linear algebra on matrices in memory, as loops: for small and medium sizes, fast to compile.

Every matrix is in C order and is overwritten; the inner loops run along rows. A function reports
failure as LAPACK does, and PyTensor with it: a zero pivot, or one that is not positive in Cholesky's
method.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loopax.base.compiling.pipeline import njit_inner
from loopax.numba_backend.runtime.instructions import hidden

_compiled = njit_inner(error_model="numpy")  # a division by zero does not raise


@_compiled
def all_finite(a: np.ndarray) -> bool:
    for x in a.flat:
        if not np.isfinite(x):
            return False
    return True


@_compiled
def finite_or_identity(a: np.ndarray, finite: bool) -> Any:
    """Return ``a`` if ``finite``, else half an identity, with which every factorization succeeds."""
    if finite:
        return a
    b = a.copy()
    elements = b.reshape(-1)
    elements[:] = 0
    if b.ndim == 2:
        for k in range(min(b.shape[0], b.shape[-1])):
            elements[k * (b.shape[-1] + 1)] = 0.5
    return b


@_compiled
def mirrored(a: np.ndarray, lower: bool, hermitian: bool) -> np.ndarray:
    """The symmetric or Hermitian matrix with the given triangle of ``a``."""
    b = a.copy()
    for i in range(a.shape[0]):
        for j in range(i):
            to, source = ((j, i), (i, j)) if lower else ((i, j), (j, i))
            b[to] = np.conj(a[source]) if hermitian else a[source]
    return b


@_compiled
def nonempty(a: np.ndarray) -> np.ndarray:
    """The matrix ``a``, or an identity with a row and a column at least if it is empty."""
    if a.size > 0:
        return a
    return np.eye(max(a.shape[0], 1), max(a.shape[1], 1)).astype(a.dtype)


@_compiled
def factor_of_empty(factor: np.ndarray, a: np.ndarray, *lengths: int) -> np.ndarray:
    """A ``factor`` of ``a``; if ``a`` is empty, an identity, or a permutation without exchanges."""
    if a.size > 0:
        return factor
    if factor.ndim == 1:
        return np.arange(lengths[0]).astype(factor.dtype)
    return np.eye(lengths[0], lengths[-1]).astype(factor.dtype)


@_compiled
def no_numbers_unless(finite: bool, a: np.ndarray) -> None:
    """Fill ``a`` with nan, unless the inputs of its computation are ``finite``."""
    if not finite:
        a[...] = np.nan


@_compiled
def square(n: int, m: int) -> None:
    if n != m:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")


@_compiled
def lu_factor(a: np.ndarray, pivots: np.ndarray) -> bool:
    """Factor ``a`` with exchanges of row ``k`` and ``pivots[k]``; whether all pivots are nonzero."""
    n = hidden(a.shape[0])
    regular = True
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[p, k]):
                p = i
        pivots[k] = p
        if a[p, k] == 0:
            regular = False
            continue
        if p != k:
            for j in range(n):
                a[k, j], a[p, j] = a[p, j], a[k, j]
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            a[i, k] = factor
            for j in range(k + 1, n):
                a[i, j] -= factor * a[k, j]
    return regular


@_compiled
def is_regular(factors: np.ndarray) -> bool:
    """Whether the matrix with these ``factors`` has a solution: no pivot is zero, and all are finite.

    Elimination carries an infinity or a nan into a pivot. An infinity is the pivot of its column, or
    makes its column infinite or nan in all later rows, the pivot row of that column among them; a nan
    makes its row nan.
    """
    for k in range(hidden(factors.shape[0])):
        if not 0 < abs(factors[k, k]) < np.inf:
            return False
    return True


@_compiled
def triangular_solve(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> bool:
    """Solve in ``b``; returns whether all elements of the diagonal are nonzero."""
    n, m = hidden(b.shape[0]), hidden(b.shape[1])
    regular = True
    for step in range(n):
        i = step if lower else n - 1 - step
        first, last = (0, i) if lower else (i + 1, n)
        for k in range(first, last):
            factor = a[i, k]
            for j in range(m):
                b[i, j] -= factor * b[k, j]
        if not unit:
            if a[i, i] == 0:
                regular = False
            for j in range(m):
                b[i, j] /= a[i, i]
    return regular


@_compiled
def transposed_solve(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> bool:
    """Solve in ``b`` with the transpose of ``a``; returns whether its diagonal has no zero."""
    n, m = hidden(b.shape[0]), hidden(b.shape[1])
    regular = True
    for step in range(n):
        i = n - 1 - step if lower else step
        if not unit:
            if a[i, i] == 0:
                regular = False
            for j in range(m):
                b[i, j] /= a[i, i]
        first, last = (0, i) if lower else (i + 1, n)
        for k in range(first, last):
            factor = a[i, k]
            for j in range(m):
                b[k, j] -= factor * b[i, j]
    return regular


@_compiled
def cholesky(a: np.ndarray, lower: bool) -> bool:
    """Factor ``a`` from one triangle; returns whether it is positive definite."""
    n = hidden(a.shape[0])
    if not lower:
        for i in range(n):
            for j in range(i):
                a[i, j] = a[j, i]
    for i in range(n):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            if i > j:
                a[i, j] = total / a[j, j]
            elif not 0 < total < np.inf:
                return False
            else:
                a[i, i] = np.sqrt(total)
    for i in range(n):
        for j in range(i):
            if not lower:
                a[j, i] = a[i, j]
                a[i, j] = 0
            else:
                a[j, i] = 0
    return True


@_compiled
def solve(w: np.ndarray, n: int) -> bool:
    """Solve in the last columns of ``w``, with the matrix of its first ``n`` columns.

    Gaussian elimination on both at once, with row exchanges; returns whether the matrix is regular.
    One nest of loops compiles in a fourth of the time of a factorization and two solves.
    """
    n, m = hidden(n), hidden(w.shape[1])
    regular = True
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(w[i, k]) > abs(w[p, k]):
                p = i
        if not 0 < abs(w[p, k]) < np.inf:
            regular = False
        for j in range(k, m):
            w[k, j], w[p, j] = w[p, j], w[k, j]
        for i in range(k + 1, n):
            factor = w[i, k] / w[k, k]
            for j in range(k + 1, m):
                w[i, j] -= factor * w[k, j]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            factor = w[i, k]
            for j in range(n, m):
                w[i, j] -= factor * w[k, j]
        for j in range(n, m):
            w[i, j] /= w[i, i]
    return regular


@_compiled
def inverse(w: np.ndarray, n: int) -> None:
    """Invert the first ``n`` columns of ``w`` into the last ``n``; raises if the matrix is singular."""
    n = hidden(n)
    is_finite = True
    for i in range(n):
        for j in range(n):
            is_finite &= abs(w[i, j]) < np.inf
            w[i, n + j] = i == j
    if not solve(w, n):
        if is_finite:
            raise np.linalg.LinAlgError("Singular matrix")
        w[...] = np.nan


@_compiled
def determinant(a: np.ndarray, pivots: np.ndarray) -> Any:
    """The determinant; 0 where a pivot is 0, nan where the matrix is not finite."""
    total = a.dtype.type(1.0)
    if not all_finite(a):
        return a.dtype.type(np.nan)
    if not lu_factor(a, pivots):
        return a.dtype.type(0.0)
    for k in range(hidden(a.shape[0])):
        total *= a[k, k] if pivots[k] == k else -a[k, k]
    return total


@_compiled
def log_determinant(a: np.ndarray, pivots: np.ndarray) -> Any:
    """The sign of the determinant, and the logarithm of its absolute value."""
    sign, total = a.dtype.type(1.0), a.dtype.type(0.0)
    if not lu_factor(a, pivots):
        return a.dtype.type(0.0), a.dtype.type(-np.inf)
    for k in range(hidden(a.shape[0])):
        if (a[k, k] < 0) != (pivots[k] != k):
            sign = -sign
        total += np.log(abs(a[k, k]))
    if (
        not total < np.inf
    ):  # an entry of the matrix is not finite, so a pivot is not: see `is_regular`
        return a.dtype.type(np.nan), a.dtype.type(np.nan)
    return sign, total


@_compiled
def mirror(a: np.ndarray, n: int, lower: bool) -> None:
    """Copy one triangle of the first ``n`` columns of ``a`` into the other."""
    for i in range(hidden(n)):
        for j in range(i):
            if lower:
                a[j, i] = a[i, j]
            else:
                a[i, j] = a[j, i]


@_compiled
def permutation(pivots: np.ndarray, order: np.ndarray) -> None:
    """The order of the rows after the exchanges ``pivots``."""
    n = hidden(order.shape[0])
    for k in range(n):
        order[k] = k
    for k in range(n):
        p = pivots[k]
        if p < 0:
            p += n
        if p < 0 or p >= n:
            raise IndexError("a pivot is out of bounds")
        order[k], order[p] = order[p], order[k]


@_compiled
def invert_order(order: np.ndarray, out: np.ndarray) -> None:
    for k in range(hidden(order.shape[0])):
        out[order[k]] = k


FUNCTIONS = {
    f.__name__: f
    for f in (
        all_finite,
        finite_or_identity,
        mirrored,
        nonempty,
        factor_of_empty,
        no_numbers_unless,
        square,
        lu_factor,
        is_regular,
        triangular_solve,
        transposed_solve,
        cholesky,
        determinant,
        log_determinant,
        solve,
        inverse,
        mirror,
        permutation,
        invert_order,
    )
}
