"""The rules of `loopax_kernel`'s derivatives: forwards, and, taken apart, backwards.

Forwards one kernel gives the outputs and their tangents; two, where many tangents share their outputs
(`jax.jacfwd`), and where what is derived is a gradient. Backwards JAX has another way: it computes first
what does not read the tangents, keeps what is linear in them, and transposes that. Then the gradient of a
number is computed with the number, and the product with the tangent is JAX's; of arrays there is a
`linearization`. A derivative forwards that JAX has traced, the step of a loop, is taken apart later.

In one kernel a value and a tangent take 0.7 to 0.8 of the time of a gradient and the product with it, those
of 64 rows 0.2 to 0.7 (GARCH, AR(2), HMM, Kalman, nested loops; Runge-Kutta 1.1, XLA's in both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from loopax.base.errors import DynamicShapeError, UnsupportedOpError
from loopax.base.upstream.jax import JaxprEqn, Var, ad, set_current_trace
from loopax.base.upstream.jax import partial_eval as pe
from loopax.ir.places import function_at
from loopax.jax_backend.staging.frame import NeedsStatic
from loopax.kernels.derivative_kernels import (
    pushforward,
    with_gradient,
    with_pushforward,
)
from loopax.kernels.kernel import Kernel, NotPlain
from loopax.kernels.linearization import Linearization, linearization
from loopax.kernels.primitive import (
    Batch,
    bind,
    in_jax,
    kernel_jvp_p,
    kernel_p,
    row_shapes,
)


def _jvp(primals: Any, tangents: Any, *, kernel: Kernel, batch: Batch, **params: Any) -> Any:
    wrt = tuple(k for k, t in enumerate(tangents) if type(t) is not ad.Zero)
    moving = [tangents[k] for k in wrt]
    if not kernel.floats:
        outs = bind(kernel, primals, batch)
        return outs, _with_zeros(outs, {})
    if kernel.is_differentiated_by_jax:
        return _jvp_in_jax(kernel, batch, primals, wrt, moving)
    # JAX keeps the tangents for later (`jax.grad`, `jax.linearize`).
    is_linearized = any(isinstance(t, pe.JaxprTracer) for t in moving)
    derive = _linearized if is_linearized else _jvp_at_once
    try:
        return derive(kernel, batch, primals, wrt, moving)
    except NotImplementedError:  # an op has no derivative in PyTensor; it may have one in JAX
        return _jvp_in_jax(kernel, batch, primals, wrt, moving)


def _jvp_at_once(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    of_both = tuple((*has_axis, *(has_axis[k] for k in wrt)) for has_axis in batch)
    if kernel.policy.is_backward:
        # A product with a Hessian reads the tangents alone, and XLA drops the gradient. Both in one kernel
        # took three times as long for a hidden Markov model in logs, too long to be held in locals.
        outs = bind(kernel, primals, batch)
        moved = bind(pushforward(kernel, wrt), [*primals, *tangents], of_both)
    else:
        found = bind(with_pushforward(kernel, wrt), [*primals, *tangents], of_both)
        outs, moved = found[: len(kernel.outputs)], found[len(kernel.outputs) :]
    return outs, _with_zeros(outs, dict(zip(kernel.floats, moved, strict=True)))


def _linearized(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    """Outputs that do not read the tangents, and what is linear in these."""
    derive = _linearized_scalar if kernel.is_scalar else _linearized_arrays
    return derive(kernel, batch, primals, wrt, tangents)


def _linearized_scalar(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    """By the gradient, which is computed with the value: what is left is linear, and JAX's."""
    outs = bind(with_gradient(kernel, wrt), primals, batch)
    values, slopes = outs[: len(kernel.outputs)], outs[len(kernel.outputs) :]
    depth = len(batch)
    scalar = kernel.floats[0]
    total: Any = jnp.zeros((), kernel.dtypes[scalar])
    for k, slope, t in zip(wrt, slopes, tangents, strict=True):
        product = slope * _spread(t, [has_axis[k] for has_axis in batch])
        part = product.sum(axis=tuple(range(depth, slope.ndim)))
        total = total + part.astype(total.dtype)  # an input may have fewer bits, or more
    return values, _with_zeros(values, {scalar: total})


def _spread(t: Any, has_axis: Sequence[bool]) -> Any:
    """``t`` with an axis of length 1 for each one of the batch that it does not have."""
    missing = [level for level, has in enumerate(has_axis) if not has]
    return jnp.expand_dims(t, missing) if missing else t


