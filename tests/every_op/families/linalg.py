"""Linear algebra."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import linalg
from pytensor.tensor.linalg.constructors import block_diag
from pytensor.tensor.linalg.decomposition.eigen import Eig
from pytensor.tensor.linalg.decomposition.lu import PivotToPermutations
from pytensor.tensor.linalg.decomposition.schur import QZ, Schur
from pytensor.tensor.linalg.inverse import MatrixPinv, TensorInv
from pytensor.tensor.linalg.solvers.linear_control import TRSYL
from pytensor.tensor.linalg.solvers.lstsq import Lstsq, TensorSolve
from pytensor.tensor.linalg.summary import Det, SLogDet

from tests.every_op.record import OTHER, SQUARE, A, M, U, V, W, given, positive_definite

TITLE = "Linear algebra"
SLOW = {
    ("LUFactorTridiagonal", "Numba"),
    ("SolveLUFactorTridiagonal", "Numba"),
    *(
        (name, c)
        for name in ("SolveDiscreteARE", "SolveBilinearDiscreteLyapunov")
        for c in ("second", "loopax.grad", "vmap")
    ),
}
REASONS = [
    "`QZ`, `SolveDiscreteARE`: JAX has no generalized Schur decomposition.",
    "`Schur`: neither JAX nor PyTensor has its derivative.",
]
BASES = dict.fromkeys(["BaseBlockDiagonal", "SolveBase"], "a base class")
D = given([4.0, 3.0, 5.0, 4.5], "d")
FOUR = given(
    np.sin(np.arange(1.0, 37.0)).reshape(2, 3, 2, 3) + np.eye(6).reshape(2, 3, 2, 3) * 3, "four"
)
OFF = given([0.7, -0.4, 0.5], "off")


def tridiagonal() -> Any:
    from pytensor.tensor.linalg.solvers import tridiagonal

    a = pt.diag(D) + pt.diag(OFF, 1) + pt.diag(U / 4, -1)
    factors = tridiagonal.tridiagonal_lu_factor(a)
    solve = tridiagonal.tridiagonal_lu_solve
    return factors, [solve(factors, W, b_ndim=1, transposed=t) for t in (False, True)]


EXAMPLES: dict[str, Any] = {
    "BlockDiagonal": lambda: block_diag(M, SQUARE),
    "Cholesky": lambda: linalg.cholesky(positive_definite()),
    "Eig": lambda: [pt.real((w := Eig()(SQUARE))[0]), abs(w[1])],
    "Eigh": lambda: [(w := linalg.eigh(positive_definite()))[0], abs(w[1])],
    "Eigvalsh": lambda: linalg.eigvalsh(positive_definite(), None),
    "LU": lambda: list(linalg.lu(SQUARE)),
    "LUFactor": lambda: list(linalg.lu_factor(SQUARE)),
    "PivotToPermutations": lambda: PivotToPermutations(inverse=False)(linalg.lu_factor(SQUARE)[1]),
    "QR": lambda: list(linalg.qr(SQUARE)),
    "Schur": lambda: [abs(x) for x in Schur()(positive_definite())],
    "QZ": lambda: QZ()(SQUARE, OTHER)[0],
    "SVD": lambda: linalg.svd(SQUARE, compute_uv=False),
    "MatrixInverse": lambda: linalg.inv(SQUARE),
    "MatrixPinv": lambda: MatrixPinv(hermitian=False)(M),
    "TensorInv": lambda: TensorInv(ind=2)(FOUR),
    "Expm": lambda: linalg.expm(SQUARE / 4),
    "KroneckerProduct": lambda: linalg.kron(M, SQUARE),
    "Solve": lambda: [linalg.solve(SQUARE, V), linalg.solve(SQUARE, M.T)],
    "SolveTriangular": lambda: linalg.solve_triangular(SQUARE, V, lower=True),
    "CholeskySolve": lambda: linalg.cho_solve((linalg.cholesky(positive_definite()), True), V),
    "TRSYL": lambda: TRSYL()(pt.triu(SQUARE), pt.triu(OTHER), SQUARE),
    "SolveSylvester": lambda: linalg.solve_sylvester(SQUARE, OTHER, SQUARE),
    "SolveBilinearDiscreteLyapunov": lambda: linalg.solve_discrete_lyapunov(
        SQUARE / 6, OTHER, method="bilinear"
    ),
    "SolveDiscreteARE": lambda: linalg.solve_discrete_are(
        SQUARE / 6, OTHER, positive_definite(), pt.eye(3) * (1 + A**2)
    ),
    "Lstsq": lambda: Lstsq()(SQUARE, M.T, np.float64(1e-9))[0],
    "TensorSolve": lambda: TensorSolve()(FOUR, M),
    "LUFactorTridiagonal": lambda: list(tridiagonal()[0]),
    "SolveLUFactorTridiagonal": lambda: tridiagonal()[1],
    "Det": lambda: Det()(SQUARE),
    "SLogDet": lambda: list(SLogDet()(SQUARE)),
}
