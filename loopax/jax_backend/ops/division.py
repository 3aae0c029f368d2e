"""Floor division and its remainder, with NumPy's values.

JAX rounds the quotient of floats before it takes the floor: ``-7.0 // 0.7`` is -10 although the exact
quotient is below that, and ``inf // 2`` is infinity where NumPy has nan.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from loopax.numerics.arrays import Array


def floor_divide(x: Array, y: Array) -> Any:
    if jnp.result_type(x, y).kind in "biu":
        # NumPy, and so PyTensor, defines integer division by 0 as 0; XLA gives -1.
        return jnp.where(y == 0, 0, jnp.floor_divide(x, jnp.where(y == 0, 1, y)))
    # Its derivative is 0 wherever it exists.
    return _float_divmod(jax.lax.stop_gradient(x), jax.lax.stop_gradient(y))[0]


def remainder(x: Array, y: Array) -> Any:
    dtype = jnp.result_type(x, y)
    if dtype.kind in "biu":
        return jnp.where(y == 0, 0, jnp.mod(x, jnp.where(y == 0, 1, y)))
    # A tangent of a `custom_jvp` has the shape and the dtype of its result.
    return _float_remainder(*jnp.broadcast_arrays(jnp.asarray(x, dtype), jnp.asarray(y, dtype)))


@jax.custom_jvp
def _float_remainder(x: Array, y: Array) -> Any:
    return _float_divmod(x, y)[1]


_float_remainder.defjvps(lambda t, out, x, y: t, lambda t, out, x, y: -t * floor_divide(x, y))


def _float_divmod(x: Array, y: Array) -> tuple[Any, Any]:
    """Compute `numpy.divmod`: the remainder is exact, and makes the quotient nearly integral."""
    x, y = jnp.broadcast_arrays(x, y)
    remainder_of = jax.lax.rem(x, y)  # exact, with the sign of x
    other_side = (remainder_of != 0) & ((y < 0) != (remainder_of < 0))
    quotient = (x - remainder_of) / y - jnp.where(other_side, 1, 0)
    whole = jnp.floor(quotient)
    whole = whole + jnp.where(quotient - whole > 0.5, 1, 0)
    whole = jnp.where(quotient == 0, jnp.copysign(0.0, x / y).astype(x.dtype), whole)
    remainder_of = jnp.where(
        remainder_of == 0,
        jnp.copysign(0.0, y).astype(x.dtype),
        remainder_of + jnp.where(other_side, y, 0),
    )
    return jnp.where(y == 0, x / y, whole), jnp.where(y == 0, jnp.nan, remainder_of)
