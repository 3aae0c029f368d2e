"""``loopax_kernel``: a `Kernel` as a primitive of JAX, with its rules.

Its derivatives and batches are the same primitive, of other kernels or over more axes, so that every
transformation of JAX takes it, to any order. On the CPU it is one call of native code; on other platforms,
and where it is exported, JAX's operations.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from loopax.ir.errors import DynamicShapeError, UnsupportedOpError
from loopax.ir.lock import TRACING
from loopax.ir.places import function_at
from loopax.jax_backend.kernels.kernel import Kernel, NotPlain, Shapes
from loopax.jax_backend.kernels.linearization import Linearization, linearization
from loopax.jax_backend.staging.checked import Checkable
from loopax.jax_backend.staging.frame import NeedsStatic
from loopax.jax_backend.values import in_mesh

# For each axis of a batch, the first one first, which inputs have it. The outputs have all of them.
Batch = tuple[tuple[bool, ...], ...]

kernel_p = Checkable("loopax_kernel")
kernel_p.multiple_results = True


def bind(kernel: Kernel, args: Sequence[Any], batch: Batch = ()) -> list[Any]:
    """The outputs of ``kernel`` for ``args``, which have the dtypes that its inputs declare."""
    args = in_mesh.alike(args)
    if not kernel.is_checkable:
        return kernel_p.bind(*args, kernel=kernel, batch=batch)
    avals = tuple((jnp.shape(x), jnp.result_type(x)) for x in args)
    jaxpr = _jaxpr(kernel, batch, avals)
    return kernel_p.bind(*args, kernel=kernel, batch=batch, call_jaxpr=jaxpr)


@lru_cache(maxsize=512)
def _jaxpr(kernel: Kernel, batch: Batch, avals: tuple[Any, ...]) -> Any:
    """The kernel over its batch, with its checks, for arguments of these shapes and dtypes."""
    args = [jax.ShapeDtypeStruct(*aval) for aval in avals]
    return jax.make_jaxpr(_in_jax(kernel, batch))(*args)


@lru_cache(maxsize=512)
def _compiled(kernel: Kernel, batch: Batch) -> Any:
    return jax.jit(lambda *args: bind(kernel, args, batch))


@kernel_p.def_impl
def _impl(*args: Any, kernel: Kernel, batch: Batch, **params: Any) -> Any:
    # Else it would come back here: without jit, and to find out which operation has made a nan.
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        outs = _compiled(kernel, batch)(*args)
    _check_special(kernel, outs)
    return outs


def _check_special(kernel: Kernel, outs: Sequence[Any]) -> None:
    """Raise what JAX raises of an operation, where it is to look for nan or inf."""
    looks = {
        "nan": (jax.config.jax_debug_nans, jnp.isnan),
        "inf": (jax.config.jax_debug_infs, jnp.isinf),
    }
    for said, (looked_for, is_it) in looks.items():
        if looked_for and any(is_it(outs[k]).any() for k in kernel.floats):
            raise FloatingPointError(f"invalid value ({said}) encountered in {kernel.name}")


@kernel_p.def_abstract_eval
def _abstract(*args: Any, kernel: Kernel, batch: Batch, **params: Any) -> list[Any]:
    rows = _row_shapes(args, batch)
    lengths = _batch_shape(args, batch)
    shapes = kernel.shapes(rows)
    results = [
        jax.ShapeDtypeStruct((*lengths, *s), t) for s, t in zip(shapes, kernel.dtypes, strict=True)
    ]
    return in_mesh.results_like(args, results)


def _axes(batch: Batch, k: int, level: int | None = None) -> int:
    """How many axes of the batch (before ``level``) input ``k`` has."""
    return sum(has_axis[k] for has_axis in batch[:level])


def _row_shapes(args: Sequence[Any], batch: Batch) -> Shapes:
    """Those of one element of the batch."""
    return tuple(jnp.shape(x)[_axes(batch, k) :] for k, x in enumerate(args))


def _batch_shape(args: Sequence[Any], batch: Batch) -> tuple[int, ...]:
    firsts = [has_axis.index(True) for has_axis in batch]
    return tuple(args[k].shape[_axes(batch, k, level)] for level, k in enumerate(firsts))


# -- derivatives -----------------------------------------------------------------------------------


def _jvp(primals: Any, tangents: Any, *, kernel: Kernel, batch: Batch, **params: Any) -> Any:
    wrt = tuple(k for k, t in enumerate(tangents) if type(t) is not ad.Zero)
    moving = [tangents[k] for k in wrt]
    if not kernel.floats:
        outs = bind(kernel, primals, batch)
        return outs, _with_zeros(outs, {})
    if kernel.is_differentiated_by_jax:
        return _jvp_in_jax(kernel, batch, primals, wrt, moving)
    derive = _jvp_of_scalar if kernel.is_scalar else _jvp_of_arrays
    try:
        return derive(kernel, batch, primals, wrt, moving)
    except NotImplementedError:  # an op has no derivative in PyTensor; it may have one in JAX
        return _jvp_in_jax(kernel, batch, primals, wrt, moving)


def _jvp_of_scalar(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    """By the gradient, which is computed with the value: what is left is linear, and JAX's."""
    outs = bind(kernel.with_gradient(wrt), primals, batch)
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


