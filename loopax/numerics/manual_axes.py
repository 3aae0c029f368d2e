"""Mesh axes along which values vary, and loops and branches that cast values to common axes.

Inside of ``jax.shard_map`` these axes are part of a value's type: JAX refuses a loop whose carry starts
as a constant, the same on every device, and becomes a value that varies, and branches of which only one
varies. A loop of a program starts from constants in most cases, and its body decides the axes of its
carry: so the loop casts its initial carry. Outside of ``shard_map`` these are JAX's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

Axes = frozenset[str]
_NONE: Axes = frozenset()


def in_shard_map() -> bool:
    """Whether JAX traces the program of one device, inside of ``jax.shard_map``."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def axes_of(x: ArrayLike | ShapedArray) -> Axes:
    """The mesh axes along which ``x``, an array or its type, varies between devices."""
    aval = x if isinstance(x, ShapedArray) else jax.typeof(x)
    declared = getattr(aval, "manual_axis_type", None)
    return _NONE if declared is None else declared.varying


def all_axes(tree: object) -> Axes:
    """The union of the mesh axes of all leaves of ``tree``."""
    return _NONE.union(*(axes_of(x) for x in jax.tree.leaves(tree)))


def varying(x: ArrayLike, axes: Axes) -> Any:
    """Cast ``x`` to a type that also varies along ``axes``."""
    missing = axes - axes_of(x)
    return jax.lax.pcast(x, tuple(sorted(missing)), to="varying") if missing else x


def zeros_like(x: ArrayLike) -> Any:
    """Zeros of the shape, the dtype and the axes of ``x``."""
    return varying(jnp.zeros(jnp.shape(x), jnp.asarray(x).dtype), axes_of(x))


def vary_alike(args: Sequence[Any]) -> list[Any]:
    """Cast ``args`` to types that vary along the same axes, as our primitives require.

    The cast has the transpose that is needed: it adds the cotangents of a value that is the same
    everywhere. Numbers and NumPy arrays, which are known while JAX traces, stay unchanged.
    """
    if not in_shard_map():
        return list(args)
    axes = all_axes(args)
    return [
        jax.tree.map(lambda leaf: varying(leaf, axes) if isinstance(leaf, jax.Array) else leaf, x)
        for x in args
    ]


def all_vary(function: Callable[[Sequence[Any]], Any], args: Sequence[Any]) -> bool:
    """Whether each result of ``function(args)`` varies along every axis that any argument does."""
    leaves, tree = jax.tree.flatten(args)
    places = [k for k, x in enumerate(leaves) if isinstance(x, jax.Array)]

    def at_arrays(*arrays: jax.Array) -> Any:
        all_leaves = dict(enumerate(leaves)) | dict(zip(places, arrays, strict=True))
        return function(jax.tree.unflatten(tree, all_leaves.values()))

    types = jax.make_jaxpr(at_arrays)(*(leaves[k] for k in places)).out_avals
    return all(axes_of(x) == all_axes(args) for x in types)


def results_like(args: Sequence[ShapedArray], results: Sequence[Any]) -> list[Any]:
    """The types of a primitive's results, from their shapes and dtypes.

    They vary like the varying ones among ``args``, the types of results of `vary_alike`; NumPy arrays,
    which are known while JAX traces, do not vary.
    """
    moving = next((x for x in args if axes_of(x)), None)
    if moving is None:
        return [ShapedArray(s.shape, s.dtype) for s in results]
    declared, mesh = moving.manual_axis_type, moving.sharding.mesh
    return [
        ShapedArray(
            s.shape,
            s.dtype,
            sharding=NamedSharding(mesh, PartitionSpec(*[None] * len(s.shape))),
            manual_axis_type=declared,
        )
        for s in results
    ]


