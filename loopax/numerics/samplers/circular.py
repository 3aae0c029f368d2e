"""The von Mises distribution around 0.

Rejection from a wrapped Cauchy distribution (Best and Fisher, "Efficient simulation of the von Mises
distribution", Applied Statistics 28, 1979). Their ``s`` is here in closed form: with ``t = sqrt(1 + 4
kappa^2)`` their rho and r give ``s = (1 + t) / (2 kappa)``, so ``kappa (s - 1)`` is ``d = (1 + 1 / (t +
2 kappa)) / 2``. In these terms nothing cancels for a large concentration, and there is no division by a
small one: no limit needs a special case, and 0 gives the uniform distribution.

The derivative of an accepted angle is not the derivative of the algorithm's steps: it follows from the
distribution function ``F`` as ``-(dF / dkappa) / f``, where

    dF / dkappa = integral from 0 to x of (cos t - A) f(t) dt,    A = I1(kappa) / I0(kappa)

(0 has the same rank for every ``kappa``), by Gauss-Legendre quadrature.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Arrays
from loopax.numerics.samplers.rejection import by_rejection, split


def von_mises(key: jax.Array, kappa: jax.Array) -> jax.Array:
    """One angle in [-pi, pi] for each element of ``kappa``; NaN for a NaN or negative one."""
    return _angle(kappa, key)


@jax.custom_jvp
def _angle(kappa: jax.Array, key: jax.Array) -> jax.Array:
    dtype, shape = kappa.dtype, kappa.shape
    bounded = jnp.minimum(kappa, jnp.finfo(dtype).max ** 0.25)
    d = (1 + 1 / (jnp.sqrt(1 + 4 * bounded**2) + 2 * bounded)) / 2

    def propose(at: jax.Array, height: jax.Array) -> tuple[jax.Array, jax.Array]:
        half = jnp.pi / 2 * at
        versine = 2 * jnp.sin(half) ** 2 * d / (d + bounded * 2 * jnp.cos(half) ** 2)  # 1 - cos x
        y = d + bounded * versine
        accepted = jnp.log(y) - jnp.log(height) + 1 - y >= 0
        return 2 * jnp.arcsin(jnp.sqrt(jnp.minimum(versine / 2, 1))), accepted

    key, side = split(key)
    # At least two of three proposals are accepted.
    x = by_rejection(key, kappa >= 0, dtype, propose)
    return jnp.where(jax.random.bernoulli(side, shape=shape), x, -x)


@_angle.defjvp
def _angle_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    kappa, key = primals
    x = _angle(kappa, key)
    points, shares = np.polynomial.legendre.leggauss(40)
    nodes, weights = (jnp.asarray(a, dtype=x.dtype) for a in ((points + 1) / 2, shares / 2))
    t = x[..., None] * nodes
    # cos t - A as (1 - A) - (1 - cos t), and cos t - cos x by their half angles: both are small.
    spread = 1 - jax.scipy.special.i1e(kappa) / jax.scipy.special.i0e(kappa)
    moment = spread[..., None] - 2 * jnp.sin(t / 2) ** 2
    excess = 2 * jnp.sin((x[..., None] + t) / 2) * jnp.sin((x[..., None] - t) / 2)
    slope = -x * (weights * moment * jnp.exp(kappa[..., None] * excess)).sum(-1)
    return x, slope * tangents[0]
