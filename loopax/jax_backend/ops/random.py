"""Random draws: a key replaces the generator, a sampler replaces ``rng_fn``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable

from loopax.base.errors import LoopTypeError, describe, undeclared
from loopax.jax_backend.ops import distributions  # noqa: F401  # registers them
from loopax.jax_backend.ops.distributions.host import draw_on_host
from loopax.jax_backend.ops.distributions.registry import (
    Family,
    find_family,
    pytensors_draw,
    users_sampler,
)
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.staging.symbolic import as_lengths
from loopax.numerics.arrays import Array
from loopax.numerics.no_number import no_number


@rule(RandomVariable)
def random_variable(site: Site, key: jax.Array, size: Array | None, *parameters: Array) -> Any:
    """The next key and the draw, from the two halves of the given key.

    Nodes that read one generator variable split one key, so they draw the same, as in PyTensor.
    """
    next_key, draw_key = jax.random.split(key)
    if not site.used[1]:
        return next_key, None
    known = site.static(1)
    lengths = None if known is None else as_lengths(np.asarray(known))
    return next_key, _draw(site, draw_key, lengths, parameters)


def _draw(
    site: Site, key: jax.Array, size: tuple[int, ...] | None, parameters: Sequence[Array]
) -> Any:
    op, dtype = site.op, jax.dtypes.canonicalize_dtype(site.node.outputs[1].type.dtype)
    shape = _batch_shape(site, size, parameters)
    if not jnp.issubdtype(dtype, jnp.inexact):
        # A count is not differentiable in its parameters, and its loop has no reverse mode.
        parameters = [jax.lax.stop_gradient(p) if is_traced(p) else p for p in parameters]
    if users_sampler(op) is not None:
        values = [jnp.asarray(p) for p in parameters]
        draw = pytensors_draw(op, site.node, key, shape, str(dtype), *values)
        return _of_shape(site, draw, shape)
    family = find_family(op)
    if family is None:
        return draw_on_host(site, key, size, parameters)
    parameters = list(parameters)
    for k in family.known(op):
        parameters[k] = site.static(2 + k)
    invalid = _invalid(site, family, parameters)
    arrays = family.converted(op, parameters, dtype)
    if family.draw is None:
        draw = pytensors_draw(op, site.node, key, shape, str(arrays[0].dtype), *arrays)
    else:
        draw = family.draw(key, shape, dtype, *arrays, **family.options(op))
    draw = _of_shape(site, draw, shape).astype(dtype)
    if invalid is None:
        return draw
    invalid = jnp.reshape(invalid, (*np.shape(invalid), *[1] * (draw.ndim - len(shape))))
    return jnp.where(invalid, no_number(dtype), draw)


def _batch_shape(
    site: Site, size: tuple[int, ...] | None, parameters: Sequence[Array]
) -> tuple[int, ...]:
    """The shape ``size``, or if it is None the broadcast batch shape of the parameters."""
    node, op = site.node, site.op
    shapes = [
        np.shape(p)[: np.ndim(p) - n] for p, n in zip(parameters, op.ndims_params, strict=True)
    ]
    draw, plain = node.outputs[1], [_without_new_axes(v) for v in node.inputs[2:]]
    if size is None:
        try:
            batch = np.broadcast_shapes(*shapes)
            _check_declared(site, shapes, batch)
            return batch
        except ValueError:
            these = ", ".join(
                f"{shape} of {describe(v)}" for v, shape in zip(plain, shapes, strict=True)
            )
            raise LoopTypeError(
                f"The parameters of {describe(draw)} have batch shapes that do not broadcast: {these}. "
                "Each dimension must be the same, or 1."
            ) from None
    if min(size, default=0) < 0:
        raise LoopTypeError(f"{describe(draw)} has the size {size}: lengths must be 0 or more.")
    for v, shape in zip(plain, shapes, strict=True):
        same = len(shape) <= len(size) and all(
            n in (1, m) for n, m in zip(reversed(shape), reversed(size), strict=False)
        )
        if not same:
            raise LoopTypeError(
                f"{describe(draw)} has the size {size}, to which its parameter {describe(v)} of batch "
                f"shape {shape} does not broadcast. The size is the shape of all draws: pass one that "
                f"ends in {shape}, or size=None."
            )
    _check_declared(site, shapes, size)
    return size


def _check_declared(site: Site, shapes: Sequence[Any], batch: Sequence[int]) -> None:
    """Raise if a parameter axis is broadcast whose *type* does not say that it has length 1."""
    for v, shape in zip(site.node.inputs[2:], shapes, strict=True):
        declared = v.type.broadcastable[: len(shape)]
        wanted = batch[len(batch) - len(shape) :]
        for k, (n, m, d) in enumerate(zip(shape, wanted, declared, strict=True)):
            if n != m and not d:
                raise LoopTypeError(undeclared(k, v, site.op))


def _without_new_axes(v: Variable) -> Variable:
    """The parameter as it was passed, before PyTensor gave all parameters one rank."""
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        if not v.owner.op.is_left_expand_dims:
            break
        v = v.owner.inputs[0]
    return v


def _invalid(site: Site, family: Family, parameters: Sequence[Array]) -> Any:
    """Where a parameter is invalid for its distribution; None if all are known to be valid.

    Raises `ValueError` if one is known to be invalid while JAX traces, as NumPy does. A NaN gives NaN
    instead.
    """
    draw = site.node.outputs[1]
    is_float = jnp.issubdtype(draw.type.dtype, jnp.inexact)
    has_nan = is_float and any(
        p.dtype.kind == "f" and np.isnan(p).any() for p in parameters if isinstance(p, np.ndarray)
    )
    invalid = None
    for words, truth in family.conditions(*parameters).items():
        if not is_traced(truth):
            if np.all(truth):
                continue
            if not has_nan:
                known = [np.asarray(p) for p in parameters if not is_traced(p)]
                shown = [np.array2string(p, threshold=8, separator=", ") for p in known]
                raise ValueError(
                    f"{describe(draw)} is a draw by {site.op.name}, whose parameters must satisfy "
                    f"{words}, but these do not: {', '.join(shown)}. Pass parameters that do."
                )
        invalid = ~truth if invalid is None else invalid | ~truth
    return invalid


def _of_shape(site: Site, drawn: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Check the shape of ``drawn``: a user's own sampler could return another one."""
    draw = site.node.outputs[1]
    if drawn.shape[: len(shape)] == shape and drawn.ndim == draw.type.ndim:
        return drawn
    raise LoopTypeError(
        f"The sampler of {describe(draw)} returned an array of shape {drawn.shape}, but it must have "
        f"rank {draw.type.ndim} and begin with the batch shape {shape}, which is passed to it as "
        "`size`."
    )
