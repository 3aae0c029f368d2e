"""Over which axes of a mesh a value varies, and loops and branches whose values do.

Inside of ``jax.shard_map`` that is part of a value's type: JAX refuses a loop whose carry starts as a
constant, the same on every device, and becomes one that differs, and branches of which only one differs. A
loop of a program starts from constants as a matter of course, and where it ends up follows from its body:
so it is the loop that casts what it starts from. Outside of it these are JAX's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec

Axes = frozenset[str]
_NONE: Axes = frozenset()


def is_divided() -> bool:
    """Whether what is traced is the program of one device, inside of ``jax.shard_map``."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def axes_of(x: Any) -> Axes:
    """The axes of the mesh along which the devices have different values of ``x``, an array or its type."""
    aval = x if isinstance(x, ShapedArray) else jax.typeof(x)
    declared = getattr(aval, "manual_axis_type", None)
    return _NONE if declared is None else declared.varying


def all_axes(tree: Any) -> Axes:
    """The mesh axes of all leaves of ``tree``."""
    return _NONE.union(*(axes_of(x) for x in jax.tree.leaves(tree)))


def varying(x: Any, axes: Axes) -> Any:
    """``x``, seen as one that may vary along ``axes`` too."""
    missing = axes - axes_of(x)
    return jax.lax.pcast(x, tuple(sorted(missing)), to="varying") if missing else x


def zeros_like(x: Any) -> Any:
    """Zeros of the shape, the dtype and the axes of ``x``."""
    return varying(jnp.zeros(jnp.shape(x), jnp.asarray(x).dtype), axes_of(x))


def alike(args: Sequence[Any]) -> list[Any]:
    """``args``, seen as values that vary along the same axes: what a primitive of ours is given.

    The cast has the transpose that is needed: cotangents of what is the same everywhere are added up. A
    number, or an array of NumPy, stays what it is: it is known while JAX traces.
    """
    if not is_divided():
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

    def of_arrays(*arrays: Any) -> Any:
        every = dict(enumerate(leaves)) | dict(zip(places, arrays, strict=True))
        return function(jax.tree.unflatten(tree, every.values()))

    found = jax.make_jaxpr(of_arrays)(*(leaves[k] for k in places)).out_avals
    return all(axes_of(x) == all_axes(args) for x in found)


def results_like(args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The types of a primitive's results, given their shapes and dtypes.

    They vary as do those of the ``args``, the types of what `alike` gives, that vary at all: what is known
    while JAX traces, an array of NumPy, does not.
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
    init: Any,
    xs: Any = None,
    length: int | None = None,
    **options: Any,
) -> Any:
    """``jax.lax.scan``."""
    if not is_divided():
        return jax.lax.scan(body, init, xs, length=length, **options)
    if any(jnp.shape(x)[0] == 0 for x in jax.tree.leaves(xs)):  # there is no row to try a step on
        axes = all_axes((init, xs))
        wanted = [axes for _ in jax.tree.leaves(init)]
    else:
        wanted = _axes_of_carry(
            lambda carry: body(carry, jax.tree.map(lambda x: jnp.asarray(x)[0], xs))[0], init
        )

    def step(carry: Any, row: Any) -> Any:
        new, y = body(carry, row)
        return _each(new, wanted), y

    return jax.lax.scan(step, _each(init, wanted), xs, length=length, **options)


def while_loop(going: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """``jax.lax.while_loop``. Where the devices take different numbers of steps, their results differ."""
    if not is_divided():
        return jax.lax.while_loop(going, body, init)

    def step(carry: Any) -> Any:
        return _cast(body(carry), all_axes(jax.make_jaxpr(going)(carry).out_avals))

    wanted = _axes_of_carry(step, init)
    return jax.lax.while_loop(going, lambda carry: _each(body(carry), wanted), _each(init, wanted))


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """``jax.lax.fori_loop``."""
    if not is_divided():
        return jax.lax.fori_loop(lower, upper, body, init)
    wanted = _axes_of_carry(partial(body, lower), init)
    return jax.lax.fori_loop(
        lower, upper, lambda i, carry: _each(body(i, carry), wanted), _each(init, wanted)
    )


def cond(
    condition: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any
) -> Any:
    """``jax.lax.cond``. Where the devices choose differently, their results differ."""
    if not is_divided():
        return jax.lax.cond(condition, then, otherwise, *operands)
    both = [jax.make_jaxpr(branch)(*operands).out_avals for branch in (then, otherwise)]
    wanted = [
        axes_of(a) | axes_of(b) | axes_of(condition) for a, b in zip(both[0], both[1], strict=True)
    ]
    cast = [lambda *xs, branch=branch: _each(branch(*xs), wanted) for branch in (then, otherwise)]
    return jax.lax.cond(condition, *cast, *operands)


def pure_callback(function: Callable[..., Any], shapes: Any, *args: Any, **options: Any) -> Any:
    """``jax.pure_callback``: what it returns differs wherever an argument does, which JAX does not say."""
    found = jax.pure_callback(function, shapes, *args, **options)
    return _cast(found, all_axes(args)) if is_divided() else found


def _axes_of_carry(step: Callable[[Any], Any], carry: Any) -> list[Axes]:
    """The axes that each leaf of ``carry`` varies along in the loop, which may take any number of steps.

    Axes are only added, so that this comes to an end.
    """
    carry = jax.tree.map(jnp.asarray, carry)
    axes = [axes_of(x) for x in jax.tree.leaves(carry)]
    while True:
        after = jax.make_jaxpr(step)(_each(carry, axes)).out_avals
        wanted = [a | axes_of(x) for a, x in zip(axes, after, strict=True)]
        if wanted == axes:
            return wanted
        axes = wanted


def _cast(tree: Any, axes: Axes) -> Any:
    return jax.tree.map(lambda x: varying(x, axes), tree)


def _each(tree: Any, wanted: Sequence[Axes]) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    cast = [varying(x, a) for x, a in zip(leaves, wanted, strict=True)]
    return jax.tree.unflatten(structure, cast)
