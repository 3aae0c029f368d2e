"""The gamma function and the derivatives of its logarithm, on the whole line.

JAX's `polygamma` sums nine terms and adds the tail of a positive argument, so that it is wrong below
about -10, and with it every derivative of `digamma` and the second derivative of `gammaln`; its
`digamma` is nan or the wrong infinity at the two zeros. Here each function is the derivative of the one
before, to any order. Remove this file when JAX's `polygamma(1, -30.25)` is 19.7.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from loopax.numerics.arrays import Array, Arrays, widest_float

_MAX_ORDER = 10_000  # beyond, the factorial is infinite, and only the parity of the order matters


@jax.custom_jvp
def gamma(x: Array) -> jax.Array:
    return jax.scipy.special.gamma(x)


@jax.custom_jvp
def gammaln(x: Array) -> jax.Array:
    """The logarithm of the gamma function; minus infinity maps to itself, as in SciPy."""
    return jnp.where(x == -jnp.inf, x, jax.scipy.special.gammaln(x))


@jax.custom_jvp
def psi(x: Array) -> jax.Array:
    """The derivative of `gammaln`; at 0.0 and -0.0 the limit from the side of the sign."""
    return jnp.where(x == 0, -jnp.copysign(jnp.inf, x), jax.scipy.special.digamma(x))


@jax.custom_jvp
def polygamma(n: Array | int, x: Array) -> jax.Array:
    """The derivative of order ``n``, an integer, of `psi`; nan for a negative order."""
    n = _small_order(n)
    odd = n % 2 == 1
    # The factorial is large where the sum is small: float32 holds the product, not the factors.
    wide = jnp.asarray(x).astype(widest_float())
    order = jnp.maximum(n, 1)  # a valid order for the branch not taken
    total = _hurwitz_zeta(order + 1, odd, wide)
    size = jnp.exp(jax.lax.lgamma(order.astype(wide.dtype) + 1) + jnp.log(jnp.abs(total)))
    # The factorial is infinite and the sum underflows: their product is unknown.
    size = jnp.where((n > 170) & (total == 0), jnp.nan, size)
    value = jnp.where(odd, 1, -1) * jnp.sign(total) * size
    value = jnp.where(n == 0, psi(wide), jnp.where(n < 0, jnp.nan, value))
    return value.astype(x.dtype)


def _small_order(n: Array | int) -> jax.Array:
    """Clip an order, and keep its kind: negative, even or odd."""
    n = jnp.asarray(n)
    n = n.astype(jnp.int32) if n.dtype.itemsize < 4 else n  # in a byte the largest order would wrap
    return jnp.where(n < 0, -1, jnp.minimum(n, _MAX_ORDER + n % 2)).astype(jnp.int32)


def tri_gamma(x: Array) -> jax.Array:
    """The derivative of `psi`."""
    return polygamma(jnp.asarray(1, jnp.int32), x)


def _hurwitz_zeta(s: Array, even: Array, q: Array) -> jax.Array:
    """The sum of ``(q + k)**-s`` over all ``k >= 0``, for integers ``s > 1``; ``even``: whether ``s``
    is.

    For negative ``q`` it is a difference of sums: with ``f = q - floor(q)`` the sum over all integers
    ``k`` is ``zeta(s, f) + (-1)**s zeta(s, 1 - f)``, and the sum over ``k < 0`` is ``(-1)**s zeta(s, 1
    - q)``. This is exact, with the same work for -10 and for -1e6.
    """
    whole = jnp.floor(q)
    pole = (q == whole) & (q <= 0)
    negative = (q < 0) & ~pole
    right = _zeta(s, jnp.where(negative, q - whole, jnp.where(pole, 1, q)))
    # Not 1 - f, which is 0 for q = -1e-20.
    left = _zeta(s, jnp.where(negative, (whole + 1) - q, 1))
    beyond = _zeta(s, jnp.where(negative, 1 - q, 1))
    sign = jnp.where(even, 1, -1)
    # In this order, since the first two terms cancel at half integers, and their difference dominates.
    total = jnp.where(negative, (right + sign * left) - sign * beyond, right)
    return jnp.where(pole, jnp.inf, total)


def _zeta(s: Array, q: Array) -> jax.Array:
    """``zeta(s, q)``, ``q > 0``. JAX's is 0 where ``q**-s`` underflows, and nan for infinite ``q``."""
    s = s.astype(q.dtype)
    large = q > 1e8
    tail = (1 / (s - 1) + 0.5 / q) * jnp.power(q, 1 - s)
    return jnp.where(large, tail, jax.scipy.special.zeta(s, jnp.where(large, 1, q)))


gamma.defjvps(lambda t, out, x: t * (out * psi(x)))
gammaln.defjvps(lambda t, out, x: t * psi(x))
psi.defjvps(lambda t, out, x: t * tri_gamma(x))


@polygamma.defjvp
def _polygamma_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    n, x = primals
    n = _small_order(n)
    return polygamma(n, x), tangents[1] * polygamma(n + 1, x)
