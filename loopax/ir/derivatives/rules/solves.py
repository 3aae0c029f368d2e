"""Pullbacks of solves and factorizations that read one triangle of a matrix, or exchange rows."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.tensor.linalg.decomposition.lu import LU
from pytensor.tensor.linalg.solvers.psd import CholeskySolve

from loopax.ir.derivatives.rules.registry import pullback_of


@pullback_of.register(CholeskySolve)
def _cholesky_solve(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    """The value reads one triangle of the factor; PyTensor's pullback reads the other one too."""
    factor, b = inputs
    triangle = pt.tril(factor) if op.lower else pt.triu(factor)
    return op.pullback([triangle, b], outputs, cotangents)


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
