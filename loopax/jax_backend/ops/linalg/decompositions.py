"""Linear algebra that JAX lacks, or whose options PyTensor's conversion ignores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.tensor.linalg.decomposition.eigen import Eig, Eigh, Eigvalsh
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.decomposition.schur import Schur
from pytensor.tensor.linalg.inverse import MatrixPinv
from pytensor.tensor.linalg.solvers.linear_control import TRSYL

from loopax.ir.ops.lu_factor import LapackLUFactor
from loopax.jax_backend.ops.linalg.small_matrices import mirrored
from loopax.jax_backend.staging.callback import call_back
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.leaf import convert_leaf, nan_unless, with_finite_matrices
from loopax.jax_backend.staging.registry import rule
from loopax.numerics.arrays import Array


@rule(Eigh, Eigvalsh)
def symmetric_eigen(site: Site, a: Array, *b: Array) -> Any:
    """Eigenvalues from one triangle, as LAPACK reads it; JAX would take the mean of both."""
    a = mirrored(jnp.asarray(a), site.op.lower, hermitian=True)
    return convert_leaf(site, a, *b)


@rule(MatrixPinv)
def pseudo_inverse(site: Site, a: Array) -> Any:
    """The pseudo-inverse, which reads the lower triangle of a Hermitian matrix, as in NumPy."""
    a = jnp.asarray(a)
    return convert_leaf(site, mirrored(a, True, hermitian=True) if site.op.hermitian else a)


@rule(Eig)
def eig(site: Site, a: Array) -> Any:
    return _eig(*with_finite_matrices(site.node, [a]))


@jax.custom_jvp
def _eig(a: Array) -> Any:
    """JAX's eigendecomposition, which has no derivative of the vectors."""
    return tuple(jnp.linalg.eig(a))


@_eig.defjvp
def _eig_jvp(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> Any:
    values, vectors = result = _eig(*primals)
    moved = jnp.linalg.solve(vectors, tangents[0].astype(vectors.dtype) @ vectors)
    gaps = values[None, :] - values[:, None]
    same = jnp.eye(len(values), dtype=bool)
    change = vectors @ jnp.where(same, 0, moved / jnp.where(same, 1, gaps))
    # Normalized as in LAPACK: of length 1, with a real largest element.
    change = change - vectors * (vectors.conj() * change).sum(0).real
    largest = jnp.abs(vectors).argmax(0), jnp.arange(len(values))
    change = change - 1j * vectors * (change[largest] / vectors[largest]).imag
    return result, (jnp.diagonal(moved), change)


@rule(Schur)
def schur(site: Site, a: Array) -> Any:
    """The Schur form; with ``sort`` on the host, as JAX does not order eigenvalues."""
    a = jnp.asarray(a)
    return convert_leaf(site, a) if site.op.sort is None else call_back(site, (a,))


@rule(TRSYL)
def triangular_sylvester(site: Site, a: Array, b: Array, c: Array) -> Any:
    """Solve ``a x + x b = c`` as one linear system in the rows of ``x``, laid end to end.

    With row-major ``vec``, ``vec(a x) = (a (x) I) vec(x)`` and ``vec(x b) = (I (x) b^T) vec(x)``
    (Horn and Johnson, Topics in Matrix Analysis, 1991, section 4.3). It costs ``(m n)^3`` where
    LAPACK's recurrence costs ``m n (m + n)``: meant for the state spaces of control, some tens wide.
    """
    a, b, c = with_finite_matrices(site.node, [a, b, c])
    m, n = c.shape
    system = jnp.kron(a, jnp.eye(n, dtype=a.dtype)) + jnp.kron(jnp.eye(m, dtype=b.dtype), b.T)
    return jnp.linalg.solve(system, c.reshape(-1)).reshape(m, n)


@rule(LU)
def lu(site: Site, a: Array) -> Any:
    """The LU factors, with the row order as integers, which PyTensor's conversion refuses."""
    op, (a,) = site.op, with_finite_matrices(site.node, [a])
    if op.permute_l or not op.p_indices:
        return _of_finite(a, jax.scipy.linalg.lu(a, permute_l=op.permute_l))
    order, *factors = jax.scipy.linalg.lu(a)
    # a = (l @ u)[p]: row i of the permutation has its 1 in column p[i]
    rows = jnp.arange(a.shape[0], dtype=a.dtype)
    return (order.real @ rows).round().astype(jnp.int32), *_of_finite(a, factors)


def _of_finite(a: Array, factors: Sequence[Any]) -> tuple[jax.Array, ...]:
    """The ``factors`` of ``a``; if it is nan, they are too, in the triangle of zeros as well."""
    is_finite = ~jnp.isnan(a[:1, :1]).any()
    return tuple(nan_unless(is_finite, factor) for factor in factors)


@rule(LUFactor)
def lu_factor(site: Site, a: Array) -> Any:
    """The LU factors in one array, nan for a singular matrix, as PyTensor's."""
    factors, pivots = convert_leaf(site, a)
    if isinstance(site.op, LapackLUFactor):
        return factors, pivots
    return nan_unless((jnp.diagonal(factors) != 0).all(), factors), pivots


@rule(QR)
def qr(site: Site, a: Array) -> Any:
    """The QR factors, also with pivoting and in LAPACK's raw form, which PyTensor's conversion lacks."""
    op, (a,) = site.op, with_finite_matrices(site.node, [a])
    pivots = []
    # Factor twice: once to find the order of the columns, then with that order fixed. JAX 0.12's own
    # derivative with pivoting uses the old order of the columns for a wide matrix, and the raw form has no
    # derivative.
    if op.pivoting:
        pivots = [jax.scipy.linalg.qr(jax.lax.stop_gradient(a), mode="r", pivoting=True)[1]]
        a = a[:, pivots[0]]
    if op.mode != "raw":
        factors = jax.scipy.linalg.qr(a, mode=op.mode)
        return *_of_finite(a, factors if isinstance(factors, tuple) else [factors]), *pivots
    reflectors, tau = jnp.linalg.qr(a, mode="raw")  # as in NumPy, laid out by columns
    reflectors = reflectors.mT
    return *_of_finite(a, [reflectors, tau, jnp.triu(reflectors[: a.shape[1]])]), *pivots