def _linearized_arrays(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    shared = _shared(kernel, batch, primals, wrt)
    forward, push = shared or (kernel, pushforward(kernel, wrt))
    found = bind(forward, primals, batch)
    outs, residuals = found[: len(kernel.outputs)], found[len(kernel.outputs) :]
    full = (True,) * len(residuals)  # what comes out has all axes of the batch
    of_all = tuple((*has_axis, *full, *(has_axis[k] for k in wrt)) for has_axis in batch)
    moved = bind(push, [*primals, *residuals, *tangents], of_all)
    return outs, _with_zeros(outs, dict(zip(kernel.floats, moved, strict=True)))


def _shared(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...]
) -> Linearization | None:
    """The `linearization`; None too where the residuals have shapes that JAX cannot know."""
    shared = linearization(kernel, wrt)
    try:
        if shared is not None:
            shared.forward.shapes(row_shapes(primals, batch))
    except (NotPlain, DynamicShapeError, NeedsStatic, UnsupportedOpError):
        return None
    return shared


def _jvp_in_jax(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    values = function_at(in_jax(kernel, batch), primals, wrt)
    outs, moved = jax.jvp(values, tuple(primals[k] for k in wrt), tuple(tangents))
    return outs, _with_zeros(outs, {k: moved[k] for k in kernel.floats})


def _with_zeros(outs: Sequence[Any], tangents: dict[int, Any]) -> list[Any]:
    """A tangent for each output: zero for those that have none."""
    return [tangents.get(k, _zero_of(x)) for k, x in enumerate(outs)]


def _zero_of(x: Any) -> ad.Zero:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


# -- a kernel and its pushforward, taken apart -----------------------------------------------------


def _split(trace: Any, *tracers: Any, kernel: Kernel, batch: Batch, **params: Any) -> list[Any]:
    """Where JAX computes what does not read the tangents, and keeps the rest: in a loop, say."""
    assert kernel.pushes is not None
    of, wrt = kernel.pushes
    n = len(of.inputs)
    known = [t.is_known() for t in tracers]
    if all(known) or not all(known[:n]):
        params = {"kernel": kernel, "batch": batch, **params}
        return trace.default_process_primitive(kernel_jvp_p, tracers, params)
    primals, moving = tracers[:n], dict(zip(wrt, tracers[n:], strict=True))
    tangents = [moving.get(k, _zero_of(x)) for k, x in enumerate(primals)]
    with set_current_trace(trace):
        of_values = tuple(has_axis[:n] for has_axis in batch)
        outs, moved = _jvp(primals, tangents, kernel=of, batch=of_values)
        return [*outs, *(moved[k] for k in of.floats)]


def _split_equation(saveable: Any, unknown: Any, instantiated: Any, eqn: JaxprEqn) -> Any:
    """`_split` for `jax.checkpoint`, which computes the values again before it transposes what is left.

    Returns what is computed at first, what is computed later, which outputs only the latter gives, and
    which it gives at all; and the inputs that it needs beside those that it has. What may be saved by the
    policy of the checkpoint is computed again all the same.
    """
    of, _ = eqn.params["kernel"].pushes
    n, n_outs, n_all = len(of.inputs), len(of.outputs), len(eqn.outvars)
    missing = [
        v for v, has in zip(eqn.invars, instantiated, strict=True) if isinstance(v, Var) and not has
    ]
    if any(unknown[:n]):
        return None, eqn, [True] * n_all, [True] * n_all, missing
    if not any(unknown):
        return eqn, eqn, [False] * n_all, [True] * n_all, missing
    batch = tuple(has_axis[:n] for has_axis in eqn.params["batch"])
    values = eqn.replace(
        primitive=kernel_p,
        invars=eqn.invars[:n],
        outvars=eqn.outvars[:n_outs],
        params={"kernel": of, "batch": batch},
    )
    later = [k >= n_outs for k in range(n_all)]
    return values, eqn, later, [True] * n_all, missing


def _transpose(
    cotangents: Any, *args: Any, kernel: Kernel, batch: Batch, **params: Any
) -> list[Any]:
    first = len(kernel.inputs) - kernel.linear
    assert kernel.transpose is not None, f"{kernel.name} is not linear"
    pull = kernel.transpose()
    dense = [ad.instantiate_zeros(ct) for ct in cotangents]
    full = (True,) * len(dense)  # the outputs have all axes of the batch
    of_both = tuple((*has_axis[:first], *full) for has_axis in batch)
    arrived = bind(pull, [*args[:first], *dense], of_both)
    of_inputs: list[Any] = [None] * first
    for k, ct in enumerate(arrived, first):
        if not ad.is_undefined_primal(args[k]):
            of_inputs.append(None)
            continue
        missing = tuple(level for level, has_axis in enumerate(batch) if not has_axis[k])
        of_inputs.append(ct.sum(axis=missing) if missing else ct)
    return of_inputs


for _p in (kernel_p, kernel_jvp_p):
    ad.primitive_jvps[_p] = _jvp
ad.primitive_transposes[kernel_p] = _transpose
pe.custom_partial_eval_rules[kernel_jvp_p] = _split
pe.partial_eval_jaxpr_custom_rules[kernel_jvp_p] = _split_equation
