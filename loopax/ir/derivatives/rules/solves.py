"""Pullbacks of solves and factorizations that read one triangle of a matrix, or exchange rows.

PyTensor's give a cotangent to the triangle that is not read, or read it themselves (3.0.7, 3.3.8).
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.tensor.linalg.decomposition.lu import LU
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve

from loopax.ir.derivatives.rules.registry import pullback_of


@pullback_of.register(CholeskySolve)
def _cholesky_solve(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    """The value reads one triangle of the factor; PyTensor's pullback reads the other one too."""
    factor, b = inputs
    triangle = pt.tril(factor) if op.lower else pt.triu(factor)
    return op.pullback([triangle, b], outputs, cotangents)


@pullback_of.register(Solve)
def _solve(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    """What one triangle stands for, the other one included, is its cotangent."""
    pulled = list(op.pullback(inputs, outputs, cotangents))
    a = inputs[0]
    if op.assume_a not in ("sym", "her", "pos") or not a.type.dtype.startswith("float"):
        return pulled
    triangle: Any = pt.tril if op.lower else pt.triu
    both = pulled[0] + pulled[0].mT
    pulled[0] = triangle(both) - pt.identity_like(a) * pulled[0]
    return pulled


@pullback_of.register(LU)
def _lu(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    """PyTensor takes the cotangent of ``p @ l`` for one of ``l``."""
    if not op.permute_l or isinstance(cotangents[0].type, DisconnectedType):
        return op.pullback(inputs, outputs, cotangents)
    options = {**op._props_dict(), "permute_l": False, "p_indices": False}
    plain = type(op)(**options)
    p, lower, upper = plain(*inputs)
    lower_cotangent = p.mT @ cotangents[0]
    arrived = [disconnected_type(), lower_cotangent, cotangents[1]]
    return plain.pullback(inputs, [p, lower, upper], arrived)
