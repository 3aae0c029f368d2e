"""Pullbacks of solves and inverses that read only part of a matrix, and of log-determinants.

PyTensor's rules give a cotangent to the other part, or read it themselves (3.0.7, 3.3.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.linalg.inverse import MatrixPinv
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import SLogDet
from pytensor.tensor.variable import TensorVariable

from loopax.ir.derivatives.rules.registry import Fault, fault_of, own_pullback, pullback_of


@pullback_of.register(CholeskySolve)
def _cholesky_solve(
    op: CholeskySolve,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    """A pullback that reads one triangle of the factor, as the solve does; PyTensor's reads both."""
    factor, b = inputs
    return own_pullback(op, [triangle(factor, op.lower), b], outputs, cotangents)


@pullback_of.register(SolveTriangular)
def _triangular_solve(
    op: SolveTriangular,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    """A pullback that is zero, not NaN, outside of the triangle that a singular solve reads."""
    cotangent, *others = own_pullback(op, inputs, outputs, cotangents)
    return [triangle(cotangent, op.lower, 1 if op.unit_diagonal else 0), *others]


@pullback_of.register(Solve)
def _solve(
    op: Solve,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    """A pullback whose cotangent is zero outside of the entries that the solve reads."""
    in_cotangents = list(own_pullback(op, inputs, outputs, cotangents))
    a = inputs[0]
    if not a.type.dtype.startswith("float"):
        return in_cotangents
    if op.assume_a == "tridiagonal":
        in_cotangents[0] = pt.tril(pt.triu(in_cotangents[0], -1), 1)
    elif op.assume_a in ("sym", "her", "pos"):
        in_cotangents[0] = triangle_cotangent(in_cotangents[0], op.lower)
    return in_cotangents


def triangle(a: Any, lower: bool, n_left_out: int = 0) -> Any:
    """One triangle of a matrix; elements with a distance below ``n_left_out`` to the diagonal are zero.

    `pytensor.tensor.tril` multiplies the other triangle by 0, and NaN stays NaN.
    """
    rows, columns = pt.arange(a.shape[-2])[:, None], pt.arange(a.shape[-1])
    distance = rows - columns if lower else columns - rows
    return pt.switch(distance >= n_left_out, a, 0)


def triangle_cotangent(cotangent: TensorVariable, lower: bool) -> Any:
    """The cotangent of one triangle of a symmetric matrix, from the cotangent of the matrix."""
    return triangle(cotangent, lower) + triangle(cotangent.mT, lower, 1)


@pullback_of.register(MatrixPinv)
def _pseudoinverse(
    op: MatrixPinv,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    """A pullback that reads only the lower triangle of a hermitian matrix; PyTensor's reads both."""
    (a,) = inputs
    if not op.hermitian or not a.type.dtype.startswith("float"):
        return own_pullback(op, inputs, outputs, cotangents)
    symmetric = triangle(a, lower=True) + triangle(a, True, 1).mT
    (cotangent,) = own_pullback(op, [symmetric], outputs, cotangents)
    return [triangle_cotangent(cotangent, lower=True)]


@pullback_of.register(SLogDet)
def _log_determinant(
    op: SLogDet,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[TensorVariable],
) -> Any:
    """The transposed inverse; PyTensor's op, which one of its rewrites introduces, has no derivative."""
    (a,), (_, g) = inputs, cotangents
    inverse: Any = pt.linalg.inv(a)
    return [disconnected_type() if isinstance(g.type, DisconnectedType) else g * inverse.mT]


@fault_of.register(Solve)
def _fault(op: Solve, node: Apply) -> Fault | None:
    """The fault of a pullback for a matrix that is an input.

    A computed matrix may be nonzero only on the diagonals that are read. A pullback that reads one triangle
    is right as the gradient of a symmetric matrix, and of a factor whose other triangle is 0.
    """
    if op.assume_a != "tridiagonal" or node.inputs[0].owner is not None:
        return None
    return Fault(0, "elements off the diagonals, which are not read, have a part in it")
