"""Factorizations that PyTensor declares to be of square matrices.

Of an m x n matrix it declares factors of m x n each (3.0.7, 3.3.8). Where the types say so, no program that
reads one can be right.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor

from loopax.base.errors import describe


def refuse_wide_and_tall(node: Apply) -> None:
    """Raise a `ValueError` for LU of a matrix whose type says that it is not square."""
    op: Any = node.op
    core = op.core_op if isinstance(op, Blockwise) else op
    if not isinstance(core, LU | LUFactor):
        return
    a: Any = node.inputs[0]
    rows, columns = a.type.shape[-2:]
    if None not in (rows, columns) and rows != columns:
        raise ValueError(
            f"{core} of {describe(a)}, which is not square: PyTensor declares wrong shapes for it. "
            "Add zeros to an m x n matrix: with k = max(m, n) the first rows and columns of the factors "
            "pt.linalg.lu(pt.zeros((k, k))[:m, :n].set(a)) are its own."
        )
