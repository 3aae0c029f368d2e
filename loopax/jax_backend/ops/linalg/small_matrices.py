"""Linear algebra on matrices of up to three rows, unrolled element by element, without calls.

For such matrices the call of LAPACK takes longer than its computation, and XLA does not compile a loop with
a call in its step as one function. A loop of 200 steps with a 3 x 3 inverse took 177 us and takes 18, its
gradient 330 and 58; a batch of 1000 inverses, 237 and 26. At four rows loops gain nothing and their
gradients lose.

The algorithm is LAPACK's, Gaussian elimination with row exchanges, so that values are as accurate. Of any
size, a system with a singular matrix has the solution nan, and so has one that is not finite; a matrix that
is not positive definite has a factor of nan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet

from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.leaf import convert_leaf, nan_unless
from loopax.jax_backend.staging.registry import rule
from loopax.numerics.arrays import Array

_LARGEST = 3  # rows
_COLUMNS = 4  # right sides that are written out one by one; with more, each row is one operation

Rows = list[list[Any]]  # elements of a matrix: arrays with the shape of the batch


def _small(
    function: Callable[..., Any], large: Callable[..., Any] = convert_leaf
) -> Callable[..., Any]:
    """Make a rule for small matrices of floats; others are left to ``large``, PyTensor's conversion.

    Integers are first cast to floats of the result's precision: JAX would cast 32-bit ones to float32.
    """

    def chosen(site: Site, *values: Array) -> Any:
        values = tuple(map(jnp.asarray, values))
        if not all(jnp.issubdtype(x.dtype, jnp.inexact) for x in values):
            values = tuple(x.astype(site.out.type.dtype) for x in values)
        a, *others = values
        n = a.shape[-1]
        square = a.ndim == 2 and a.shape[0] == n and 0 < n <= _LARGEST
        fits = all(b.ndim in (1, 2) and b.shape[0] == n and b.size for b in others)
        if square and fits and all(x.dtype in (jnp.float32, jnp.float64) for x in (a, *others)):
            dtype = jnp.result_type(a, *others)
            return function(site, *(x.astype(dtype) for x in (a, *others)))
        return large(site, *values)

    return chosen


def _large_cholesky(site: Site, a: jax.Array) -> jax.Array:
    """The factor, nan as a whole if there is none: JAX leaves zeros in the other triangle.

    Of a matrix that is not finite, an element of the diagonal is not: the square root of an infinity, or
    of infinity minus infinity.
    """
    c = jax.scipy.linalg.cholesky(a, lower=site.op.lower)
    return nan_unless(jnp.isfinite(jnp.diagonal(c)).all(), c)


@rule(Cholesky)
@partial(_small, large=_large_cholesky)
def cholesky(site: Site, a: jax.Array) -> jax.Array:
    return factor(a) if site.op.lower else factor(a.T).T


@rule(Solve)
def solve(site: Site, a: Array, b: Array) -> jax.Array:
    """Solve the system; JAX would read both triangles of a symmetric or Hermitian matrix."""
    a, kind = jnp.asarray(a), site.op.assume_a
    if kind in ("sym", "her"):
        a = mirrored(a, site.op.lower, hermitian=kind == "her")
    return _solve(site, a, b)


def _large_solve(site: Site, a: jax.Array, b: jax.Array) -> jax.Array:
    x = convert_leaf(site, a, b)
    # If a pivot is 0, a column of the solution has an infinity or a nan, though its right side is finite.
    is_singular = jnp.isfinite(b).all(0) & ~jnp.isfinite(x).all(0)
    return nan_unless(~is_singular.any(), x)


@partial(_small, large=_large_solve)
def _solve(site: Site, a: jax.Array, b: jax.Array) -> jax.Array:
    op = site.op
    if op.assume_a == "pos":
        return _with_columns(lambda a, b: _by_factor(factor(a if op.lower else a.T), b), a, b)
    if op.assume_a in ("gen", "sym", "her"):
        return _with_columns(solution, a, b)
    return convert_leaf(site, a, b)


def mirrored(a: jax.Array, lower: bool, hermitian: bool) -> jax.Array:
    """Complete one triangle of ``a`` to a symmetric or Hermitian matrix.

    The diagonal of a Hermitian matrix is real: LAPACK ignores the imaginary part of the diagonal of ``a``.
    """
    part, k = (jnp.tril, -1) if lower else (jnp.triu, 1)
    strict = part(a, k)
    other = strict.conj() if hermitian else strict
    diagonal = jnp.diagonal(a)
    diagonal = diagonal.real.astype(a.dtype) if hermitian else diagonal
    return strict + other.T + jnp.diag(diagonal)


@rule(SolveTriangular)
@_small
def solve_triangular(site: Site, a: jax.Array, b: jax.Array) -> jax.Array:
    op = site.op
    return _with_columns(lambda a, b: _substituted(a, b, op.lower, op.unit_diagonal), a, b)


@rule(CholeskySolve)
@_small
def cholesky_solve(site: Site, c: jax.Array, b: jax.Array) -> jax.Array:
    return _with_columns(lambda c, b: _by_factor(c if site.op.lower else c.T, b), c, b)


# -- general matrices --------------------------------------------------------------------------------


@jax.custom_jvp
def solution(a: jax.Array, b: jax.Array) -> jax.Array:
    """Solve ``a x = b`` by Gaussian elimination; nan if ``a`` is singular or not finite.

    Elimination carries an entry that is not finite into a pivot.
    """
    rows, rights, _ = _eliminated(_elements(a), _columns(b))
    sizes = [jnp.abs(row[k]) for k, row in enumerate(rows)]
    is_regular = reduce(jnp.logical_and, [(0 < x) & (x < np.inf) for x in sizes])
    x = _from_columns([_back_substituted(rows, right) for right in rights], b)
    return nan_unless(is_regular, x)


@solution.defjvp
def _solution_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> Any:
    (a, b), (da, db) = primals, tangents
    x = solution(a, b)
    return x, solution(a, db - da @ x)


@jax.custom_jvp
def inverse(a: jax.Array) -> jax.Array:
    return solution(a, jnp.eye(a.shape[0], dtype=a.dtype))


@inverse.defjvp
def _inverse_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> Any:
    x = inverse(*primals)
    return x, -(x @ tangents[0] @ x)


@jax.custom_jvp
def log_determinant(a: jax.Array) -> tuple[Any, Any]:
    """The sign of the determinant, and the logarithm of its absolute value."""
    rows, _, sign = _eliminated(_elements(a), [], skips=True)
    logarithm = jnp.zeros((), a.dtype)
    for k in range(len(rows)):
        sign, logarithm = sign * jnp.sign(rows[k][k]), logarithm + jnp.log(jnp.abs(rows[k][k]))
    return _log_of_finite(sign, logarithm)


@log_determinant.defjvp
def _log_determinant_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> Any:
    (a,), (da,) = primals, tangents
    sign, logarithm = log_determinant(a)
    return (sign, logarithm), (jnp.zeros_like(sign), (inverse(a).T * da).sum())


def _large_inverse(site: Site, a: jax.Array) -> jax.Array:
    x = convert_leaf(site, a)
    return nan_unless(jnp.isfinite(x).all(), x)


rule(MatrixInverse)(_small(lambda site, a: inverse(a), _large_inverse))
rule(SLogDet)(
    _small(
        lambda site, a: log_determinant(a),
        large=lambda site, a: _log_of_finite(*jnp.linalg.slogdet(a)),
    )
)


def _log_of_finite(sign: jax.Array, logarithm: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Replace a logarithm that is infinite or nan, because the matrix is not finite, by nan.

    That takes a tenth of the time of a test of the matrix.
    """
    is_finite = logarithm < np.inf
    return nan_unless(is_finite, sign), nan_unless(is_finite, logarithm)


