"""Branches of a ``switch`` with finite derivatives where they are not taken.

``switch(z > 0, sqrt(z), 0)`` at 0, ``switch(isinf(m), exp(m), exp(x - m))`` at 1000, and
``switch(isnan(y), 0, (y - m) ** 2)`` at a missing ``y`` have the right values; but JAX multiplies the zero
cotangent of the branch that is not taken by that branch's derivative, which is infinite or NaN, and the
product is NaN. PyTensor's own gradients give 0 there. So a branch is computed again, with harmless
arguments of such functions in the elements that take the other branch. Values stay as they are.

Between the function and the switch there may be functions of elements, and ops that move elements, join
or reduce them, or work along axes, as products of matrices do. An element is replaced where all that is
computed of it takes the other branch. Derivatives that loopax takes itself have the same by
`loopax.ir.derivatives.supported`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from jax.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.math import Prod

from loopax.facts import Structure, facts_of
from loopax.facts.axes import axes_along_input
from loopax.facts.elementwise import scalar_op_of
from loopax.facts.linearity import read_by_slopes
from loopax.facts.scalars import is_real, scalar_facts
from loopax.ir.derivatives.supported import is_move
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of
from loopax.jax_backend.ops.computed_once import computed_once, held
from loopax.jax_backend.ops.extrema import has_no_derivative
from loopax.jax_backend.staging.evaluate import Site, convert_arrays
from loopax.jax_backend.staging.registry import has_conversion
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import AnyArray, PaddedArray
from loopax.numerics.arrays import Array

# Of the chain of ops that is searched for a singular function. The value and gradient of a censored
# regression and of zero-inflated counts take 1.4 to 1.6 of their time with 6, where a longer chain is NaN.
_DEPTH = 12
_HARMLESS = 0.5  # where a function of numbers names no other


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
        self._projections: dict[tuple[int, tuple[int, ...]], tuple[jax.Array, jax.Array]] = {}

    def safe(self, v: Variable, mask: jax.Array, depth: int) -> Any:
        """``v`` computed with harmless arguments outside ``mask``; None where there is no need."""
        key = v, id(mask)
        if key not in self._results:
            self._results[key] = mask, self._computed(v, mask, depth)
        return self._results[key][1]

    def _computed(self, v: Variable, mask: jax.Array, depth: int) -> Any:
        node = v.owner
        if node is None or depth == 0 or has_no_derivative(self._site, v):
            return None
        if len(node.outputs) > 1:
            return None
        if is_move(node):
            return self._moved(node, mask, depth)
        if scalar_op_of(node.op) is None:
            return self._along_axes(node, mask, depth)
        values = [_rows(self._site.frame.read(u), mask) for u in node.inputs]
        op = node.op.scalar_op
        if not any(map(is_traced, values)) or not is_real(v):
            return None
        masks = [mask] * len(values)
        if isinstance(op, ps.Switch):  # which has guarded its own branches, and would lose that
            is_true = jnp.asarray(values[0]).astype(bool)
            masks = [mask, mask & is_true, mask & ~is_true]
        masks = [self._of_operand(m, np.shape(x)) for m, x in zip(masks, values, strict=True)]
        new = [self.safe(u, m, depth - 1) for u, m in zip(node.inputs, masks, strict=True)]
        facts = scalar_facts(op)
        at, harmless = (facts and facts.singular) or (None, _HARMLESS)
        if at is not None and is_traced(values[at]) and is_real(node.inputs[at]):
            new[at] = _harmless(masks[at], values[at] if new[at] is None else new[at], harmless)
        for k in read_by_slopes(node, (k for k, x in enumerate(values) if is_traced(x))):
            if k != at and is_real(node.inputs[k]) and _may_be_infinite(values[k]):
                new[k] = _harmless(masks[k], values[k] if new[k] is None else new[k], _HARMLESS)
        if all(x is None for x in new):
            return None
        operands = [x if n is None else n for x, n in zip(values, new, strict=True)]
        try:
            (out,) = self._apply_scalar(self._site, op, node, operands)
        except NotImplementedError:  # a function of the host, which the program calls once
            return None
        if out.dtype != v.type.dtype:
            out = jax.lax.convert_element_type(out, v.type.dtype)
        is_barred = computed_once(Site(node, (True,), self._site.frame))
        return held(out) if is_barred else out

    def _of_operand(self, mask: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Where an operand of an elementwise op is needed: a number that is broadcast is computed once."""
        key = id(mask), shape
        if key not in self._projections:
            projected = mask if shape == mask.shape else _of_shape(mask, shape)
            self._projections[key] = mask, mask if projected is None else projected
        return self._projections[key][1]

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

    def _along_axes(self, node: Apply, mask: jax.Array, depth: int) -> Any:
        """`safe` of the output of an op that runs along some axes, and reads all along the others."""
        values = self._arrays(node) if _runs_in_jax(node.op) and is_real(node.outputs[0]) else None
        if values is None:
            return None
        if (needed := _of_shape(mask, np.shape(self._site.frame.read(node.outputs[0])))) is None:
            return None
        traced = [k for k, x in enumerate(values) if is_traced(x) and is_real(node.inputs[k])]
        multiplied = read_by_slopes(node, traced) if _is_product(node) else ()
        new = list(values)
        for k in traced:
            read = _projected(needed, axes_along_input(node, k), np.shape(values[k]))
            safe = self.safe(node.inputs[k], read, depth - 1)
            new[k] = values[k] if safe is None else safe
            if k in multiplied:
                new[k] = _harmless(read, new[k], _HARMLESS)
        if all(a is b for a, b in zip(new, values, strict=True)):
            return None
        return convert_arrays(Site(node, (True,), self._site.frame), new)[0]

    def _arrays(self, node: Apply) -> list[Any] | None:
        """The inputs' values; None if one of them, or the output, is no array of a known shape."""
        values = [self._site.frame.read(u) for u in (*node.inputs, node.outputs[0])]
        are_arrays = all(isinstance(y, np.ndarray | np.generic | jax.Array) for y in values)
        return values[:-1] if are_arrays else None


