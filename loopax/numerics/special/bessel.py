"""Bessel functions of the first kind of the orders 0 and 1, which JAX does not have.

Near 0 by Bessel's integral (DLMF 10.9.1), of which the midpoint rule is exact to the last digit as soon
as it has some more nodes than the argument; farther out by Hankel's expansion (10.17.3). Those of real
orders run on the host.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_FAR = 25.0
_SINES = np.sin((np.arange(64) + 0.5) * np.pi / 64)
_TERMS = 20


@jax.custom_jvp
def j0(x: Any) -> Any:
    return _bessel(0, x)


@jax.custom_jvp
def j1(x: Any) -> Any:
    return jnp.sign(x) * _bessel(1, x)


j0.defjvps(lambda t, out, x: -t * j1(x))
j1.defjvps(lambda t, out, x: t * (j0(x) - _over(out, x)))


def _over(out: Any, x: Any) -> Any:
    """``j1(x) / x``, at 0 its limit."""
    at_zero = x == 0
    return jnp.where(at_zero, 0.5, out / jnp.where(at_zero, 1, x))


def _bessel(order: int, x: Any) -> Any:
    """For an argument without its sign."""
    dtype = x.dtype
    x = jnp.abs(x.astype(jax.dtypes.canonicalize_dtype(jnp.float64)))
    far = x > _FAR
    phases = jnp.where(far, 0, x)[..., None] * _SINES
    terms = jnp.cos(phases) if order == 0 else jnp.sin(phases) * _SINES
    value = jnp.where(far, _expansion(order, jnp.where(far, x, _FAR)), terms.mean(-1))
    return value.astype(dtype)


def _expansion(order: int, x: Any) -> Any:
    sums, term = [jnp.ones_like(x), jnp.zeros_like(x)], jnp.ones_like(x)
    for k in range(1, _TERMS):
        term = term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        sums[k % 2] += (-1) ** (k // 2) * term
    # The cosine and sine of x less an odd number of eighths of a turn, without the rounding of that.
    cos, sin = jnp.cos(x), jnp.sin(x)
    turned = (cos + sin, sin - cos) if order == 0 else (sin - cos, -sin - cos)
    return (sums[0] * turned[0] - sums[1] * turned[1]) / (np.sqrt(np.pi) * jnp.sqrt(x))
