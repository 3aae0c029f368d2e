"""Ops of matrices: the shapes of their results, the inputs they factor, and the entries they read.

A matrix with a NaN or an infinity has no factors, and a system with such a matrix no solution: every
number of the result is NaN, in both backends. LAPACK does not say so. It avoids NaN as a pivot, divides
by an infinite one, and returns finite numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, TypeAlias

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.eigen import Eigh, Eigvalsh
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor, PivotToPermutations
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.inverse import MatrixPinv
from pytensor.tensor.linalg.products import Expm
from pytensor.tensor.linalg.solvers.core import SolveBase
from pytensor.tensor.linalg.solvers.tridiagonal import SolveLUFactorTridiagonal

from loopax.ir.ops.lu_factor import LapackLUFactor

_MODULES = tuple(
    f"pytensor.tensor.linalg.{part}" for part in ("decomposition", "inverse", "solvers", "summary")
)


class Part(Enum):
    """The entries of a matrix that an op reads."""

    WHOLE = auto()
    LOWER = auto()
    UPPER = auto()


def is_of_matrices(op: Op) -> bool:
    """Whether ``op`` factors, inverts or solves with matrices, or reduces them to a number."""
    return type(op).__module__.startswith(_MODULES)


def factored_inputs(node: Apply) -> dict[int, Part]:
    """The inputs of ``node`` that must be finite if its results are to be numbers, by position.

    Solves with a factor only compute with its elements, as JAX and NumPy do. `LapackLUFactor` has the
    factors that LAPACK has.
    """
    op: Any = node.op
    if not isinstance(op, Expm) and not is_of_matrices(op):
        return {}
    if isinstance(op, SolveLUFactorTridiagonal | PivotToPermutations | LapackLUFactor):
        return {}
    if isinstance(op, SolveBase):
        return {0: _part_read(op)} if hasattr(op, "assume_a") else {}
    return {k: _part_read(op) for k, v in enumerate(node.inputs) if getattr(v.type, "ndim", 0)}


def _part_read(op: Any) -> Part:
    """The entries that ``op`` reads: one triangle of a symmetric or Hermitian matrix."""
    if isinstance(op, MatrixPinv):  # as NumPy
        return Part.LOWER if op.hermitian else Part.WHOLE
    if isinstance(op, Cholesky | Eigh | Eigvalsh) or assumption(op) in ("pos", "sym", "her"):
        return Part.LOWER if op.lower else Part.UPPER
    return Part.WHOLE


def assumption(op: Op) -> str | None:
    """The structure that a solve assumes of its matrix; None for other ops."""
    return getattr(op, "assume_a", None)


SMALLER = "smaller"

# For each input, and for each output, the names of its axes; equal names are equal lengths.
Signature: TypeAlias = tuple[Sequence[tuple[str, ...]], Sequence[tuple[str, ...]]]


def batch_signature(op: Blockwise) -> Signature:
    """The signature of the core op of ``op``."""
    return core_signature(op.core_op) or (op.inputs_sig, op.outputs_sig)


def core_signature(op: Op) -> Signature | None:
    """The axes of the inputs and outputs of ``op``; None if it has no signature.

    A name that no input has is another length. `SMALLER` is the smaller of a matrix's two, as in factors.

    PyTensor's signatures of LU have square matrices only, and its one of raw QR factors has the transpose
    of the first and too many rows in the last (3.0.7 and 3.3.8). These corrections are to be removed once
    the signatures are right.

    >>> core_signature(LUFactor())
    ([('m', 'n')], [('m', 'n'), ('smaller',)])
    """
    text: str | None = getattr(op, "gufunc_signature", None)
    if isinstance(op, LU):
        order = [] if op.permute_l else ["(m)" if op.p_indices else "(m,m)"]
        text = "(m,n)->" + ",".join([*order, "(m,k)", "(k,n)"])
    elif isinstance(op, LUFactor):
        text = "(m,n)->(m,n),(k)"
    elif isinstance(op, QR) and op.mode == "raw":
        text = "(m,n)->(m,n),(k),(k,n)" + (",(n)" if op.pivoting else "")
    return _parsed(text, is_of_matrices(op)) if text else None


@cache
def _parsed(text: str, has_factors: bool) -> Signature:
    inputs, outputs = (
        [tuple(re.findall(r"\w+", axes)) for axes in re.findall(r"\(([^)]*)\)", part)]
        for part in text.split("->")
    )
    if has_factors and inputs == [("m", "n")]:
        outputs = [tuple(SMALLER if name == "k" else name for name in axes) for axes in outputs]
    return inputs, outputs


def sources_of_length(x: Variable, axis: int) -> list[tuple[Variable, int]]:
    """Axes of inputs of the node of ``x``: the shortest of them is as long as ``axis`` of ``x``.

    Empty if the signature of the op does not say so. An input of length 1 is stretched only if its type
    says so; all other lengths of a batch are equal, or the node raises.
    """
    node: Any = x.owner
    if node is None:
        return []
    op, n_batch = node.op, 0
    signature = core_signature(op)
    if isinstance(op, Blockwise):
        signature, n_batch = batch_signature(op), op.batch_ndim(node)
    if signature is None:
        return []
    if axis < n_batch:
        return [(v, axis) for v in node.inputs if v.type.shape[axis] != 1][:1]
    name = signature[1][node.outputs.index(x)][axis - n_batch]
    if name == SMALLER:
        return [(node.inputs[0], n_batch), (node.inputs[0], n_batch + 1)]
    places = [
        (v, n_batch + names.index(name))
        for v, names in zip(node.inputs, signature[0], strict=True)
        if name in names
    ]
    return places[:1]