def _is_product(node: Apply) -> bool:
    """Whether the slopes of ``node`` are products of entries of its inputs."""
    return isinstance(node.op, Prod) or facts_of(node.op).structure is Structure.CONTRACTS


def _runs_in_jax(op: Op) -> bool:
    """Whether ``op`` is one operation of JAX's, neither a loop, a call nor a function of the host."""
    core = core_of(op)
    return has_conversion(core) and not isinstance(core, InnerGraphOp)


def _may_be_infinite(x: AnyArray) -> bool:
    """Whether an element of ``x`` may be infinite or NaN."""
    return is_traced(x) or not np.isfinite(x).all()


def _of_shape(mask: jax.Array, shape: tuple[int, ...]) -> Any:
    """Where elements are needed of an array that is broadcast to the shape of ``mask``; None of a trace."""
    if mask.ndim < len(shape):
        return None
    added = tuple(range(mask.ndim - len(shape)))
    mask = mask.any(axis=added) if added else mask
    along = tuple(k for k, (n, m) in enumerate(zip(shape, mask.shape, strict=True)) if n == 1 != m)
    mask = mask.any(axis=along, keepdims=True) if along else mask
    return mask if mask.shape == shape else None


def _projected(mask: jax.Array, axes: Mapping[int, int], shape: tuple[int, ...]) -> jax.Array:
    """The positions of an input from which a position of the output in ``mask`` follows.

    Parameters
    ----------
    axes
        The axes of the output that run along an axis of the input, each with that axis.
    """
    kept = mask.any(axis=tuple(k for k in range(mask.ndim) if k not in axes))
    own = list(axes.values())
    ordered = jnp.transpose(kept, sorted(range(len(own)), key=own.__getitem__))
    added = tuple(k for k in range(len(shape)) if k not in own)
    return jnp.broadcast_to(jnp.expand_dims(ordered, added), shape)


def _rows(x: AnyArray, mask: jax.Array) -> Array:
    """The array of a trace, with as many rows as the mask has."""
    return x.fitted(mask.shape[x.axis]).data if isinstance(x, PaddedArray) else x


def _harmless(mask: jax.Array, x: Array, value: float) -> jax.Array:
    return jnp.where(mask, x, jnp.asarray(value, dtype=jnp.asarray(x).dtype))
