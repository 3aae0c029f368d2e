"""JAX's debug flags around compiled programs: ``jax_debug_nans``, ``jax_debug_infs``, no jit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import jax
import jax.numpy as jnp

from loopax.base.upstream.jax import jax_config


@contextmanager
def without_debug_flags() -> Iterator[None]:
    """A context for compiling a program, in which JAX does not search for the operation that gave a NaN.

    With the flags, JAX would evaluate the program's primitive again, whose rule calls the program.
    """
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        yield


def check_special(name: str, values: Sequence[jax.Array]) -> None:
    """Raise JAX's error for a NaN or an infinity in ``values``, if its flags ask for that."""
    looks = {
        "nan": (jax_config.jax_debug_nans, jnp.isnan),
        "inf": (jax_config.jax_debug_infs, jnp.isinf),
    }
    for kind, (is_enabled, is_special) in looks.items():
        if is_enabled and any(is_special(x).any() for x in values):
            raise FloatingPointError(f"invalid value ({kind}) encountered in {name}")
