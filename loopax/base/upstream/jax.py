"""Names of JAX that loopax uses beyond `jax`, `jax.numpy`, `jax.lax` and `jax.tree`.

Our primitives, and the passes that read jaxprs, need `jax.extend` and `jax.interpreters`. These names
are public, but JAX does not promise to keep them. Tried on the releases of docs/install.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import ShapedArray
from jax.errors import InconclusiveDimensionOperation
from jax.extend.core import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    Var,
    jaxpr_as_fun,
    set_current_trace,
)
from jax.extend.core.primitives import convert_element_type_p
from jax.extend.linear_util import wrap_init
from jax.extend.random import threefry_prng_impl
from jax.extend.source_info_util import summarize
from jax.interpreters import ad, batching, mlir, partial_eval

__all__ = [
    "ClosedJaxpr",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "Var",
    "ad",
    "as_weak",
    "batching",
    "default_platform",
    "implementation_jaxpr",
    "inner_jaxprs",
    "is_jaxpr",
    "jax_config",
    "jaxpr_as_fun",
    "jaxpr_text",
    "low_jaxpr",
    "mlir",
    "owner_cache",
    "part_of",
    "partial_eval",
    "search_jaxpr",
    "set_current_trace",
    "threefry_jaxpr",
    "trace_cache",
    "user_line",
    "wrap_init",
]


F = TypeVar("F", bound=Callable[..., Any])


def trace_cache(function: F) -> F:
    """Cache what ``function`` traces, for equal arguments and for the precisions that JAX traces in."""
    cached = _for_each_precision(function)

    @wraps(function)
    def run(*args: Hashable) -> Any:
        return cached(_precisions(), *args)

    return run  # type: ignore[return-value]  # the signature is that of ``function``


def owner_cache(function: F) -> F:
    """`trace_cache` in an attribute of the first argument, the owner, with which the traces are freed.

    A trace refers to its owner, so that a cache of a module would keep both.
    """

    @wraps(function)
    def run(owner: Any, *args: Hashable) -> Any:
        caches = owner.__dict__.setdefault("_traces", {})
        if function not in caches:
            caches[function] = _for_each_precision(partial(function, owner))
        return caches[function](_precisions(), *args)

    return run  # type: ignore[return-value]  # the signature is that of ``function``


def _for_each_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    @lru_cache(maxsize=512)
    def cached(precisions: tuple[object, ...], *args: Hashable) -> Any:
        return function(*args)

    return cached


# Its options are attributes, which its annotations lack.
jax_config: Any = jax.config


def _precisions() -> tuple[object, ...]:
    return jax_config.jax_enable_x64, jax_config.jax_default_matmul_precision


def low_jaxpr(jaxpr: ClosedJaxpr) -> Any:
    """A closed jaxpr without "high" primitives (JAX 0.12), which JAX replaces before lowering."""
    lower = getattr(partial_eval, "lower_jaxpr2", None)
    is_high = getattr(jaxpr.jaxpr, "is_high", False)
    return lower(jaxpr) if is_high and lower is not None else jaxpr


def without_dead_code(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """A closed jaxpr without the equations that no output and no effect needs; its inputs stay."""
    opened = jaxpr.jaxpr
    live, _ = partial_eval.dce_jaxpr(opened, [True] * len(opened.outvars), True)
    return ClosedJaxpr(live, jaxpr.consts)


def part_of(
    jaxpr: Jaxpr, invars: Sequence[Var], outvars: Sequence[Var], eqns: Sequence[JaxprEqn]
) -> Any:
    """An open jaxpr with some of the equations of another one."""
    info = jaxpr.debug_info.with_unknown_names()
    return Jaxpr([], list(invars), list(outvars), list(eqns), debug_info=info)


def as_weak(x: jax.Array) -> jax.Array:
    """Give ``x`` a weak type; no public function of JAX does."""
    return convert_element_type_p.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)


def is_jaxpr(value: object) -> bool:
    """Whether a parameter of an equation is a jaxpr, open or closed."""
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def inner_jaxprs(eqn: JaxprEqn) -> list[Any]:
    """The jaxprs among the parameters of an equation, closed or not."""
    values = eqn.params.values()
    nested = [v if isinstance(v, tuple | list) else [v] for v in values]
    return [inner for some in nested for inner in some if is_jaxpr(inner)]


def user_line(eqn: JaxprEqn) -> str:
    """The file, line and column of the user's program that an equation comes from."""
    return str(summarize(eqn.source_info)).partition(" (")[0]


