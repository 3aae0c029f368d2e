"""Cumulative sums and products along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import refuse, rule
from loopax.frontend.from_jaxpr.reductions import extreme_number
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions
from loopax.ir.ops.calling_convention import INDEX_TYPE

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


@rule("cumsum", "cumprod")
def _cumulative(eqn: JaxprEqn, x: TensorVariable) -> Any:
    axis, dtype = eqn.params["axis"], x.type.dtype
    if dtype.startswith("complex"):
        raise refuse(eqn, "complex numbers")
    if not dtype.startswith("float"):
        x = x.astype("int64")  # in which sums wrap as in the shorter dtype
    run = pt.cumsum if eqn.primitive.name == "cumsum" else pt.cumprod
    if not eqn.params["reverse"]:
        return run(x, axis=axis).astype(dtype)
    flip = (*[slice(None)] * axis, slice(None, None, -1))
    return run(x[flip], axis=axis)[flip].astype(dtype)


_RUNNING = {"cummax": pt.maximum, "cummin": pt.minimum, "cumlogsumexp": pt.logaddexp}


@rule(*_RUNNING)
def _running(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """A loop over the rows of ``x``, whose state is the extreme, or the sum, of the rows so far."""
    name, axis, dtype = eqn.primitive.name, eqn.params["axis"], x.type.dtype
    if dtype.startswith("complex") or (name == "cumlogsumexp" and not dtype.startswith("float")):
        raise refuse(eqn, str(dtype))
    order = [axis, *(k for k in range(x.type.ndim) if k != axis)]
    rows = x.dimshuffle(order)
    row = rows.type.clone(shape=rows.type.shape[1:])
    below, state = row(), row()
    after = _RUNNING[name](state, below)
    loop = Scan.from_body(
        BodyArgs(INDEX_TYPE(), [below], [state], []),
        BodyOuts([after], [after]),
        ScanOptions(reverse=eqn.params["reverse"]),
    )
    # The initial state that leaves the first row as it is.
    start = pt.full(row.shape, extreme_number(dtype, largest=name == "cummin"))
    length = pt.constant(rows.type.shape[0], dtype="int64")
    trace: Any = loop.bind(ScanArgs(length, [rows], [start], []))[1]
    return trace.dimshuffle(list(np.argsort(order)))
