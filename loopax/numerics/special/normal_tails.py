"""Inverses of the normal distribution in its tails, and Owen's T function at the ends.

PyTensor's ``ndtri_exp`` in JAX is ``ndtri(exp(x))``: minus infinity below -745, where ``exp``
underflows, and infinity above -1e-17, where it is 1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Array, Arrays, widest_float

_ROOT_2 = float(np.sqrt(2))
_ROOT_PI = float(np.sqrt(np.pi))
_ROOT_2_PI = float(np.sqrt(2 * np.pi))
_FAR = 12.0  # deviations from the mean, below which float32 represents the root of the tail's mass
_STEPS = 5  # Newton steps, from a start within a tenth


@jax.custom_jvp
def ndtri_exp(x: Array) -> jax.Array:
    """The inverse of ``log_ndtr``: nan above 0."""
    dtype = x.dtype
    x = x.astype(widest_float())
    far = x < -2
    near = x > -0.01
    middle = jax.scipy.special.ndtri(jnp.exp(jnp.where(far | near, -1, x)))
    top = -jax.scipy.special.ndtri(-jnp.expm1(jnp.where(near, x, -0.01)))
    # XLA flushes subnormal numbers to 0.
    value = jnp.where(far, -_tail(jnp.where(far, x, -3)), jnp.where(near, top, middle))
    value = jnp.where(x == 0, jnp.inf, jnp.where(x > 0, jnp.nan, value))
    return value.astype(dtype)


@ndtri_exp.defjvp
def _ndtri_exp_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    out = ndtri_exp(*primals)
    return out, tangents[0] * _ratio(out)


@jax.custom_jvp
def erfcinv(x: Array) -> jax.Array:
    """The inverse of ``erfc``, also near 0, where JAX and PyTensor divide by 2 first and underflow."""
    tiny = (x > 0) & (x < 1e-30)
    tail = -ndtri_exp(jnp.log(jnp.where(tiny, x, 0.5)) - np.log(2.0).astype(x.dtype)) / _ROOT_2
    body = -jax.scipy.special.ndtri(jnp.where(tiny, 1, x) / 2) / _ROOT_2
    return jnp.where(x < 0, jnp.nan, jnp.where(tiny, tail, body))


@erfcinv.defjvp
def _erfcinv_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    """The slope, infinite at 0 and 2, where the slope of JAX's ``ndtri`` is 0 before 0.12."""
    out = erfcinv(*primals)
    return out, -tangents[0] * jnp.exp(out**2) * (_ROOT_PI / 2)


@jax.custom_jvp
def erfcx(x: Array) -> jax.Array:
    """``exp(x**2) erfc(x)``. JAX's has no second derivative, and before 0.11 no derivative."""
    far = x > _FAR / _ROOT_2
    t = jnp.where(far, x, _FAR) * _ROOT_2
    tail = _series(t) / t * (_ROOT_2 / _ROOT_PI)
    y = jnp.where(far, 0, x)
    return jnp.where(far, tail, jnp.exp(y**2) * jax.scipy.special.erfc(y))


@erfcx.defjvp
def _erfcx_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    (x,) = primals
    out = erfcx(x)
    # Far out the two terms cancel, and the difference is the remainder of the series.
    far = x > 100
    y = (1 / jnp.where(far, x, 100)) ** 2
    remainder = -y * (1 - 1.5 * y * (1 - 2.5 * y)) / _ROOT_PI
    slope = jnp.where(far, remainder, 2 * jnp.where(far, 0, x) * out - 2 / _ROOT_PI)
    return out, tangents[0] * slope


def owens_t(h: Array, a: Array) -> jax.Array:
    """Owen's T function; JAX's is nan for ``h = 0`` with infinite ``a``, where it is a normal tail."""
    h, a = jnp.broadcast_arrays(h, a)
    endless = jnp.isinf(a)
    inside = jax.scipy.special.owens_t(h, jnp.where(endless, 1, a))
    return jnp.where(
        endless, jnp.sign(a) * jax.scipy.special.erfc(jnp.abs(h) / _ROOT_2) / 4, inside
    )


def _series(t: Array) -> Array:
    """``t exp(t**2 / 2)`` times the integral of ``exp(-u**2 / 2)`` over ``u > t``, for large ``t``."""
    # (2n - 1)!! / t**2n with alternating signs: DLMF 7.12.1.
    y = 1 / t**2
    total: Array = jnp.ones_like(t)
    for n in range(17, 0, -2):
        total = 1 - n * y * total
    return total


def _ratio(z: Array) -> jax.Array:
    """The distribution function over the density, at ``z``."""
    return erfcx(-z / _ROOT_2) * (_ROOT_2_PI / 2)


def _tail(x: Array) -> jax.Array:
    """The positive ``t`` with ``log_ndtr(-t) == x``, for ``x < -2``."""
    huge = x < -1e20  # the density's logarithm dominates, and its square overflows
    y = jnp.where(huge, -3, x)
    t = jnp.sqrt(-2 * y - jnp.log(2 * np.pi * (-2 * y - 1)))
    for _ in range(_STEPS):
        far = t > _FAR
        body = jnp.log(jax.scipy.special.erfc(jnp.where(far, _FAR, t) / _ROOT_2) / 2)
        s = jnp.where(far, t, _FAR)
        tail = -(s**2) / 2 - jnp.log(s * _ROOT_2_PI / _series(s))
        t = t + (jnp.where(far, tail, body) - y) * _ratio(-t)
    return jnp.where(huge, _ROOT_2 * jnp.sqrt(-jnp.where(huge, x, -1)), t)
