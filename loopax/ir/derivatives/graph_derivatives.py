"""The derivatives of a graph with respect to root variables of it, as graphs: dense, or with few products.

    gradients       one pullback
    pulled_back     the transposed Jacobian times a cotangent
    pushed_forward  the Jacobian times a tangent
    jacobian        a block for each output and each variable, by as many products as there are rows, or
                    columns

A batch of products is one graph: what depends on the seeds has an axis more, in front, loops included.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import pytensor
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType

from loopax.ir.derivatives.inner_gradients import is_float, is_null, zeros_for
from loopax.ir.derivatives.traversal import pull_back, push_forward
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs
from loopax.ir.ops.scan import Scan
from loopax.ir.replace import replaced
from loopax.ir.shapes import lengths

# What PyTensor raises where an op has a pullback only, and that has none of its own: a product, say.
NO_PUSHFORWARD = NotImplementedError, TypeError, ValueError, NullTypeGradError


def gradients(wrt: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """The gradient of the one output, a float scalar, by each of ``wrt``; zeros where it is constant.

    Raises
    ------
    pytensor.gradient.NullTypeGradError
        An op on the way has no derivative.
    """
    (value,) = outputs
    slopes = pull_back(wrt, [value], [pt.ones_like(value)])
    _refuse_null(slopes)
    return [zeros_for(v) if g is None else g for v, g in zip(wrt, slopes, strict=True)]


def _refuse_null(slopes: Sequence[Any]) -> None:
    for g in slopes:
        if is_null(g):
            raise NullTypeGradError(g.type.why_null)


def pulled_back(wrt: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of ``wrt``, of their types, from those of ``outputs``; None for what is no float.

    Raises
    ------
    pytensor.gradient.NullTypeGradError
        An op on the way has no derivative.
    """
    given = [
        v.type.filter_variable(c.astype(v.type.dtype)) if is_float(v) else None
        for v, c in zip(outputs, cotangents, strict=True)
    ]
    found = pull_back(wrt, outputs, given)
    _refuse_null(found)
    return [zeros_for(v) if g is None else g for v, g in zip(wrt, found, strict=True)]


def pushed_forward(
    wrt: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """The tangents of ``outputs``, of their types, from those of ``wrt``; zeros where none arrives."""
    found = push_forward(wrt, outputs, list(tangents))
    return [
        (zeros_for(v) if is_float(v) else v.zeros_like(dtype=pytensor.config.floatX))
        if t is None
        else t
        for v, t in zip(outputs, found, strict=True)
    ]


def jacobian(
    wrt: Sequence[Any], outputs: Sequence[Any], forward: bool | None = None
) -> list[list[Any]]:
    """For each output a block for each of ``wrt``, of shape ``(*output.shape, *variable.shape)``.

    Parameters
    ----------
    forward
        Whether by pushforwards; by default where there are known to be no more columns than rows.
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


def _n_elements(variables: Sequence[Any]) -> int | None:
    sizes = [n for v in variables for n in v.type.shape]
    return None if None in sizes else sum(prod(v.type.shape) for v in variables)


def _columns(wrt: Sequence[Any], k: int, outputs: Sequence[Any]) -> list[Any]:
    """The blocks of the variable ``k``, of each output."""
    v = wrt[k]
    seed = v.type()
    tangents = [seed if j == k else None for j in range(len(wrt))]
    pushed = pushed_forward(wrt, outputs, tangents)
    found = over_rows(pushed, {seed: _identity(v)})
    return [
        pt.moveaxis(t, 0, -1).reshape((*lengths(y), *lengths(v)))
        if v.type.ndim != 1
        else pt.moveaxis(t, 0, -1)
        for y, t in zip(outputs, found, strict=True)
    ]


def _rows(wrt: Sequence[Any], outputs: Sequence[Any], k: int) -> list[Any]:
    """The blocks of the output ``k``, of each variable."""
    y = outputs[k]
    if not y.type.ndim:
        return pulled_back(wrt, [y], [pt.ones((), dtype=y.type.dtype)])
    seed = TensorType(y.type.dtype, y.type.shape)()
    found = over_rows(pulled_back(wrt, [y], [seed]), {seed: _identity(y)})
    return [
        g.reshape((*lengths(y), *lengths(v))) if y.type.ndim != 1 else g
        for v, g in zip(wrt, found, strict=True)
    ]


def _identity(v: Any) -> Any:
    """Seeds: for each element of ``v`` an array of its shape with a one there."""
    n: Any = 1
    for length in lengths(v):
        n = n * length
    # PyTensor's eye is a Blockwise, which nobody can evaluate inside of a body (PyTensor 3.3.7).
    index = pt.arange(n, dtype="int64")
    eye = pt.eq(index[:, None], index[None, :]).astype(v.type.dtype)
    return eye if v.type.ndim == 1 else eye.reshape((n, *lengths(v)))


# -- batches of products -----------------------------------------------------------------------------


def over_rows(outputs: Sequence[Any], seeds: dict[Any, Any]) -> list[Any]:
    """``outputs``, linear in the variables of ``seeds``, for each row of these: an axis more, in front.

    An op without a form for a batch makes it a loop over the rows.
    """
    found: Any
    try:
        found = vectorize_graph(list(outputs), seeds)
    except (NotImplementedError, TypeError):
        found = _row_by_row(outputs, seeds)
    n = next(iter(seeds.values())).shape[0]
    return [
        new
        if new.type.ndim > old.type.ndim
        else pt.broadcast_to(new, (n, *(new.shape[k] for k in range(new.type.ndim))))
        for old, new in zip(outputs, found, strict=True)
    ]


def _row_by_row(outputs: Sequence[Any], seeds: dict[Any, Any]) -> list[Any]:
    others = [v for v in graph_inputs(outputs) if not hasattr(v, "data") and v not in seeds]
    inner = [v.type() for v in others]
    rows = [v.type() for v in seeds]
    replace = dict(zip([*others, *seeds], [*inner, *rows], strict=True))
    body = BodyArgs(pt.lscalar(), rows, [], inner)
    loop = Scan.from_body(body, BodyOuts([], replaced(outputs, replace)))
    matrices = list(seeds.values())
    return loop.bind(ScanArgs(matrices[0].shape[0], matrices, [], others))
