"""Pullbacks of solves and inverses that read one part of a matrix.

PyTensor's give a cotangent to the part that is not read, or read it themselves (3.0.7, 3.3.8).
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.linalg.inverse import MatrixPinv
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve

from loopax.ir.derivatives.rules.registry import Fault, fault_of, own_pullback, pullback_of


@pullback_of.register(CholeskySolve)
def _cholesky_solve(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    """The value reads one triangle of the factor; PyTensor's pullback reads the other one too."""
    factor, b = inputs
    triangle = pt.tril(factor) if op.lower else pt.triu(factor)
    return own_pullback(op, [triangle, b], outputs, cotangents)


@pullback_of.register(Solve)
def _solve(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    """The pullback of a solve, whose cotangent has only the entries that the solve reads."""
    pulled = list(own_pullback(op, inputs, outputs, cotangents))
    a = inputs[0]
    if not a.type.dtype.startswith("float"):
        return pulled
    if op.assume_a == "tridiagonal":
        pulled[0] = pt.tril(pt.triu(pulled[0], -1), 1)
    elif op.assume_a in ("sym", "her", "pos"):
        pulled[0] = _of_triangle(pulled[0], op.lower)
    return pulled


def _of_triangle(cotangent: Any, lower: bool) -> Any:
    """The cotangent of the triangle that a symmetric matrix is made of, from that of the matrix."""
    triangle: Any = pt.tril if lower else pt.triu
    return triangle(cotangent + cotangent.mT) - pt.identity_like(cotangent) * cotangent


@pullback_of.register(MatrixPinv)
def _pseudoinverse(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    """A hermitian one reads the lower triangle, as NumPy's; PyTensor's pullback reads both."""
    (a,) = inputs
    if not op.hermitian or not a.type.dtype.startswith("float"):
        return own_pullback(op, inputs, outputs, cotangents)
    triangle: Any = pt.tril
    symmetric = triangle(a) + triangle(a, -1).mT
    (pulled,) = own_pullback(op, [symmetric], outputs, cotangents)
    return [_of_triangle(pulled, lower=True)]


@fault_of.register(Solve)
def _fault(op: Any, node: Any) -> Fault | None:
    """The fault for a matrix that the program is given: one that it makes may have its diagonals alone.

    What is read of one triangle is right as the gradient of a symmetric matrix, and of a factor where the
    other triangle is 0.
    """
    if op.assume_a != "tridiagonal" or node.inputs[0].owner is not None:
        return None
    return Fault(0, "elements off the diagonals, which are not read, have a part in it")
