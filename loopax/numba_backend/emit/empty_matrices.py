"""Factors of empty matrices, for which PyTensor's native functions ask LAPACK with illegal lengths.

PyTensor (3.0 to 3.3) then reads a length of workspace that nothing has written, or returns zeros in place
of an orthogonal matrix. So a matrix with entries replaces it, and an identity of the right shape replaces
each factor, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.linalg.decomposition.eigen import Eigh, Eigvalsh
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.decomposition.svd import SVD

from loopax.numba_backend.emit.expressions import Expr, call, expr
from loopax.numba_backend.emit.storage import Storage

# The axes of each factor of an m x n matrix, with k = min(m, n).
_OF_QR = {"full": ("mm", "mn"), "economic": ("mk", "kn"), "r": ("mn",)}


def axes_of_factors(node: Apply) -> Sequence[str]:
    """The axes of each factor of a matrix that may be empty; nothing for other nodes."""
    op: Op = node.op
    if isinstance(op, Eigh | Eigvalsh | SVD | QR) and not all(node.inputs[0].type.shape):
        match op:
            case Eigh():
                return "n", "nn"
            case Eigvalsh():
                return ("n",)
            case SVD(compute_uv=False):
                return ("k",)
            case SVD(full_matrices=is_full):
                return ("mm", "k", "nn") if is_full else ("mk", "k", "kn")
            case QR(mode=mode, pivoting=is_pivoted) if mode in _OF_QR:
                return (*_OF_QR[mode], "n") if is_pivoted else _OF_QR[mode]
    return ()


def with_own_shapes(
    emit: Storage, matrix: Expr, factors: Sequence[Expr], axes: Sequence[str]
) -> list[Any]:
    """The ``factors`` of ``matrix``, or of the larger matrix that replaces it, in their own shapes."""
    lengths = {"m": matrix.length(0), "n": matrix.length(1)}
    lengths["k"] = expr("min({}, {})", *lengths.values())
    return [
        emit.temp(call("factor_of_empty", x, matrix, *map(lengths.get, names)), "a")
        for x, names in zip(factors, axes, strict=True)
    ]