@rule(Det)
def det(site: Site, a: Array) -> jax.Array:
    if jnp.shape(a)[-1] == 0:  # `jax.grad` of JAX's own raises there
        return jnp.ones(jnp.shape(a)[:-2], site.out.type.dtype)
    return _det(site, a)


@_small
def _det(site: Site, a: jax.Array) -> jax.Array:
    rows = _elements(a)
    return nan_unless(_is_finite(rows), determinant(rows))


def determinant(rows: Rows) -> Any:
    """The determinant by minors: a polynomial, with derivatives at singular matrices too."""
    if len(rows) == 1:
        return rows[0][0]
    total = 0
    for j, element in enumerate(rows[0]):
        minor = determinant([[*row[:j], *row[j + 1 :]] for row in rows[1:]])
        total = total + (-1) ** j * element * minor
    return total


def _eliminated(rows: Rows, rights: Rows, skips: bool = False) -> tuple[Rows, Rows, Any]:
    """The matrix in upper triangular form, the transformed right-hand sides, and the permutation's sign.

    Entries below the diagonal are left as they are. ``skips`` skips a column whose pivot is zero, so that
    later pivots are numbers.
    """
    n, sign = len(rows), jnp.ones((), rows[0][0].dtype)
    rows, rights = [list(row) for row in rows], [list(right) for right in rights]
    for k in range(n):
        for i in range(k + 1, n):
            larger = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            sign = jnp.where(larger, -sign, sign)
            for row, other, at in (
                *((rows[k], rows[i], (j, j)) for j in range(k, n)),
                *((right, right, (k, i)) for right in rights),
            ):
                here, there = row[at[0]], other[at[1]]
                choice = larger.reshape(larger.shape + (1,) * (here.ndim - larger.ndim))
                row[at[0]] = jnp.where(choice, there, here)
                other[at[1]] = jnp.where(choice, here, there)
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            if skips:
                factor = jnp.where(rows[k][k] == 0, 0, factor)
            for j in range(k + 1, n):
                rows[i][j] = rows[i][j] - factor * rows[k][j]
            for right in rights:
                right[i] = right[i] - factor * right[k]
    return rows, rights, sign


