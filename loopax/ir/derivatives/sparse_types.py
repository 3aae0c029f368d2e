"""Conversions of derivatives between sparse and dense matrices, without loss of elements.

The derivative of PyTensor's ``dense_from_sparse`` is *structured*: it is 0 where the matrix has no entry.
For a matrix of the program that is the user's choice. But a cotangent has no entry where it is 0, and its
own derivative need not be 0 there: conversions of derivatives are never structured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.sparse.basic import DenseFromSparse, SparseFromDense
from pytensor.sparse.type import SparseTensorType

from loopax.ir.replace import applied_to

_dense_from_sparse = DenseFromSparse(structured=False)


def converted(g: Variable, v: Variable) -> Any:
    """Convert ``g``, a derivative of ``v``, to a dense matrix, or to the sparse format of ``v``."""
    wanted, current = (getattr(x.type, "format", None) for x in (v, g))
    if wanted == current:
        return g
    dense = g if current is None else _dense_from_sparse(g)
    return dense if wanted is None else SparseFromDense(wanted)(dense)


def with_whole_conversions(derivatives: Sequence[Variable], known: Sequence[Variable]) -> list[Any]:
    """Rebuild ``derivatives`` without structured conversions to dense matrices, except within ``known``."""
    derivatives = list(derivatives)
    if not any(isinstance(x.type, SparseTensorType) for x in known):
        return derivatives
    copies: dict[Any, Any] = {}
    computed = [g for g in derivatives if isinstance(g, Variable)]
    for node in toposort(computed, blockers=list(known)):
        is_structured = isinstance(node.op, DenseFromSparse) and node.op.sparse_grad
        if is_structured or any(x in copies for x in node.inputs):
            inputs = [copies.get(x, x) for x in node.inputs]
            copy = (
                _dense_from_sparse.make_node(*inputs) if is_structured else applied_to(node, inputs)
            )
            copies.update(zip(node.outputs, copy.outputs, strict=True))
    return [copies.get(g, g) for g in derivatives]