def _jvp_of_arrays(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    shared = _shared(kernel, batch, primals, wrt)
    forward, push = shared or (kernel, kernel.pushforward(wrt))
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
            shared.forward.shapes(_row_shapes(primals, batch))
    except (NotPlain, DynamicShapeError, NeedsStatic, UnsupportedOpError):
        return None
    return shared


def _jvp_in_jax(
    kernel: Kernel, batch: Batch, primals: Any, wrt: tuple[int, ...], tangents: Any
) -> Any:
    values = function_at(_in_jax(kernel, batch), primals, wrt)
    outs, moved = jax.jvp(values, tuple(primals[k] for k in wrt), tuple(tangents))
    return outs, _with_zeros(outs, {k: moved[k] for k in kernel.floats})


def _with_zeros(outs: Sequence[Any], tangents: dict[int, Any]) -> list[Any]:
    """A tangent for each output: zero for those that have none."""
    return [tangents.get(k, ad.Zero(jax.typeof(x).to_tangent_aval())) for k, x in enumerate(outs)]


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


# -- batches ---------------------------------------------------------------------------------------


def _batched(args: Any, axes: Any, *, kernel: Kernel, batch: Batch, **params: Any) -> Any:
    has_axis = tuple(axis is not None for axis in axes)
    moved = [
        jnp.moveaxis(x, axis, 0) if has else x
        for x, axis, has in zip(args, axes, has_axis, strict=True)
    ]
    outs = bind(kernel, moved, (has_axis, *batch))
    return outs, [0] * len(outs)


# -- lowering --------------------------------------------------------------------------------------


def _in_jax(kernel: Kernel, batch: Batch) -> Any:
    """The kernel over its batch, in JAX's operations."""
    function: Any = kernel.in_jax
    for has_axis in reversed(batch):
        function = jax.vmap(function, in_axes=tuple(0 if has else None for has in has_axis))
    return function


def _lowered_to_jax(ctx: Any, *args: Any, kernel: Kernel, batch: Batch, **params: Any) -> Any:
    return mlir.lower_fun(_in_jax(kernel, batch), multiple_results=True)(ctx, *args)


def _lowered_to_native(ctx: Any, *args: Any, kernel: Kernel, batch: Batch, **params: Any) -> Any:
    shapes = _row_shapes(ctx.avals_in, batch)
    rows = math.prod(_batch_shape(ctx.avals_in, batch))
    exported = ctx.module_context.lowering_parameters.for_export
    if exported or not kernel.policy.chooses_native(shapes, rows) or kernel.no_code:
        return _lowered_to_jax(ctx, *args, kernel=kernel, batch=batch)
    try:
        divided = kernel.policy.divided(shapes, rows)
        name, address = kernel.code.handler(shapes, batch, divided)
    except UnsupportedOpError as error:
        warnings.warn(f"{error} It runs as JAX's operations.", UserWarning, stacklevel=2)
        return _lowered_to_jax(ctx, *args, kernel=kernel, batch=batch)
    _register(name, address)
    return jax.ffi.ffi_lowering(name)(ctx, *args)


_REGISTERED: set[str] = set()


def _register(name: str, address: int) -> None:
    """XLA takes a name once."""
    with TRACING:
        if name not in _REGISTERED:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
            _REGISTERED.add(name)


ad.primitive_jvps[kernel_p] = _jvp
ad.primitive_transposes[kernel_p] = _transpose
batching.primitive_batchers[kernel_p] = _batched
mlir.register_lowering(kernel_p, _lowered_to_jax)
mlir.register_lowering(kernel_p, _lowered_to_native, platform="cpu")