def _back_substituted(rows: Rows, right: list[Any], unit: bool = False) -> list[Any]:
    """Solve an upper triangular system by back substitution."""
    n = len(rows)
    x = list(right)
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            x[i] = x[i] - rows[i][k] * x[k]
        if not unit:
            x[i] = x[i] / rows[i][i]
    return x


# -- triangular and positive definite ones ------------------------------------------------------------


def factor(a: jax.Array) -> jax.Array:
    """The lower Cholesky factor of the lower triangle; nan if there is none."""
    rows, n = _elements(a), a.shape[0]
    factors: Rows = [[jnp.zeros((), a.dtype)] * n for _ in range(n)]
    bad = jnp.zeros((), a.dtype)
    for j in range(n):
        square = rows[j][j]
        for k in range(j):
            square = square - factors[j][k] * factors[j][k]
        # Added, not selected by `where`, so that the derivative is nan too.
        bad = nan_unless((0 < square) & (square < np.inf), bad)
        factors[j][j] = jnp.sqrt(square + bad)
        for i in range(j + 1, n):
            top = rows[i][j]
            for k in range(j):
                top = top - factors[i][k] * factors[j][k]
            factors[i][j] = top / factors[j][j]
    return jnp.stack([jnp.stack([x + bad for x in row]) for row in factors])


def _substituted(a: jax.Array, b: jax.Array, lower: bool, unit: bool = False) -> jax.Array:
    """Solve ``a x = b`` with a triangular ``a``."""
    rows, rights = _elements(a), _columns(b)
    if lower:  # reversing rows and columns makes it upper triangular
        rows = [row[::-1] for row in rows[::-1]]
        rights = [right[::-1] for right in rights]
    solutions = [_back_substituted(rows, right, unit) for right in rights]
    return _from_columns([x[::-1] for x in solutions] if lower else solutions, b)


def _by_factor(c: jax.Array, b: jax.Array) -> jax.Array:
    """Solve ``c c^T x = b`` with a lower triangular ``c``."""
    return _substituted(c.T, _substituted(c, b, lower=True), lower=False)


# -- elements ------------------------------------------------------------------------------------------


def _elements(a: jax.Array) -> Rows:
    n = a.shape[0]
    return [[a[i, j] for j in range(n)] for i in range(n)]


def _is_finite(rows: Rows) -> jax.Array:
    return reduce(jnp.logical_and, [jnp.isfinite(x) for row in rows for x in row])


def _with_columns(function: Callable[[Any, Any], Any], a: jax.Array, b: jax.Array) -> jax.Array:
    """Apply ``function`` to a matrix and columns of right-hand sides; a vector is one column."""
    return function(a, b) if b.ndim == 2 else function(a, b[:, None])[:, 0]


def _columns(b: jax.Array) -> Rows:
    """The right-hand sides, column by column; if there are many, one with rows as elements."""
    n, m = b.shape
    if m > _COLUMNS:
        return [[b[i] for i in range(n)]]
    return [[b[i, j] for i in range(n)] for j in range(m)]


def _from_columns(columns: Sequence[Sequence[Any]], b: jax.Array) -> jax.Array:
    if b.shape[1] > _COLUMNS:
        return jnp.stack(list(columns[0]))
    return jnp.stack([jnp.stack(list(x)) for x in columns], axis=1)