def default_platform() -> str:
    """The platform, such as ``"cpu"`` or ``"gpu"``, of code that is placed on no particular device.

    `jax.default_backend` does not ask for the default device that a user has set.
    """
    device = jax_config.jax_default_device
    if device is None:
        return jax.default_backend()
    return device.split(":")[0] if isinstance(device, str) else str(device.platform)


def implementation_jaxpr(eqn: JaxprEqn) -> ClosedJaxpr:
    """The closed jaxpr of a primitive's implementation outside of traces."""
    primitive: Any = eqn.primitive
    avals = [v.aval for v in eqn.invars]
    return jax.make_jaxpr(lambda *args: primitive.impl(*args, **eqn.params))(*avals)


@trace_cache
def search_jaxpr(
    side: str, axes: tuple[int | None, ...], is_linearized: bool, *avals: Any
) -> str | None:
    """The text of the jaxpr of ``jnp.searchsorted`` in its own call, as in a jaxpr that contains it.

    Parameters
    ----------
    side
        ``"left"`` or ``"right"``.
    axes
        The batch axes of the array and the queries; empty for a call without a batch.
    is_linearized
        Whether it is the value beside a derivative: before 0.12 JAX moves equations out of its loop.
    avals
        The types of the array and the queries, with the batch axes.

    Returns
    -------
    str or None
        None if JAX refuses such arguments.
    """
    search: Any = partial(jax.numpy.searchsorted, side=side)
    search = jax.vmap(search, axes) if axes else search

    def value(*args: Any) -> Any:
        return jax.linearize(search, *args)[0] if is_linearized else search(*args)

    try:
        jaxpr = without_dead_code(low_jaxpr(jax.make_jaxpr(value)(*avals)))
    except ValueError:
        return None
    calls = [eqn for eqn in jaxpr.jaxpr.eqns if eqn.params.get("name") == "searchsorted"]
    return jaxpr_text(calls[0].params["jaxpr"]) if len(calls) == 1 else None


def jaxpr_text(jaxpr: Any) -> str:
    """The text of a jaxpr; equal equations have equal text.

    JAX 0.11 prints the trees of a scan's arguments, which its dead code elimination leaves in another form.
    """
    return re.sub(r"^\s*ft_(in|out)=.*\n", "", str(jaxpr), flags=re.MULTILINE)


def threefry_jaxpr(
    primitive: str, params: Mapping[str, Any], types: Sequence[tuple[Any, str]], batch: int
) -> ClosedJaxpr:
    """The closed jaxpr of a primitive on random keys as a function of the keys' integers.

    Parameters
    ----------
    primitive, params
        One of ``random_bits``, ``random_split``, ``random_fold_in``, ``random_seed``; its parameters.
    types
        The shapes and dtypes of its inputs; for a key, of its two integers.
    batch
        The number of batch axes of the keys or seeds.
    """
    implementation = threefry_prng_impl
    row: Any = {
        "random_bits": lambda key: implementation.random_bits(
            key, params["bit_width"], params["shape"]
        ),
        "random_split": lambda key: implementation.split(key, params["shape"]),
        # A batch of keys may be combined with one number, and one key with a batch of numbers.
        "random_fold_in": jax.numpy.vectorize(implementation.fold_in, signature="(n),()->(n)"),
        "random_seed": implementation.seed,
    }[primitive]
    for _ in range(batch if primitive != "random_fold_in" else 0):
        row = jax.vmap(row)
    avals = [ShapedArray(shape, np.dtype(dtype)) for shape, dtype in types]
    return jax.make_jaxpr(row)(*avals)
