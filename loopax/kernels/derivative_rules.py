"""Derivative rules of `loopax_kernel`: forward mode, and its partial evaluation for reverse mode.

In forward mode one kernel computes the outputs and their tangents; two kernels do where many tangents share
their outputs (`jax.jacfwd`) and where a gradient is differentiated. In reverse mode JAX first computes all
that does not read the tangents, then transposes the remaining linear part. The gradient of a scalar is
computed with the scalar, and JAX multiplies it by the tangent; arrays have a `linearization`. A forward
derivative that JAX has already traced, in the step of a loop, is split later.

In one kernel a value and a tangent take 0.7 to 0.8 of the time of a gradient and the product with it, for
64 rows 0.2 to 0.7 (GARCH, AR(2), HMM, Kalman, nested loops; Runge-Kutta 1.1, XLA's in both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.gradient import NullTypeGradError

from loopax.base.errors import DynamicShapeError, UnsupportedOpError
from loopax.base.upstream.jax import JaxprEqn, ad, set_current_trace
from loopax.base.upstream.jax import partial_eval as pe
from loopax.ir.sequences import partial_at
from loopax.jax_backend.staging.frame import NeedsStatic
from loopax.jax_backend.staging.primitive_rules import (
    Batch,
    Operand,
    Tangents,
    division_for_checkpoint,
)
from loopax.kernels.derivative_kernels import pushforward, with_gradient, with_pushforward
from loopax.kernels.kernel import Kernel, NotPlain
from loopax.kernels.linearization import Linearization, linearization
from loopax.kernels.primitive import bind, in_jax, kernel_jvp_p, kernel_p, row_shapes
from loopax.numerics.arrays import Array


def _jvp(
    primals: Sequence[Array], tangents: Tangents, *, kernel: Kernel, batch: Batch, **params: object
) -> Any:
    wrt = tuple(k for k, t in enumerate(tangents) if type(t) is not ad.Zero)
    moving = [t for t in tangents if not isinstance(t, ad.Zero)]
    if not kernel.floats:
        outs = bind(kernel, primals, batch)
        return outs, _with_zeros(outs, {})
    if kernel.is_differentiated_by_jax:
        return _jvp_in_jax(kernel, batch, primals, wrt, moving)
    derive = _jvp_at_once
    if any(isinstance(t, pe.JaxprTracer) for t in moving):
        # JAX keeps the tangents for later (`jax.grad`, `jax.linearize`): the outputs must not read them.
        derive = _linearized_scalar if kernel.is_scalar else _linearized_arrays
    try:
        return derive(kernel, batch, primals, wrt, moving)
    # An op lacks a derivative in PyTensor; it may have one in JAX.
    except (NotImplementedError, NullTypeGradError):
        return _jvp_in_jax(kernel, batch, primals, wrt, moving)


def _jvp_at_once(
    kernel: Kernel,
    batch: Batch,
    primals: Sequence[Array],
    wrt: tuple[int, ...],
    tangents: Sequence[jax.Array],
) -> Any:
    joint_batch = tuple((*has_axis, *(has_axis[k] for k in wrt)) for has_axis in batch)
    if kernel.policy.is_backward:
        # A Hessian product reads only the tangents, and XLA drops the gradient. Both in one kernel took
        # three times as long for a hidden Markov model in logs: too many lines to keep arrays in locals.
        outs = bind(kernel, primals, batch)
        out_tangents = bind(pushforward(kernel, wrt), [*primals, *tangents], joint_batch)
    else:
        results = bind(with_pushforward(kernel, wrt), [*primals, *tangents], joint_batch)
        outs, out_tangents = results[: len(kernel.outputs)], results[len(kernel.outputs) :]
    return outs, _with_zeros(outs, dict(zip(kernel.floats, out_tangents, strict=True)))


def _linearized_scalar(
    kernel: Kernel,
    batch: Batch,
    primals: Sequence[Array],
    wrt: tuple[int, ...],
    tangents: Sequence[jax.Array],
) -> Any:
    """Compute the value and its gradient by one kernel; JAX multiplies the gradient by the tangents."""
    outs = bind(with_gradient(kernel, wrt), primals, batch)
    values, slopes = outs[: len(kernel.outputs)], outs[len(kernel.outputs) :]
    depth = len(batch)
    scalar = kernel.floats[0]
    total: Any = jnp.zeros((), kernel.dtypes[scalar])
    for k, slope, t in zip(wrt, slopes, tangents, strict=True):
        product = slope * _spread(t, [has_axis[k] for has_axis in batch])
        contribution = product.sum(axis=tuple(range(depth, slope.ndim)))
        total = total + contribution.astype(total.dtype)  # inputs may have different precisions
    return values, _with_zeros(values, {scalar: total})


def _spread(t: jax.Array, has_axis: Sequence[bool]) -> jax.Array:
    """``t`` with an axis of length 1 for each axis of the batch that it lacks."""
    missing = [level for level, has in enumerate(has_axis) if not has]
    return jnp.expand_dims(t, missing) if missing else t


def _linearized_arrays(
    kernel: Kernel,
    batch: Batch,
    primals: Sequence[Array],
    wrt: tuple[int, ...],
    tangents: Sequence[jax.Array],
) -> Any:
    shared = _shared(kernel, batch, primals, wrt)
    forward, push = shared or (kernel, pushforward(kernel, wrt))
    results = bind(forward, primals, batch)
    outs, residuals = results[: len(kernel.outputs)], results[len(kernel.outputs) :]
    all_axes = (True,) * len(residuals)  # outputs have all axes of the batch
    push_batch = tuple((*has_axis, *all_axes, *(has_axis[k] for k in wrt)) for has_axis in batch)
    out_tangents = bind(push, [*primals, *residuals, *tangents], push_batch)
    return outs, _with_zeros(outs, dict(zip(kernel.floats, out_tangents, strict=True)))


def _shared(
    kernel: Kernel, batch: Batch, primals: Sequence[Array], wrt: tuple[int, ...]
) -> Linearization | None:
    """The `linearization`; None also where JAX cannot know the shapes of the residuals."""
    shared = linearization(kernel, wrt)
    try:
        if shared is not None:
            shared.forward.shapes(row_shapes(primals, batch))
    except (NotPlain, DynamicShapeError, NeedsStatic, UnsupportedOpError):
        return None
    return shared


def _jvp_in_jax(
    kernel: Kernel,
    batch: Batch,
    primals: Sequence[Array],
    wrt: tuple[int, ...],
    tangents: Sequence[jax.Array],
) -> Any:
    values = partial_at(in_jax(kernel, batch), primals, wrt)
    outs, out_tangents = jax.jvp(values, tuple(primals[k] for k in wrt), tuple(tangents))
    return outs, _with_zeros(outs, {k: out_tangents[k] for k in kernel.floats})


def _with_zeros(outs: Sequence[jax.Array], tangents: dict[int, Any]) -> list[Any]:
    """A tangent for each output, zero if it has none."""
    return [tangents.get(k, _zero_of(x)) for k, x in enumerate(outs)]


def _zero_of(x: jax.Array) -> ad.Zero:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


# -- a kernel and its pushforward, taken apart -----------------------------------------------------


def _split(
    trace: Any, *tracers: pe.JaxprTracer, kernel: Kernel, batch: Batch, **params: object
) -> list[Any]:
    """Partial evaluation: compute the outputs, and leave the tangents linear; used for loop steps."""
    assert kernel.jvp_of is not None
    primal_kernel, wrt = kernel.jvp_of
    n = len(primal_kernel.inputs)
    is_known = [t.is_known() for t in tracers]
    if all(is_known) or not all(is_known[:n]):
        params = {"kernel": kernel, "batch": batch, **params}
        return trace.default_process_primitive(kernel_jvp_p, tracers, params)
    primals, moving = tracers[:n], dict(zip(wrt, tracers[n:], strict=True))
    tangents = [moving.get(k, _zero_of(x)) for k, x in enumerate(primals)]
    with set_current_trace(trace):
        primal_batch = tuple(has_axis[:n] for has_axis in batch)
        outs, out_tangents = _jvp(primals, tangents, kernel=primal_kernel, batch=primal_batch)
        return [*outs, *(out_tangents[k] for k in primal_kernel.floats)]


def _split_equation(
    saveable: object, unknown: Sequence[bool], instantiated: Sequence[bool], eqn: JaxprEqn
) -> Any:
    """Apply `_split` under `jax.checkpoint`: see `division_for_checkpoint`."""
    primal_kernel, _ = eqn.params["kernel"].jvp_of
    n, n_outs, n_all = len(primal_kernel.inputs), len(primal_kernel.outputs), len(eqn.outvars)
    if any(unknown[:n]):
        return division_for_checkpoint(eqn, instantiated, None, [True] * n_all)
    if not any(unknown):
        return division_for_checkpoint(eqn, instantiated, eqn, [False] * n_all)
    batch = tuple(has_axis[:n] for has_axis in eqn.params["batch"])
    values = eqn.replace(
        primitive=kernel_p,
        invars=eqn.invars[:n],
        outvars=eqn.outvars[:n_outs],
        params={"kernel": primal_kernel, "batch": batch},
    )
    is_later = [k >= n_outs for k in range(n_all)]
    return division_for_checkpoint(eqn, instantiated, values, is_later)


def _transpose(
    cotangents: Tangents, *args: Operand, kernel: Kernel, batch: Batch, **params: object
) -> list[Any]:
    n_fixed = len(kernel.inputs) - kernel.linear
    assert kernel.transpose is not None, f"{kernel.name} is not linear"
    pull = kernel.transpose()
    dense = [ad.instantiate_zeros(ct) for ct in cotangents]
    all_axes = (True,) * len(dense)  # the outputs have all axes of the batch
    pull_batch = tuple((*has_axis[:n_fixed], *all_axes) for has_axis in batch)
    operands: list[Any] = [*args[:n_fixed], *dense]
    linear_cotangents = bind(pull, operands, pull_batch)
    in_cotangents: list[Any] = [None] * n_fixed
    for k, ct in enumerate(linear_cotangents, n_fixed):
        if not ad.is_undefined_primal(args[k]):
            in_cotangents.append(None)
            continue
        missing = tuple(level for level, has_axis in enumerate(batch) if not has_axis[k])
        in_cotangents.append(ct.sum(axis=missing) if missing else ct)
    return in_cotangents


for _p in (kernel_p, kernel_jvp_p):
    ad.primitive_jvps[_p] = _jvp
ad.primitive_transposes[kernel_p] = _transpose
pe.custom_partial_eval_rules[kernel_jvp_p] = _split
pe.partial_eval_jaxpr_custom_rules[kernel_jvp_p] = _split_equation
