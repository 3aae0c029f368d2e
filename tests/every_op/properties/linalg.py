"""Keywords of linear algebra: SciPy's and NumPy's values, with other numbers where nothing is read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import scipy.linalg as sl
from pytensor.tensor import linalg
from pytensor.tensor.linalg.decomposition.lu import PivotToPermutations
from pytensor.tensor.linalg.decomposition.schur import QZ
from pytensor.tensor.linalg.inverse import MatrixPinv, TensorInv
from pytensor.tensor.linalg.solvers import tridiagonal
from pytensor.tensor.linalg.solvers.lstsq import TensorSolve

from tests.every_op.properties.record import Variation, numbers, variation

N = 3
A, B, V = numbers(N, N), numbers(N, 2, seed=1), numbers(N, seed=2)
DEFINITE = A @ A.T + N * np.eye(N)
# Its triangles belong to two positive definite matrices.
MIXED = np.tril(DEFINITE) + np.triu(DEFINITE * 0.5, 1)
COMPLEX = numbers(N, N, seed=3, kind="complex128")
HERMITIAN = COMPLEX @ COMPLEX.conj().T + N * np.eye(N)
BOTH = (True, False)


def symmetric(a: Any, lower: bool) -> Any:
    return np.tril(a) + np.tril(a, -1).T if lower else np.triu(a) + np.triu(a, 1).T


def hermitian(a: Any, lower: bool) -> Any:
    """Of one triangle, and other numbers in the other."""
    part, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    return part(a) + other(np.full_like(a, 9 - 2j), 1 if lower else -1)


def solve() -> Iterator[Variation]:
    for kind, lower, b in product(("gen", "sym", "her", "pos"), BOTH, (B, V)):
        a = MIXED if kind == "gen" else symmetric(MIXED, lower)
        yield variation(
            f"{kind} {lower} {b.ndim}",
            lambda x, y, k=kind, low=lower: linalg.solve(x, y, assume_a=k, lower=low),
            (MIXED, b),
            np.linalg.solve(a, b),
        )
    for kind, lower in product(("her", "pos"), BOTH):
        yield variation(
            f"complex {kind} {lower}",
            lambda x, y, k=kind, low=lower: linalg.solve(x, y, assume_a=k, lower=low),
            (hermitian(HERMITIAN, lower), B + 1j),
            np.linalg.solve(HERMITIAN, B + 1j),
        )
    for transposed, lower in product(BOTH, BOTH):
        yield variation(
            f"pos {lower} transposed {transposed}",
            lambda x, y, low=lower, t=transposed: linalg.solve(
                x, y, assume_a="pos", lower=low, transposed=t
            ),
            (MIXED, V),
            np.linalg.solve(symmetric(MIXED, lower), V),
        )


def structured() -> Iterator[Variation]:
    matrices = {
        "tridiagonal": np.triu(np.tril(A, 1), -1),
        "banded": A,
        "diagonal": np.diag(A.diagonal()),
        "upper triangular": np.triu(A),
        "lower triangular": np.tril(A),
    }
    for kind, transposed in product(matrices, BOTH):
        a = matrices[kind].T if transposed else matrices[kind]
        yield variation(
            f"{kind} {transposed}",
            lambda x, y, k=kind, t=transposed: linalg.solve(x, y, assume_a=k, transposed=t),
            (A, B),
            np.linalg.solve(a, B),
        )


def solve_triangular() -> Iterator[Variation]:
    for lower, unit, trans, b in product(BOTH, BOTH, (0, 1), (B, V)):
        a = np.tril(A) if lower else np.triu(A)
        if unit:
            a = a - np.diag(a.diagonal()) + np.eye(N)
        yield variation(
            f"{lower} {unit} {trans} {b.ndim}",
            lambda x, y, low=lower, u=unit, t=trans: linalg.solve_triangular(
                x, y, lower=low, unit_diagonal=u, trans=t
            ),
            (A, b),
            np.linalg.solve(a.T if trans else a, b),
        )
    for trans in (0, "T", "C"):
        a = {0: COMPLEX, "T": COMPLEX.T, "C": COMPLEX.conj().T}[trans]
        yield variation(
            f"complex {trans}",
            lambda x, y, t=trans: linalg.solve_triangular(x, y, lower=True, trans=t),
            (COMPLEX, B + 1j),
            np.linalg.solve(np.tril(a) if trans == 0 else np.triu(a), B + 1j),
        )


def cho_solve() -> Iterator[Variation]:
    for lower, b in product(BOTH, (B, V)):
        factor = np.linalg.cholesky(DEFINITE)
        factor = factor if lower else factor.T
        other = np.triu(A, 1) if lower else np.tril(A, -1)
        yield variation(
            f"{lower} {b.ndim}",
            lambda x, y, low=lower: linalg.cho_solve((x, low), y),
            (factor + other, b),
            np.linalg.solve(DEFINITE, b),
        )


def cholesky() -> Iterator[Variation]:
    for lower in BOTH:
        factor = np.linalg.cholesky(symmetric(MIXED, lower))
        yield variation(
            lower,
            lambda x, low=lower: linalg.cholesky(x, lower=low),
            (MIXED,),
            factor if lower else factor.T,
        )
        factor = np.linalg.cholesky(HERMITIAN)
        yield variation(
            f"complex {lower}",
            lambda x, low=lower: linalg.cholesky(x, lower=low),
            (hermitian(HERMITIAN, lower),),
            factor if lower else factor.conj().T,
        )


def eigh() -> Iterator[Variation]:
    for lower in BOTH:
        values, vectors = np.linalg.eigh(symmetric(MIXED, lower))
        yield variation(
            lower,
            lambda x, low=lower: [(w := linalg.eigh(x, lower=low))[0], abs(w[1])],
            (MIXED,),
            [values, abs(vectors)],
        )


def eigvalsh() -> Iterator[Variation]:
    for lower in BOTH:
        yield variation(
            lower,
            lambda x, low=lower: linalg.eigvalsh(x, None, lower=low),
            (MIXED,),
            np.linalg.eigvalsh(symmetric(MIXED, lower)),
        )
        yield variation(
            f"complex {lower}",
            lambda x, low=lower: linalg.eigvalsh(x, None, lower=low),
            (hermitian(HERMITIAN, lower),),
            np.linalg.eigvalsh(HERMITIAN),
        )


def qr() -> Iterator[Variation]:
    for mode, pivoting, shape in product(("full", "r", "economic", "raw"), BOTH, ((4, 3), (3, 4))):
        a = numbers(*shape, seed=5)
        actual = sl.qr(a, mode=mode, pivoting=pivoting)
        if mode == "raw":
            actual = (*actual[0], *actual[1:])
        yield variation(
            f"{mode} {pivoting} {shape}",
            lambda x, m=mode, p=pivoting: linalg.qr(x, mode=m, pivoting=p),
            (a,),
            list(actual),
            shapes_fit=mode != "raw",
        )


def lu() -> Iterator[Variation]:
    for options in ({}, {"permute_l": True}, {"p_indices": True}):
        for shape in ((3, 3), (4, 3), (3, 4)):
            a = numbers(*shape, seed=6)
            yield variation(
                f"{options} {shape}",
                lambda x, o=options: list(linalg.lu(x, **o)),
                (a,),
                list(sl.lu(a, **options)),
                shapes_fit=shape[0] == shape[1],
            )


def lu_solve() -> Iterator[Variation]:
    factors, pivots = sl.lu_factor(A)
    for trans in BOTH:
        yield variation(
            trans,
            lambda x, p, y, t=trans: linalg.lu_solve((x, p), y, trans=t),
            (factors, pivots, B),
            np.linalg.solve(A.T if trans else A, B),
        )


def pivots() -> Iterator[Variation]:
    order = np.array([1, 2, 3, 3], "int32")
    for inverse in BOTH:
        yield variation(inverse, lambda p, i=inverse: PivotToPermutations(inverse=i)(p), (order,))


def svd() -> Iterator[Variation]:
    for shape, full in product(((4, 2), (2, 4), (3, 3)), BOTH):
        a, least = numbers(*shape, seed=7), min(shape)
        u, s, v = np.linalg.svd(a, full_matrices=full)
        yield variation(
            f"{full} {shape}",
            lambda x, f=full, m=least: _comparable(linalg.svd(x, full_matrices=f), m),
            (a,),
            [np.array(u.shape), np.array(v.shape), *_comparable((u, s, v), least)[2:]],
        )
        yield variation(
            f"values {full} {shape}",
            lambda x, f=full: linalg.svd(x, full_matrices=f, compute_uv=False),
            (a,),
            s,
        )


def _comparable(factors: Any, least: int) -> list[Any]:
    """What of the factors is unique: beyond the least length vectors are orthogonal to the others only."""
    u, s, v = factors
    return [u.shape, v.shape, s, abs(u[:, :least]), abs(v[:least])]


def pinv() -> Iterator[Variation]:
    for flag in BOTH:
        for a in (MIXED, hermitian(HERMITIAN, True)):
            yield variation(
                f"{flag} {a.dtype}",
                lambda x, h=flag: MatrixPinv(hermitian=h)(x),
                (a,),
                np.linalg.pinv(a, hermitian=flag),
            )


def schur() -> Iterator[Variation]:
    for output, sort in product(("real", "complex"), (None, "lhp", "rhp", "iuc", "ouc")):
        yield variation(
            f"{output} {sort}",
            lambda x, o=output, s=sort: [abs(t) for t in linalg.schur(x, output=o, sort=s)],
            (A,),
            [abs(t) for t in sl.schur(A, output=output, sort=sort)[:2]],
        )


def qz() -> Iterator[Variation]:
    for complex_output, sort, eigenvalues in product(BOTH, (None, "lhp", "ouc"), BOTH):
        options = {
            "complex_output": complex_output,
            "sort": sort,
            "return_eigenvalues": eigenvalues,
        }
        yield variation(
            options, lambda x, y, o=options: [abs(t) for t in QZ(**o)(x, y)], (A, MIXED)
        )


def tensors() -> Iterator[Variation]:
    for ind, shape in ((2, (2, 3, 2, 3)), (1, (6, 2, 3))):
        a = numbers(*shape, seed=8)
        yield variation(
            ind, lambda x, i=ind: TensorInv(ind=i)(x), (a,), np.linalg.tensorinv(a, ind=ind)
        )


def tensor_solve() -> Iterator[Variation]:
    for axes, shape in ((None, (2, 3, 2, 3)), ((0,), (2, 2, 3, 3))):
        a, b = numbers(*shape, seed=9), numbers(2, 3)
        yield variation(
            axes,
            lambda x, y, ax=axes: TensorSolve(axes=ax)(x, y),
            (a, b),
            np.linalg.tensorsolve(a, b, axes=axes),
        )


def tridiagonal_solve() -> Iterator[Variation]:
    a = np.triu(np.tril(A, 1), -1)
    for transposed, b in product(BOTH, (B, V)):
        yield variation(
            f"{transposed} {b.ndim}",
            lambda x, y, t=transposed: tridiagonal.tridiagonal_lu_solve(
                tridiagonal.tridiagonal_lu_factor(x), y, b_ndim=y.ndim, transposed=t
            ),
            (A, b),
            np.linalg.solve(a.T if transposed else a, b),
        )


def block_diagonals() -> Iterator[Variation]:
    for n in (2, 3):
        yield variation(
            n,
            lambda x, y, k=n: linalg.block_diag(*(x, y, x)[:k]),
            (A, B),
            sl.block_diag(*(A, B, A)[:n]),
        )


def lyapunov() -> Iterator[Variation]:
    for method in ("direct", "bilinear"):
        yield variation(
            method,
            lambda x, y, m=method: linalg.solve_discrete_lyapunov(x, y, method=m),
            (A / 4, MIXED),
            sl.solve_discrete_lyapunov(A / 4, MIXED),
        )


def norms() -> Iterator[Variation]:
    for order in (None, "fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf):
        yield variation(
            order, lambda x, o=order: linalg.norm(x, ord=o), (A,), np.linalg.norm(A, ord=order)
        )
    for order, axis in product((None, 0, 1, -1, np.inf), (0, -1)):
        yield variation(
            f"{order} {axis}",
            lambda x, o=order, ax=axis: linalg.norm(x, ord=o, axis=ax, keepdims=True),
            (A,),
            np.linalg.norm(A, ord=order, axis=axis, keepdims=True),
        )


def products_with_known_matrices() -> Iterator[Variation]:
    """What is known of a matrix decides nothing that its keywords say otherwise."""
    for lower in BOTH:
        full = np.linalg.cholesky(DEFINITE)
        yield variation(
            lower,
            lambda x, y, low=lower: linalg.solve(linalg.cholesky(x), y, assume_a="sym", lower=low),
            (DEFINITE, B),
            np.linalg.solve(symmetric(full, lower), B),
        )
    yield variation(
        "two triangles",
        lambda x, y: [linalg.solve(x, y, assume_a="pos", lower=low) for low in BOTH],
        (MIXED, B),
        [np.linalg.solve(symmetric(MIXED, low), B) for low in BOTH],
    )


CASES = {
    ("Solve", "assume_a lower b_ndim"): solve,
    ("Solve", "assume_a"): structured,
    ("SolveTriangular", "lower unit_diagonal b_ndim"): solve_triangular,
    ("CholeskySolve", "lower b_ndim"): cho_solve,
    ("Cholesky", "lower"): cholesky,
    ("Eigh", "lower"): eigh,
    ("Eigvalsh", "lower"): eigvalsh,
    ("QR", "mode pivoting"): qr,
    ("LU", "permute_l p_indices"): lu,
    ("LUFactor", ""): lu_solve,
    ("PivotToPermutations", "inverse"): pivots,
    ("SVD", "full_matrices compute_uv"): svd,
    ("MatrixPinv", "hermitian"): pinv,
    ("Schur", "output sort"): schur,
    ("QZ", "complex_output sort return_eigenvalues"): qz,
    ("TensorInv", "ind"): tensors,
    ("TensorSolve", "axes"): tensor_solve,
    ("SolveLUFactorTridiagonal", "b_ndim transposed"): tridiagonal_solve,
    ("BlockDiagonal", "n_inputs"): block_diagonals,
    ("SolveBilinearDiscreteLyapunov", ""): lyapunov,
    ("Dot", ""): norms,
    ("Solve", "lower"): products_with_known_matrices,
}
