"""Bessel functions of orders 0 and 1: of the first kind, which JAX lacks, and modified ones.

Functions of the first kind are computed near 0 from Bessel's integral (DLMF 10.9.1), for which the midpoint
rule is exact to the last digit with a few more nodes than the argument; farther out from Hankel's expansion
(10.17.3). Modified ones have JAX's values and their own derivatives: before 0.12 JAX's derivative of ``i0``
at 0 is 1. Functions of real orders run on the host.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Array, widest_float

_NEAR, _FAR = 0.2, 25.0
_SINES = np.sin((np.arange(64) + 0.5) * np.pi / 64)
_TERMS = 20


@jax.custom_jvp
def j0(x: Array) -> jax.Array:
    return _bessel(0, x)


@jax.custom_jvp
def j1(x: Array) -> jax.Array:
    return jnp.sign(x) * _bessel(1, x)


@jax.custom_jvp
def _j1_over(x: Array) -> jax.Array:
    """``j1(x) / x``, with its limit at 0."""
    at_zero = x == 0
    return jnp.where(at_zero, 0.5, j1(x) / jnp.where(at_zero, 1, x))


j0.defjvps(lambda t, out, x: -t * j1(x))
j1.defjvps(lambda t, out, x: t * (j0(x) - _j1_over(x)))
_j1_over.defjvps(lambda t, out, x: -t * _j2_over(x))


def _j2_over(x: Array) -> jax.Array:
    """``j2(x) / x``, where ``2 j1(x) / x - j0(x)`` cancels near 0."""
    near = jnp.abs(x) < _NEAR
    far = jnp.where(near, 1, x)
    return jnp.where(near, _series(-1, x), (2 * _j1_over(far) - j0(far)) / far)


def _series(sign: int, x: Array) -> Array:
    """``j2(x) / x`` near 0 (DLMF 10.2.2) for the sign -1, and ``i2(x) / x`` (10.25.2) for 1."""
    y = jnp.where(jnp.abs(x) < _NEAR, x, 0)
    z = sign * (y / 2) ** 2
    return y / 8 * (1 + z / 3 * (1 + z / 8 * (1 + z / 15 * (1 + z / 24))))


@jax.custom_jvp
def i0(x: Array) -> jax.Array:
    return jax.scipy.special.i0(x)


@jax.custom_jvp
def i1(x: Array) -> jax.Array:
    return jax.scipy.special.i1(x)


@jax.custom_jvp
def _i1_over(x: Array) -> jax.Array:
    """``i1(x) / x``, with its limit at 0."""
    at_zero = x == 0
    return jnp.where(at_zero, 0.5, i1(x) / jnp.where(at_zero, 1, x))


i0.defjvps(lambda t, out, x: t * i1(x))
i1.defjvps(lambda t, out, x: t * _minus(i0(x), _i1_over(x)))
_i1_over.defjvps(lambda t, out, x: t * _i2_over(x))


def _i2_over(x: Array) -> jax.Array:
    """``i2(x) / x``, where ``i0(x) - 2 i1(x) / x`` cancels near 0."""
    near = jnp.abs(x) < _NEAR
    far = jnp.where(near, 1, x)
    return jnp.where(near, _series(1, x), _minus(i0(far), 2 * _i1_over(far)) / far)


def _minus(large: Array, small: Array) -> Array:
    """The difference, which is infinite where ``large`` overflows."""
    return jnp.where(jnp.isinf(large), large, large - small)


def _bessel(order: int, x: Array) -> jax.Array:
    """The Bessel function of ``order`` at the absolute value of ``x``."""
    dtype = x.dtype
    x = jnp.abs(x.astype(widest_float()))
    far = x > _FAR
    phases = jnp.where(far, 0, x)[..., None] * _SINES
    terms = jnp.cos(phases) if order == 0 else jnp.sin(phases) * _SINES
    value = jnp.where(far, _expansion(order, jnp.where(far, x, _FAR)), terms.mean(-1))
    return value.astype(dtype)


def _expansion(order: int, x: Array) -> jax.Array:
    sums, term = [jnp.ones_like(x), jnp.zeros_like(x)], jnp.ones_like(x)
    for k in range(1, _TERMS):
        term = term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        sums[k % 2] += (-1) ** (k // 2) * term
    # The cosine and sine of x minus an odd multiple of pi / 4, without rounding of the difference.
    cos, sin = jnp.cos(x), jnp.sin(x)
    turned = (cos + sin, sin - cos) if order == 0 else (sin - cos, -sin - cos)
    return (sums[0] * turned[0] - sums[1] * turned[1]) / (np.sqrt(np.pi) * jnp.sqrt(x))
