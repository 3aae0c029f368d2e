"""The derivatives of a graph with respect to its root variables, as graphs.

    gradients       one pullback
    pulled_back     the transposed Jacobian times a cotangent
    pushed_forward  the Jacobian times a tangent
    jacobian        a block for each output and each variable, by as many products as there are rows, or
                    columns

A batch of products is one graph: values that depend on the seeds have a further leading axis, in
loops too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import pytensor
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.ir.batching.batch import vectorized
from loopax.ir.batching.row_loop import row_by_row
from loopax.ir.derivatives.inner_gradients import is_float, is_null, zeros_for
from loopax.ir.derivatives.traversal import pull_back, push_forward
from loopax.ir.shapes import lengths

# PyTensor's exceptions for an op, such as a product, whose pullback has no pullback itself.
NO_PUSHFORWARD = NotImplementedError, TypeError, ValueError, NullTypeGradError


def gradients(wrt: Sequence[Variable], outputs: Sequence[TensorVariable]) -> list[Any]:
    """The gradient of the one output, a float scalar, for each of ``wrt``; zeros where it is constant.

    Raises `pytensor.gradient.NullTypeGradError` if an op on the way has no derivative.
    """
    (value,) = outputs
    slopes = pull_back(wrt, [value], [pt.ones_like(value)])
    _refuse_null(slopes)
    return [zeros_for(v) if g is None else g for v, g in zip(wrt, slopes, strict=True)]


def _refuse_null(slopes: Sequence[Any]) -> None:
    for g in slopes:
        if is_null(g):
            raise NullTypeGradError(g.type.why_null)


def pulled_back(
    wrt: Sequence[Variable], outputs: Sequence[TensorVariable], cotangents: Sequence[Any]
) -> list[Any]:
    """The cotangents of ``wrt`` for given cotangents of ``outputs``; zeros where disconnected.

    Raises `pytensor.gradient.NullTypeGradError` if an op on the way has no derivative.
    """
    typed_cotangents = [
        v.type.filter_variable(c.astype(v.type.dtype)) if is_float(v) else None
        for v, c in zip(outputs, cotangents, strict=True)
    ]
    in_cotangents = pull_back(wrt, outputs, typed_cotangents)
    _refuse_null(in_cotangents)
    return [zeros_for(v) if g is None else g for v, g in zip(wrt, in_cotangents, strict=True)]


def pushed_forward(
    wrt: Sequence[TensorVariable], outputs: Sequence[TensorVariable], tangents: Sequence[Any]
) -> list[Any]:
    """The tangents of ``outputs`` for given tangents of ``wrt``; zeros where disconnected."""
    out_tangents = push_forward(wrt, outputs, list(tangents))
    return [
        (zeros_for(v) if is_float(v) else v.zeros_like(dtype=pytensor.config.floatX))
        if t is None
        else t
        for v, t in zip(outputs, out_tangents, strict=True)
    ]


def jacobian(
    wrt: Sequence[TensorVariable], outputs: Sequence[TensorVariable], forward: bool | None = None
) -> list[list[Any]]:
    """The blocks for each output and each of ``wrt``, of shape ``(*output.shape, *variable.shape)``.

    Parameters
    ----------
    forward
        Whether to use pushforwards; by default where there are provably no more columns than rows.
    """
    columns, rows = _n_elements(wrt), _n_elements(outputs)
    fewer = columns is not None and (columns <= rows if rows is not None else columns == 1)
    if fewer if forward is None else forward:
        try:
            by_variable = [_columns(wrt, k, outputs) for k in range(len(wrt))]
            return [list(blocks) for blocks in zip(*by_variable, strict=True)]
        except NO_PUSHFORWARD:
            if forward:
                raise
    return [_rows(wrt, outputs, k) for k in range(len(outputs))]


def _n_elements(variables: Sequence[Variable]) -> int | None:
    sizes = [n for v in variables for n in v.type.shape]
    return None if None in sizes else sum(prod(v.type.shape) for v in variables)


def _columns(wrt: Sequence[TensorVariable], k: int, outputs: Sequence[TensorVariable]) -> list[Any]:
    """The blocks of the variable ``k``, one for each output."""
    v = wrt[k]
    seed = v.type()
    tangents = [seed if j == k else None for j in range(len(wrt))]
    out_tangents = pushed_forward(wrt, outputs, tangents)
    batches = over_rows(out_tangents, {seed: _identity(v)})
    return [
        pt.moveaxis(t, 0, -1).reshape((*lengths(y), *lengths(v)))
        if v.type.ndim != 1
        else pt.moveaxis(t, 0, -1)
        for y, t in zip(outputs, batches, strict=True)
    ]


def _rows(wrt: Sequence[TensorVariable], outputs: Sequence[TensorVariable], k: int) -> list[Any]:
    """The blocks of the output ``k``, one for each variable."""
    y = outputs[k]
    if not y.type.ndim:
        return pulled_back(wrt, [y], [pt.ones((), dtype=y.type.dtype)])
    seed = TensorType(y.type.dtype, y.type.shape)()
    batches = over_rows(pulled_back(wrt, [y], [seed]), {seed: _identity(y)})
    return [
        g.reshape((*lengths(y), *lengths(v))) if y.type.ndim != 1 else g
        for v, g in zip(wrt, batches, strict=True)
    ]


def _identity(v: TensorVariable) -> Any:
    """The seeds of ``v``: for each element an array of its shape with a one there."""
    n: Any = 1
    for length in lengths(v):
        n = n * length
    # PyTensor's eye is a Blockwise, which cannot be evaluated inside of a body (PyTensor 3.3.7).
    index = pt.arange(n, dtype="int64")
    eye = pt.eq(index[:, None], index[None, :]).astype(v.type.dtype)
    return eye if v.type.ndim == 1 else eye.reshape((n, *lengths(v)))


# -- batches of products -----------------------------------------------------------------------------


def over_rows(
    outputs: Sequence[Variable], seeds: dict[TensorVariable, TensorVariable]
) -> list[Any]:
    """Compute ``outputs``, linear in the variables of ``seeds``, for each row of the seeds.

    The results have a leading axis. Where an op cannot be batched, a loop over the rows computes it.
    """
    n = next(iter(seeds.values())).shape[0]
    try:
        batched = vectorized(outputs, seeds)
    except (NotImplementedError, TypeError):
        batched = row_by_row(outputs, seeds, n)
    return [
        batch
        if batch.type.ndim > out.type.ndim
        else pt.broadcast_to(batch, (n, *(batch.shape[k] for k in range(batch.type.ndim))))
        for out, batch in zip(outputs, batched, strict=True)
    ]
