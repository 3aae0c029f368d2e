"""Powers: NumPy's integer results, and derivatives of float powers with an exponent of 0.

JAX reads only six bits of an integer exponent. Its derivative of ``x**y`` with respect to x is ``y * x**(y
- 1)``, which is nan where x and y are 0, although ``x**0`` is 1 for each x; the second derivative is nan at
``x**1``.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array
from loopax.numerics.special.forward_mode import with_slopes


def power(x: Array, y: Array) -> Any:
    """Compute ``x**y``; integers wrap around, and their negative powers are truncated, as in C."""
    kind = jnp.result_type(x, y).kind
    is_traced = isinstance(y, jax.core.Tracer | jax.Array)
    if kind == "f" and jnp.result_type(y).kind == "f":
        return _of_floats(x, y, is_traced)
    # JAX multiplies out a known exponent, which must be one number and not negative.
    if kind in "iu" and (is_traced or np.ndim(y) or np.less(y, 0)):
        return _of_integers(x, y)
    return jnp.power(x, y)  # JAX's derivative is right for an integer exponent


def _of_floats(x: Array, y: Array, is_traced: bool) -> Any:
    if is_traced:
        return with_slopes(_with_slope_at_zero, _slope_of_base, _slope_of_exponent)(x, y)
    whole = np.equal(y, np.floor(y)) & np.greater_equal(y, 0)
    if not np.any(whole):  # none of its derivatives has the exponent 0
        return jnp.power(x, y)
    return with_slopes(lambda x: _with_slope_at_zero(x, y), lambda x: _slope_of_base(x, y))(x)


def _with_slope_at_zero(x: Array, y: Array) -> jax.Array:
    """Compute ``x**y`` with a derivative by x of 0, not JAX's nan, where both are 0.

    JAX 0.10 drops a custom derivative in forward over reverse mode through a ``lax.scan``, and
    differentiates this function instead. The loops of a program keep it (`..staging.kept_rules`); a user's
    do not.
    """
    return jnp.power(jnp.where((x == 0) & (y == 0), 1, x), y)


def _slope_of_base(x: Array, y: Array) -> Any:
    """The slope ``y * x**(y - 1)``: 0 for the exponent 0, even where x is 0 or infinite.

    If the exponent is traced, only the base 0 is an exception: at other bases the derivative of this slope
    with respect to the exponent is ``1 / x`` at the exponent 0.
    """
    if isinstance(y, jax.core.Tracer | jax.Array):
        reduced: Any = jnp.where((y == 0) & (x == 0), 1, y - 1)
    else:
        reduced = np.where(np.equal(y, 0), 0, y - 1)
    return y * power(x, reduced.astype(jnp.result_type(y)))


def _slope_of_exponent(x: Array, y: Array) -> jax.Array:
    """The slope in the exponent; where x is 0 it is 0, the limit for positive exponents."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, power(x, y) * jnp.log(jnp.where(is_zero, 1, x)))


def _of_integers(x: Array, y: Array) -> Any:
    dtype = jnp.result_type(x, y)
    is_known = isinstance(y, np.ndarray | np.generic)
    bits = int(np.max(y, initial=0)).bit_length() if is_known else np.iinfo(dtype).bits
    x, y = jnp.broadcast_arrays(jnp.asarray(x, dtype), jnp.asarray(y, dtype))

    def square(_: object, state: tuple[jax.Array, ...]) -> Any:
        product, base, bits = state
        product = jnp.where(bits & 1 == 1, product * base, product)
        return product, base * base, bits >> 1

    product, _, _ = manual_axes.fori_loop(0, bits, square, (jnp.ones_like(x), x, jnp.maximum(y, 0)))
    if dtype.kind == "u":
        return product
    inverse = jnp.where(x == 1, 1, jnp.where(x == -1, 1 - 2 * (y & 1), 0)).astype(dtype)
    return jnp.where(y < 0, inverse, product)
