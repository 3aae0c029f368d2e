"""Branches of a ``switch`` with finite derivatives where they are not taken.

``switch(z > 0, sqrt(z), 0)`` at 0, ``switch(isinf(m), exp(m), exp(x - m))`` at 1000, and
``switch(isnan(y), 0, (y - m) ** 2)`` at a missing ``y`` have the right values; but JAX multiplies the zero
cotangent of the branch that is not taken by that branch's derivative, which is infinite or NaN, and the
product is NaN. PyTensor's own gradients give 0 there. So a branch is computed again, with harmless
arguments of such functions in the elements that take the other branch. Values stay as they are.

Between the function and the switch there may be functions of elements, and what moves elements, joins or
adds them up, multiplies them or takes the largest. An element is replaced where all that is computed of
it takes the other branch. A product of matrices ends the search (docs/native_loops_in_jax.md).
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
from pytensor.graph.op import Op
from pytensor.scalar.math import (
    I0,
    I1,
    BetaInc,
    Erfcinv,
    Erfcx,
    Erfinv,
    Gamma,
    GammaInc,
    GammaIncC,
    GammaLn,
    Hyp2F1,
    Kve,
    Log1mexp,
    PolyGamma,
    Psi,
    TriGamma,
)
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Max, Min, Prod, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from loopax.base.upstream.pytensor import AdvancedSubtensor1
from loopax.facts.elementwise import scalar_op_of
from loopax.facts.scalars import is_real, linear_groups
from loopax.jax_backend.staging.evaluate import Site, convert_arrays
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import AnyArray, PaddedArray
from loopax.numerics.arrays import Array

# Of the chain of ops that is searched for a singular function. The value and gradient of a censored
# regression and of zero-inflated counts take 1.2 to 1.35 of their time with 6, where a longer chain is NaN.
_DEPTH = 12
# Functions whose derivative may be infinite, by which argument, and a value of it where it is finite.
_SINGULAR: dict[type, tuple[int, float]] = {
    **dict.fromkeys((ps.Exp, ps.Exp2, ps.Expm1, ps.Cosh, ps.Sinh, Erfcx, I0, I1), (0, 0.5)),
    **dict.fromkeys((ps.Log, ps.Log2, ps.Log10, ps.Log1p, ps.Sqrt, ps.Reciprocal), (0, 0.5)),
    **dict.fromkeys((ps.ArcSin, ps.ArcCos, ps.ArcTanh, ps.ArcTan2, Erfinv, Erfcinv), (0, 0.5)),
    **dict.fromkeys((Gamma, GammaLn, Psi, TriGamma, ps.Pow), (0, 0.5)),
    **dict.fromkeys((GammaInc, GammaIncC, Kve, PolyGamma, ps.TrueDiv, ps.Mod), (1, 0.5)),
    ps.ArcCosh: (0, 2.0),
    Log1mexp: (0, -0.5),
    BetaInc: (2, 0.5),
    Hyp2F1: (3, 0.5),
}
_HARMLESS = 0.5  # of all other functions
_PIECEWISE_LINEAR = (ps.Abs, ps.Clip, ps.ScalarMaximum, ps.ScalarMinimum)
_MOVING = (
    *(Alloc, DimShuffle, Join, MakeVector, Reshape, SpecifyShape, Sum),
    *(Subtensor, AdvancedSubtensor, AdvancedSubtensor1),
)


def guarded(
    site: Site,
    apply_scalar: Callable[..., list[Any]],
    condition: ArrayLike,
    then: ArrayLike,
    otherwise: ArrayLike,
) -> tuple[Any, Any, Any]:
    """The inputs of a switch, its branches replaced where they could spoil a derivative."""
    if not is_traced(then) and not is_traced(otherwise):
        return condition, then, otherwise
    if not is_traced(condition):
        # One branch alone has all of the derivative. Its place keeps the other's shape, not its derivative.
        is_true = np.asarray(condition).astype(bool)
        if is_true.all():
            return condition, then, jnp.zeros_like(otherwise)
        if not is_true.any():
            return condition, jnp.zeros_like(then), otherwise
    # Of the length of the result: the variables that are guarded may be traces with more room.
    mask = jnp.asarray(condition).astype(bool)
    mask = jnp.broadcast_to(mask, np.broadcast_shapes(*map(np.shape, (mask, then, otherwise))))
    _, a, b = site.node.inputs
    search = _Search(site, apply_scalar)
    safe_then = search.safe(a, mask, _DEPTH)
    safe_otherwise = search.safe(b, ~mask, _DEPTH)
    return (
        condition,
        then if safe_then is None else safe_then,
        otherwise if safe_otherwise is None else safe_otherwise,
    )


class _Search:
    """The search of the branches of one switch for singular functions."""

    def __init__(self, site: Site, apply_scalar: Callable[..., list[Any]]) -> None:
        self._site = site
        self._apply_scalar = apply_scalar
        # By variable and mask, which is kept, or another one might have its identity.
        self._results: dict[tuple[Variable, int], tuple[jax.Array, Any]] = {}

    def safe(self, v: Variable, mask: jax.Array, depth: int) -> Any:
        """``v`` computed with harmless arguments outside ``mask``; None where there is no need."""
        key = v, id(mask)
        if key not in self._results:
            self._results[key] = mask, self._computed(v, mask, depth)
        return self._results[key][1]

    def _computed(self, v: Variable, mask: jax.Array, depth: int) -> Any:
        node = v.owner
        if node is None or depth == 0:
            return None
        if isinstance(node.op, _MOVING):
            return self._moved(node, mask, depth)
        if isinstance(node.op, Max | Min | Prod):
            return self._reduced(node, mask, depth)
        if scalar_op_of(node.op) is None or len(node.outputs) > 1:
            return None
        values = [_rows(self._site.frame.read(u), mask) for u in node.inputs]
        op = node.op.scalar_op
        if not any(map(is_traced, values)) or not is_real(v):
            return None
        masks = [mask] * len(values)
        if isinstance(op, ps.Switch):  # which has guarded its own branches, and would lose that
            is_true = jnp.asarray(values[0]).astype(bool)
            masks = [mask, mask & is_true, mask & ~is_true]
        new = [self.safe(u, m, depth - 1) for u, m in zip(node.inputs, masks, strict=True)]
        at, harmless = _SINGULAR.get(type(op), (None, _HARMLESS))
        if at is not None and is_traced(values[at]) and is_real(node.inputs[at]):
            new[at] = _harmless(mask, values[at] if new[at] is None else new[at], harmless)
        for k in _read_by_slopes(op, values):
            if new[k] is None and is_real(node.inputs[k]) and _may_be_infinite(values[k]):
                new[k] = _harmless(masks[k], values[k], _HARMLESS)
        if all(x is None for x in new):
            return None
        operands = [x if n is None else n for x, n in zip(values, new, strict=True)]
        try:
            (out,) = self._apply_scalar(self._site, op, node, operands)
        except NotImplementedError:  # a function of the host, which the program calls once
            return None
        is_other = out.dtype != v.type.dtype
        return jax.lax.convert_element_type(out, v.type.dtype) if is_other else out

    def _moved(self, node: Apply, mask: jax.Array, depth: int) -> Any:
        """`safe` of the output of a linear op: an element is needed where one that reads it is."""
        if (values := self._arrays(node)) is None:
            return None
        moving = [
            k
            for k, x in enumerate(values)
            if is_traced(x) and jnp.issubdtype(x.dtype, jnp.floating)
        ]
        if not moving:
            return None
        inner = Site(node, (True,), self._site.frame)

        def moved(*arrays: jax.Array) -> Any:
            new = dict(zip(moving, arrays, strict=True))
            return convert_arrays(inner, [new.get(k, x) for k, x in enumerate(values)])[0]

        out, pull = jax.vjp(moved, *(values[k] for k in moving))
        if (needed := _of_shape(mask, out.shape)) is None:
            return None
        pulled = pull(needed.astype(out.dtype))
        new = [
            self.safe(node.inputs[k], p > 0, depth - 1) for k, p in zip(moving, pulled, strict=True)
        ]
        if all(x is None for x in new):
            return None
        return moved(*(values[k] if x is None else x for k, x in zip(moving, new, strict=True)))

    def _reduced(self, node: Apply, mask: jax.Array, depth: int) -> Any:
        """`safe` of a maximum or a product: all elements are needed of which one result is read."""
        if (values := self._arrays(node)) is None or not is_traced(values[0]):
            return None
        (x,), (v,) = values, node.inputs
        axes = tuple(range(x.ndim)) if node.op.axis is None else tuple(node.op.axis)
        shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
        if not is_real(v) or (needed := _of_shape(mask, shape)) is None:
            return None
        read = jnp.broadcast_to(jnp.expand_dims(needed, axes), x.shape)
        safe = self.safe(v, read, depth - 1)
        if safe is None and isinstance(node.op, Prod):  # whose slopes are products of the others
            safe = _harmless(read, x, _HARMLESS)
        if safe is None:
            return None
        return convert_arrays(Site(node, (True,), self._site.frame), [safe])[0]

    def _arrays(self, node: Apply) -> list[Any] | None:
        """The values of the inputs of ``node``; None if one is not an array of a known shape."""
        values = [self._site.frame.read(u) for u in node.inputs]
        are_arrays = all(isinstance(y, np.ndarray | np.generic | jax.Array) for y in values)
        return values if are_arrays else None


def _read_by_slopes(op: Op, values: Sequence[Any]) -> set[int]:
    """The operands of a scalar op on which its derivatives in traced operands depend.

    A sum has none, a product both, if both are traced. The slopes of a maximum are 0 and 1 in any case.
    """
    if isinstance(op, _PIECEWISE_LINEAR):
        return set()
    everything = set(range(len(values)))
    groups = linear_groups(op, len(values))
    return {
        k
        for moving, x in enumerate(values)
        if is_traced(x)
        for k in everything - max((g for g in groups if moving in g), key=len, default=frozenset())
    }


def _may_be_infinite(x: AnyArray) -> bool:
    """Whether an element of ``x`` may be infinite or NaN."""
    return is_traced(x) or not np.isfinite(x).all()


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
