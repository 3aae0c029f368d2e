"""The pullback of ``eigh``, which can be differentiated again.

    A = V diag(w) V^T:    Ā = V diag(w̄) V^T + V (F ∘ V^T V̄) V^T,    F[i, j] = 1 / (w[j] - w[i]), 0 for i =
    j A V = B V diag(w):    B̄ = -V (M diag(w) + diag(V^T V̄) / 2) V^T,    M the middle factor of Ā

PyTensor's rule divides by 0 on the diagonal and then chooses 0, so that second derivatives have 0/0
there, unless a rewrite moves them into the choice. It computes the second term of Ā even
if no cotangent reaches V: NaN where eigenvalues are equal (3.0.7, 3.3.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.tensor.linalg.decomposition.eigen import Eigh
from pytensor.tensor.variable import TensorVariable

from loopax.ir.derivatives.rules.registry import pullback_of
from loopax.ir.derivatives.rules.solves import triangle_cotangent


@pullback_of.register(Eigh)
def _eigh(
    op: Any,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    cotangents: Sequence[TensorVariable],
) -> Any:
    w, v = outputs
    w_cotangent, v_cotangent = (
        None if isinstance(g.type, DisconnectedType) else g for g in cotangents
    )
    is_diagonal = pt.eye(w.shape[0], dtype="bool")
    zero = pt.zeros((), dtype=v.type.dtype)
    slope = zero if v_cotangent is None else v.mT @ v_cotangent
    differences = pt.switch(is_diagonal, 1, w - w[:, None])
    middle = pt.switch(
        is_diagonal,
        zero if w_cotangent is None else w_cotangent,
        zero if v_cotangent is None else slope / differences,
    )
    in_cotangents = [v @ middle @ v.mT]
    if len(inputs) > 1:
        scaled = middle * w + pt.switch(is_diagonal, slope, 0) / 2
        in_cotangents.append(-v @ scaled @ v.mT)
    return [triangle_cotangent(g, op.lower) for g in in_cotangents]
