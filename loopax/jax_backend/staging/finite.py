"""An identity that raises, when the program runs, if a flag is set.

It resembles the identity of `checked`, with two differences. The error is only known at run time: if the
flag is set, a branch computes a report from the arguments of the program, and the host makes an error of
it. And the rows of a batch stay separate, so that the error names one.

Tangents and cotangents pass through the identity, too: otherwise a gradient that needs no value would skip
the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from loopax.base.errors import UnsupportedOpError
from loopax.base.upstream.jax import Primitive, ad, batching, mlir
from loopax.ir.sequences import with_items
from loopax.jax_backend.staging.checked import raised_on_host
from loopax.jax_backend.staging.primitive_rules import (
    Batch,
    BatchAxes,
    Operand,
    Tangents,
    over_batch,
    with_axis_in_front,
)
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Report:
    """The report to compute if a flag is set, a flat list of arrays, and the error for it.

    For a batch the error is made from the reports of all rows.
    """

    of: Callable[..., Any]
    error: Callable[[np.ndarray], Exception]


def raising_where_not_finite(
    xs: Sequence[jax.Array], flag: jax.Array, args: Sequence[jax.Array], report: Report
) -> list[Any]:
    """Return arrays ``xs``; at run time, raise by the ``report`` of ``args`` if ``flag`` is set."""
    if not xs:
        return []
    return _raising.bind(*xs, flag, *args, n=len(xs), report=report, batch=())


def looking_at_gradient(x: Array, error: Callable[[np.ndarray], Exception]) -> Any:
    """Return ``x``; on the way back, raise if its cotangent is not finite.

    ``error`` is called with the cotangent, or with all cotangents of a batch.
    """
    return _looked_at.bind(x, error=error)


_raising = Primitive("raising_where_not_finite")
_raising.multiple_results = True


@_raising.def_abstract_eval
def _shapes(*args: ShapedArray, n: int, **params: object) -> list[Any]:
    return list(args[:n])


@_raising.def_impl
def _run(*args: jax.Array, n: int, report: Report, batch: Batch) -> list[Any]:
    if np.any(args[n]):
        raise report.error(np.asarray(_of_rows(report, batch, n)(*args[n + 1 :])))
    return list(args[:n])


def _of_rows(report: Report, batch: Batch, n: int) -> Callable[..., Any]:
    """Map the report over the rows of the batch."""
    return over_batch(report.of, tuple(has_axis[n + 1 :] for has_axis in batch))


def _in_program(*args: jax.Array, n: int, report: Report, batch: Batch) -> list[Any]:
    def fail(reports: Array) -> Any:
        raise report.error(np.asarray(reports))

    def failed(xs: Sequence[jax.Array], values: Sequence[jax.Array]) -> Any:
        return raised_on_host(fail, xs, _of_rows(report, batch, n)(*values))

    xs, flag, values = list(args[:n]), args[n], list(args[n + 1 :])
    return manual_axes.cond(jnp.any(flag), failed, lambda xs, _: xs, xs, values)


_lowered = mlir.lower_fun(_in_program, multiple_results=True)


def _lower(ctx: mlir.LoweringRuleContext, *args: object, **params: object) -> Any:
    if ctx.module_context.lowering_parameters.for_export:
        message = (
            "A program that looks for nan calls Python where it finds one, and no exported program can. "
            "Export that of jaxify(..., checks='ignore'), and let it return what is to be looked at: "
            "jaxify([x], [y, pt.isfinite(y).all()], checks='ignore')."
        )
        raise UnsupportedOpError(message, [message])
    return _lowered(ctx, *args, **params)


def _through(
    dots: Tangents, others: Sequence[Any], batch: Batch, n: int, report: Report
) -> list[Any]:
    """Pass the nonzero tangents or cotangents through the identity."""
    at = [k for k, t in enumerate(dots) if not isinstance(t, ad.Zero)]
    if not at:
        return list(dots)
    some = tuple((*(level[k] for k in at), *level[n:]) for level in batch)
    outs = _raising.bind(*(dots[k] for k in at), *others, n=len(at), report=report, batch=some)
    return with_items(list(dots), at, outs)


def _jvp(
    primals: Sequence[jax.Array], tangents: Tangents, *, n: int, report: Report, batch: Batch
) -> Any:
    outs = _raising.bind(*primals, n=n, report=report, batch=batch)
    return outs, _through(tangents[:n], primals[n:], batch, n, report)


def _transpose(cotangents: Tangents, *args: Operand, n: int, report: Report, batch: Batch) -> Any:
    arrived = _through(cotangents, args[n:], batch, n, report)
    return [*arrived, *[None] * (len(args) - n)]


def _batch(
    args: Sequence[jax.Array], axes: BatchAxes, *, n: int, report: Report, batch: Batch
) -> Any:
    has_axis = tuple(axis is not None for axis in axes)
    outs = _raising.bind(
        *with_axis_in_front(args, axes), n=n, report=report, batch=(has_axis, *batch)
    )
    return outs, [0 if has else None for has in has_axis[:n]]


mlir.register_lowering(_raising, _lower)
ad.primitive_jvps[_raising] = _jvp
ad.primitive_transposes[_raising] = _transpose
batching.primitive_batchers[_raising] = _batch


# -- gradients -------------------------------------------------------------------------------------

_looked_at = Primitive("looking_at_gradient")
_looked_at.def_impl(lambda x, **params: x)
_looked_at.def_abstract_eval(lambda x, **params: x)


def _cotangent(
    cotangent: jax.Array | ad.Zero, x: object, *, error: Callable[[np.ndarray], Exception]
) -> Any:
    if isinstance(cotangent, ad.Zero):
        return [cotangent]
    flag = jnp.logical_not(jnp.isfinite(cotangent).all())
    return raising_where_not_finite([cotangent], flag, [cotangent], Report(lambda c: c, error))


mlir.register_lowering(_looked_at, lambda ctx, x, **params: [x])
# The forward pass inspects nothing, and the tangent is the primitive itself: it is linear.
ad.deflinear2(_looked_at, _cotangent)
batching.primitive_batchers[_looked_at] = lambda args, axes, **params: (
    _looked_at.bind(*args, **params),
    axes[0],
)
