"""What samplers are made of: keys, uniform numbers, and draws by rejection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from loopax.numerics import in_mesh


def widest_float() -> Any:
    """float64, or float32 in JAX's 32-bit mode."""
    return jnp.result_type(float)


def uniform(key: Any, shape: Any, dtype: Any) -> Any:
    """Uniform on (0, 1], so that its logarithm is finite."""
    return 1 - jax.random.uniform(key, shape, dtype)


_ROUNDS = 200  # at an acceptance above one half, nobody needs them


def by_rejection(
    key: Any, wanted: Any, dtype: Any, propose: Callable[[Any, Any], tuple[Any, Any]]
) -> Any:
    """A draw wherever one is ``wanted``, else NaN: the first proposal that is accepted.

    ``propose`` makes of two uniform numbers each a proposal, and whether it is accepted.
    """

    def step(carry: Any) -> Any:
        found, open_, key, rounds = carry
        key, pair = split(key)
        x, accepted = propose(*uniform(pair, (2, *wanted.shape), dtype))
        return jnp.where(open_ & accepted, x, found), open_ & ~accepted, key, rounds + 1

    def unfinished(carry: Any) -> Any:
        return carry[1].any() & (carry[3] < _ROUNDS)

    start = (jnp.full(wanted.shape, jnp.nan, dtype), wanted, key, 0)
    return in_mesh.while_loop(unfinished, step, start)[0]


def split(key: Any, count: int = 2) -> list[Any]:
    """``count`` keys for as many draws that one is made of."""
    return list(jax.random.split(key, count))
