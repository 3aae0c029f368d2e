"""Branches of a ``switch`` with finite derivatives where they are not taken.

``switch(z > 0, sqrt(z), 0)`` at 0, and ``switch(isinf(m), exp(m), exp(x - m))`` at 1000, have the
right values; but JAX multiplies the zero cotangent of the branch that is not taken by that branch's
derivative, which is infinite, and 0 times infinity is NaN. PyTensor's own gradients give 0 there. So
a branch that ends in such a function is computed again, with a harmless argument in the elements
that take the other branch. Values stay as they are.

Between the function and the switch there may be functions of elements, and what moves elements or adds
them up. An element is replaced where all that is computed of it takes the other branch. A product of
matrices ends the search (docs/native_loops_in_jax.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from jax.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.math import GammaLn, Log1mexp
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from loopax.facts.elementwise import scalar_op_of
from loopax.facts.scalars import is_real
from loopax.jax_backend.staging.evaluate import Site, convert_arrays
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import AnyArray, PaddedArray
from loopax.numerics.arrays import Array

_DEPTH = 6  # of the chain of ops that is searched for a singular function
_HARMLESS = 0.5  # in the domain of all of them but these, with a finite derivative
_OTHER_HARMLESS: dict[type, float] = {ps.ArcCosh: 2.0, Log1mexp: -0.5}
_SINGULAR = (
    ps.Exp,
    ps.Exp2,
    ps.Expm1,
    ps.Log,
    ps.Log2,
    ps.Log10,
    ps.Log1p,
    ps.Sqrt,
    ps.Reciprocal,
    ps.ArcSin,
    ps.ArcCos,
    ps.ArcTanh,
    ps.Cosh,
    ps.Sinh,
    ps.ArcCosh,
    ps.ArcTan2,
    GammaLn,
    Log1mexp,
)
_MOVING = (Alloc, DimShuffle, Sum, Subtensor, Reshape, SpecifyShape)


def guarded(
    site: Site,
    apply_scalar: Callable[..., list[Any]],
    condition: jax.Array,
    then: ArrayLike,
    otherwise: ArrayLike,
) -> tuple[Any, Any, Any]:
    """The inputs of a switch, its branches replaced where they could spoil a derivative."""
    if not is_traced(condition):
        return condition, then, otherwise
    # Of the length of the result: the variables that are guarded may be traces with more room.
    mask = jnp.asarray(condition).astype(bool)
    mask = jnp.broadcast_to(mask, np.broadcast_shapes(*map(np.shape, (mask, then, otherwise))))
    _, a, b = site.node.inputs
    safe_then = _guard(site, apply_scalar, a, mask, _DEPTH)
    safe_otherwise = _guard(site, apply_scalar, b, ~mask, _DEPTH)
    return (
        condition,
        then if safe_then is None else safe_then,
        otherwise if safe_otherwise is None else safe_otherwise,
    )


def _guard(
    site: Site, apply_scalar: Callable[..., list[Any]], v: Variable, mask: jax.Array, depth: int
) -> Any:
    """``v`` computed again with harmless arguments outside ``mask``; None where there is no need."""
    node = v.owner
    if node is None or depth == 0:
        return None
    if isinstance(node.op, _MOVING):
        return _guard_moved(site, apply_scalar, node, mask, depth)
    if scalar_op_of(node.op) is None or len(node.outputs) > 1:
        return None
    values = [_rows(site.frame.read(u), mask) for u in node.inputs]
    op = node.op.scalar_op
    if not any(map(is_traced, values)) or not is_real(v):
        return None
    new = [_guard(site, apply_scalar, u, mask, depth - 1) for u in node.inputs]
    at, harmless = _singular_argument(op, values)
    if at is not None and is_real(node.inputs[at]):
        new[at] = _harmless(mask, values[at] if new[at] is None else new[at], harmless)
    if all(x is None for x in new):
        return None
    operands = [x if n is None else n for x, n in zip(values, new, strict=True)]
    try:
        (out,) = apply_scalar(site, op, node, operands)
    except NotImplementedError:  # a function of the host, which the program calls once
        return None
    return jax.lax.convert_element_type(out, v.type.dtype) if out.dtype != v.type.dtype else out


def _singular_argument(op: ScalarOp, values: Sequence[Array]) -> tuple[int | None, float]:
    """The argument by which the derivative of ``op`` may be infinite, and a value where it is not."""
    if isinstance(op, _SINGULAR):
        return 0, _OTHER_HARMLESS.get(type(op), _HARMLESS)
    if isinstance(op, ps.TrueDiv) and is_traced(values[1]):
        return 1, _HARMLESS
    return (0, _HARMLESS) if isinstance(op, ps.Pow) else (None, _HARMLESS)


def _guard_moved(
    site: Site, apply_scalar: Callable[..., list[Any]], node: Apply, mask: jax.Array, depth: int
) -> Any:
    """`_guard` of the output of a linear op: an element is needed where one that reads it is."""
    values = [site.frame.read(u) for u in node.inputs]
    inner = Site(node, (True,), site.frame)
    x = values[0]
    if not is_traced(x) or not all(
        isinstance(y, np.ndarray | np.generic | jax.Array) for y in values
    ):
        return None
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return None

    def moved(x: jax.Array) -> Any:
        return convert_arrays(inner, [x, *values[1:]])[0]

    out, pull = jax.vjp(moved, x)
    if (needed := _of_shape(mask, out.shape)) is None:
        return None
    (pulled,) = pull(needed.astype(out.dtype))
    safe = _guard(site, apply_scalar, node.inputs[0], pulled > 0, depth - 1)
    return None if safe is None else moved(safe)


def _of_shape(mask: jax.Array, shape: tuple[int, ...]) -> Any:
    """Where elements are needed of an array that is broadcast to the shape of ``mask``; None of a trace."""
    if mask.ndim < len(shape):
        return None
    mask = mask.any(axis=tuple(range(mask.ndim - len(shape))))
    along = tuple(k for k, (n, m) in enumerate(zip(shape, mask.shape, strict=True)) if n == 1 != m)
    mask = mask.any(axis=along, keepdims=True)
    return mask if mask.shape == shape else None


def _rows(x: AnyArray, mask: jax.Array) -> Array:
    """The array of a trace, with as many rows as the mask has."""
    return x.fitted(mask.shape[x.axis]).data if isinstance(x, PaddedArray) else x


def _harmless(mask: jax.Array, x: Array, value: float) -> jax.Array:
    return jnp.where(mask, x, jnp.asarray(value, dtype=jnp.asarray(x).dtype))
