"""The pushforward of a conversion to a sparse matrix.

The tangent has entries where its own elements are not 0. The transpose of PyTensor's pullback has
only the entries of the value, and loses tangents of elements that are 0 (3.0.7, 3.3.8).
"""

from __future__ import annotations

from typing import Any

from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.sparse.basic import SparseFromDense

from loopax.ir.derivatives.rules.registry import pushforward_of


@pushforward_of.register(SparseFromDense)
def _sparse_from_dense(op: Any, inputs: Any, outputs: Any, tangents: Any) -> Any:
    (tangent,) = tangents
    return [disconnected_type() if isinstance(tangent.type, DisconnectedType) else op(tangent)]