def scan(
    body: Callable[[Any, Any], Any],
    init: object,
    xs: object = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> Any:
    """Run ``jax.lax.scan`` with a carry that varies as its body requires."""
    if not in_shard_map():
        return jax.lax.scan(body, init, xs, length=length, reverse=reverse, unroll=unroll)
    if any(jnp.shape(x)[0] == 0 for x in jax.tree.leaves(xs)):  # no row to trace a step with
        axes = all_axes((init, xs))
        carry_axes = [axes for _ in jax.tree.leaves(init)]
    else:
        carry_axes = _axes_of_carry(
            lambda carry: body(carry, jax.tree.map(lambda x: jnp.asarray(x)[0], xs))[0], init
        )

    def step(carry: object, row: object) -> Any:
        new, y = body(carry, row)
        return _cast_leaves(new, carry_axes), y

    start = _cast_leaves(init, carry_axes)
    return jax.lax.scan(step, start, xs, length=length, reverse=reverse, unroll=unroll)


def while_loop(going: Callable[[Any], Any], body: Callable[[Any], Any], init: object) -> Any:
    """Run ``jax.lax.while_loop``; the result varies where the number of steps does."""
    if not in_shard_map():
        return jax.lax.while_loop(going, body, init)

    def step(carry: object) -> Any:
        return _cast(body(carry), all_axes(jax.make_jaxpr(going)(carry).out_avals))

    carry_axes = _axes_of_carry(step, init)
    return jax.lax.while_loop(
        going, lambda carry: _cast_leaves(body(carry), carry_axes), _cast_leaves(init, carry_axes)
    )


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], init: object) -> Any:
    """Run ``jax.lax.fori_loop`` with a carry that varies as its body requires."""
    if not in_shard_map():
        return jax.lax.fori_loop(lower, upper, body, init)
    carry_axes = _axes_of_carry(partial(body, lower), init)
    return jax.lax.fori_loop(
        lower,
        upper,
        lambda i, carry: _cast_leaves(body(i, carry), carry_axes),
        _cast_leaves(init, carry_axes),
    )


def cond(
    condition: ArrayLike, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: object
) -> Any:
    """Run ``jax.lax.cond``; the result varies where the condition or a branch does."""
    if not in_shard_map():
        return jax.lax.cond(condition, then, otherwise, *operands)
    branch_types = [jax.make_jaxpr(branch)(*operands).out_avals for branch in (then, otherwise)]
    result_axes = [
        axes_of(a) | axes_of(b) | axes_of(condition)
        for a, b in zip(branch_types[0], branch_types[1], strict=True)
    ]
    cast = [
        lambda *xs, branch=branch: _cast_leaves(branch(*xs), result_axes)
        for branch in (then, otherwise)
    ]
    return jax.lax.cond(condition, *cast, *operands)


def pure_callback(
    function: Callable[..., Any], shapes: object, *args: object, vmap_method: str | None = None
) -> Any:
    """Run ``jax.pure_callback``; its results vary with the arguments, which JAX's types omit."""
    results = jax.pure_callback(function, shapes, *args, vmap_method=vmap_method)
    return _cast(results, all_axes(args)) if in_shard_map() else results


def _axes_of_carry(step: Callable[[Any], Any], carry: object) -> list[Axes]:
    """The axes along which each leaf of ``carry`` varies after any number of steps.

    The sets of axes only grow, so that the iteration ends.
    """
    carry = jax.tree.map(jnp.asarray, carry)
    axes = [axes_of(x) for x in jax.tree.leaves(carry)]
    while True:
        after = jax.make_jaxpr(step)(_cast_leaves(carry, axes)).out_avals
        joined = [a | axes_of(x) for a, x in zip(axes, after, strict=True)]
        if joined == axes:
            return joined
        axes = joined


def _cast(tree: object, axes: Axes) -> Any:
    return jax.tree.map(lambda x: varying(x, axes), tree)


def _cast_leaves(tree: object, leaf_axes: Sequence[Axes]) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    cast = [varying(x, a) for x, a in zip(leaves, leaf_axes, strict=True)]
    return jax.tree.unflatten(structure, cast)
