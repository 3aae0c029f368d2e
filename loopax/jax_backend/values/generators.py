"""Random generators: JAX keys replace NumPy's ``Generator``.

A program whose variable is a generator takes and returns a `jax.random` key. A NumPy ``Generator`` is
converted to a key by hashing its whole state, so equal states give equal keys and no draw is taken from it.
The two draw different numbers from the same distributions.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from loopax.base.errors import LoopTypeError
from loopax.base.upstream.jax import jax_config
from loopax.numerics.arrays import Array


def is_key(x: object) -> TypeGuard[jax.Array]:
    """Whether ``x`` is an array of new-style keys."""
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def bits_of(x: Any) -> np.ndarray:
    """The numbers of a value; for a new-style key, its data."""
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


def as_key(x: Any, what: str = "A generator") -> jax.Array:
    """Convert ``x`` to one new-style key, shape (); ``what`` names the value in messages.

    Parameters
    ----------
    x
        A key of ``jax.random.key``; an old-style one of ``jax.random.PRNGKey``, uint32; or a NumPy
        ``Generator``, which stays as it is.

    Raises
    ------
    LoopTypeError
        It is none of these, or an array of several keys.

    Examples
    --------
    >>> import jax, numpy as np
    >>> as_key(np.random.default_rng(3)) == as_key(np.random.default_rng(3))
    Array(True, dtype=bool)
    """
    if isinstance(x, np.random.Generator):
        return _wrapped(_words(x))
    if _is_jax_mode_state(x):
        return jax.random.wrap_key_data(jnp.asarray(x["jax_state"]), impl="threefry2x32")
    if is_key(x):
        if x.ndim == 0:
            return x
        raise LoopTypeError(
            f"{what} must be one jax.random key, got an array of keys of shape {x.shape}. To run once "
            "with each key, use jax.vmap."
        )
    dtype, shape = getattr(x, "dtype", None), getattr(x, "shape", None)
    if dtype == np.uint32 and shape == _key_shape():
        return _wrapped(x)
    received = (
        f"{dtype}, shape {shape}" if dtype is not None else f"{x!r} of type {type(x).__name__}"
    )
    raise LoopTypeError(
        f"{what} must be a jax.random key or a NumPy Generator, got {received}. Pass "
        "jax.random.key(seed), or numpy.random.default_rng(seed)."
    )


def as_generator(key: jax.Array, like: Any) -> Any:
    """A NumPy ``Generator`` seeded with ``key``, with the bit generator of ``like``, or NumPy's default.

    ``like`` may be the state that PyTensor's ``mode="JAX"`` keeps instead: then the result is such a state.
    """
    words = np.asarray(jax.random.key_data(key), dtype=np.uint32).tolist()
    if _is_jax_mode_state(like):
        return {**like, "jax_state": np.array(words[:2], dtype=np.uint32)}
    kind = np.random.PCG64 if like is None else type(like.bit_generator)
    return np.random.Generator(kind(np.random.SeedSequence(words)))


def _is_jax_mode_state(x: object) -> TypeGuard[dict[str, Any]]:
    """Whether ``x`` is the state that functions of PyTensor's ``mode="JAX"`` keep for a generator."""
    return isinstance(x, dict) and "jax_state" in x


def _words(generator: np.random.Generator) -> np.ndarray:
    state = json.dumps(generator.bit_generator.state, sort_keys=True, default=np.ndarray.tolist)
    size = 4 * math.prod(_key_shape())
    return np.frombuffer(
        hashlib.blake2b(state.encode(), digest_size=size).digest(), dtype=np.uint32
    )


def _key_shape() -> tuple[int, ...]:
    """The shape of the data of a key of JAX's default kind: two words for threefry, four for rbg."""
    return _shape_of(jax_config.jax_default_prng_impl)


@cache
def _shape_of(kind: str) -> tuple[int, ...]:
    return jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=kind))).shape


def _wrapped(words: Array) -> jax.Array:
    return jax.random.wrap_key_data(jnp.asarray(words))
