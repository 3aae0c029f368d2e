"""Pullbacks of LU, QR and singular value decompositions.

PyTensor's rule for LU uses the cotangent of ``p @ l`` as the cotangent of ``l``; its rule for QR calls a
module as a function if the shape is not known, and covers neither pivoting nor ``mode="full"`` of a tall
matrix (3.0.7, 3.3.8). Its rule for the singular vectors divides by the singular values, which only
non-square matrices need, and selects afterwards: 0/0 in the second derivative of a singular matrix. At
equal singular values it returns finite numbers, which are not derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.linalg import solve, solve_triangular
from pytensor.tensor.linalg.decomposition.lu import LU
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.decomposition.svd import SVD
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import props_of
from loopax.ir.derivatives.rules.registry import Fault, fault_of, own_pullback, pullback_of


@pullback_of.register(LU)
def _lu(
    op: Any,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    cotangents: Sequence[Variable],
) -> Any:
    if not op.permute_l or isinstance(cotangents[0].type, DisconnectedType):
        return own_pullback(op, inputs, outputs, cotangents)
    options = {**props_of(op), "permute_l": False, "p_indices": False}
    plain = type(op)(**options)
    p, lower, upper = plain(*inputs)
    lower_cotangent = p.mT @ cotangents[0]
    plain_cotangents = [disconnected_type(), lower_cotangent, cotangents[1]]
    return own_pullback(plain, inputs, [p, lower, upper], plain_cotangents)


@fault_of.register(LU)
def _fault_of_lu(op: LU, node: Apply) -> Fault | None:
    return Fault(0, "it is as if no rows had been exchanged") if op.permute_l else None


@pullback_of.register(QR)
def _qr(
    op: QR,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    cotangents: Sequence[TensorVariable],
) -> Any:
    """The pullback of ``a = q [u | v]`` with k = min(m, n) columns in q.

    The columns of a after the first k are ``q v``, and contribute a cotangent to q. Columns outside are set
    to zero, not cut off: a tall matrix would leave an empty one, and PyTensor's rewrites fail for a batch
    of empty matrices (3.3.8) in the second derivative.

    References
    ----------
    Roberts and Roberts (2020), "QR and LQ decomposition matrix backpropagation algorithms",
    arXiv:2009.10071.
    """
    (a,) = inputs
    if op.mode == "raw":
        raise NotImplementedError("qr(mode='raw') has no gradient: use mode='reduced'")
    if not a.type.dtype.startswith("float"):
        return own_pullback(op, inputs, outputs, cotangents)
    order = outputs[-1] if op.pivoting else None
    columns = a if order is None else a[:, order]
    k = pt.minimum(*a.shape)
    if op.mode == "r":
        economic: Any = QR(mode="economic")
        q, r = economic(columns)
        q_cotangent, r_cotangent = pt.zeros_like(q), cotangents[0][:k]
    else:
        full, r = outputs[0], outputs[1][:k]
        full_cotangent, r_cotangent = (
            pt.zeros_like(v) if isinstance(g.type, DisconnectedType) else g
            for v, g in zip(outputs[:2], cotangents[:2], strict=True)
        )
        q, q_cotangent, r_cotangent = full[:, :k], full_cotangent[:, :k], r_cotangent[:k]
        if op.mode == "full" and not _is_wide(a):
            q_cotangent += _complement_cotangent(q, full_cotangent)
    u, u_cotangent = r[:, :k], r_cotangent[:, :k]
    v_cotangent = pt.switch(pt.arange(r.shape[1]) >= k, r_cotangent, 0)  # 0 in the first k columns
    q_cotangent += columns @ v_cotangent.mT
    inner = u @ u_cotangent.mT - q_cotangent.mT @ q
    symmetric = pt.tril(inner) + pt.tril(inner, -1).mT
    leading = solve_triangular(u, (q_cotangent + q @ symmetric).mT, lower=False).mT
    cotangent = (q @ v_cotangent)[:, :k].set(leading)
    return [cotangent if order is None else pt.zeros_like(a)[:, order].set(cotangent)]


def _is_wide(a: Variable) -> bool:
    m, n = a.type.shape
    return m is not None and n is not None and m <= n


def _complement_cotangent(q: TensorVariable, cotangent: Variable) -> Any:
    """Pull the cotangent of the columns after the first k, in ``mode="full"``, back to q, the first k.

    LAPACK's reflectors are a function of q = [q₁; q₂] alone, and the complement, a function of these,
    is ``[(1 - q₁) w; 1 - q₂ w]``, where ``w = (1 - q₁)⁻ᵀ q₂ᵀ``. All are of full size here, with zeros
    elsewhere.

    References
    ----------
    Ballard et al. (2014), "Reconstructing Householder vectors from tall-skinny QR", section 3.
    """
    m, k = q.shape
    is_behind = pt.arange(m) >= k
    lower_block = pt.switch(is_behind[:, None], q, 0)
    identity = pt.eye(k, dtype=q.type.dtype)
    difference = pt.switch(m > k, identity - q[:k], identity)  # singular if there is no complement
    w = solve(difference.mT, lower_block.mT)
    trailing = pt.switch(is_behind, cotangent, 0)
    upper, lower = trailing[:k], pt.switch(is_behind[:, None], trailing, 0)
    z = solve(difference, difference.mT @ upper - lower_block.mT @ lower)
    return (z.mT - lower @ w.mT)[:k].inc(w @ z.mT - upper @ w.mT)


@pullback_of.register(SVD)
def _svd(
    op: SVD,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    cotangents: Sequence[TensorVariable],
) -> Any:
    """The pullback of ``a = u diag(s) v^T`` with k = min(m, n) columns in u and v.

    The part of ū outside of the columns of u is divided by s, and is left out if m = k; so for v. Vectors
    of equal singular values have no derivative: it is NaN or infinite, where PyTensor takes gaps of 1e-8.
    The columns after the first k of a full u or v have none either: the gradient is NaN if their cotangent
    is not 0. PyTensor has no gradient of full matrices at all.

    References
    ----------
    Seeger et al. (2017), "Auto-differentiating linear algebra", arXiv:1710.08717.
    """
    (a,) = inputs
    of_vectors = cotangents[::2]
    is_own = op.compute_uv and a.type.dtype.startswith("float")
    of_values_alone = all(isinstance(g.type, DisconnectedType) for g in of_vectors)
    if op.compute_uv and op.full_matrices and of_values_alone:
        op = SVD(full_matrices=False)
        outputs = op.make_node(a).outputs
    if not is_own or of_values_alone:
        return own_pullback(op, inputs, outputs, cotangents)
    u, s, vt = outputs
    u_cotangent, s_cotangent, vt_cotangent = (
        pt.zeros_like(x) if isinstance(g.type, DisconnectedType) else g
        for x, g in zip(outputs, cotangents, strict=True)
    )
    undefined = None
    if op.full_matrices:
        k = s.shape[0]
        has_rest = [pt.neq(x, 0).any() for x in (u_cotangent[:, k:], vt_cotangent[k:])]
        undefined = pt.switch(pt.or_(*has_rest), np.nan, 0).astype(a.type.dtype)
        u, vt, u_cotangent, vt_cotangent = u[:, :k], vt[:k], u_cotangent[:, :k], vt_cotangent[:k]
    is_diagonal = pt.eye(s.shape[0], dtype="bool")
    gaps = pt.switch(is_diagonal, 1, (s - s[:, None]) * (s + s[:, None]))
    of_u, of_v = u.mT @ u_cotangent, vt @ vt_cotangent.mT
    turned = (of_u - of_u.mT) * s + s[:, None] * (of_v - of_v.mT)
    middle = pt.switch(is_diagonal, s_cotangent, turned / gaps)
    outside = u_cotangent - u @ of_u, vt_cotangent.mT - vt.mT @ of_v
    left, right = (
        pt.switch(n > s.shape[0], x / pt.switch(n > s.shape[0], s, 1), 0)
        for n, x in zip(a.shape, outside, strict=True)
    )
    total = (u @ middle + left) @ vt + u @ right.mT
    return [total if undefined is None else total + undefined]
