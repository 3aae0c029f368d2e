"""Differential equations by fixed and adaptive steps, bodies, and cells on a grid."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.jax_functions.function import JaxFunction, draws


def runge_kutta(p):
    def slope(y):
        return jnp.stack([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])

    def step(y, _):
        h = 0.02
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    return lax.scan(step, jnp.ones(2, p.dtype), None, length=1000)[1].sum()


def bogacki_shampine(p):
    """The Lorenz equations by adaptive steps of third order."""

    def slope(y):
        x, y, z = y
        return jnp.stack([p[0] * (y - x), x * (p[1] - z) - y, x * y - p[2] * z])

    def goes_on(carry):
        return carry[0] < 1.0

    def step(carry):
        t, y, h = carry
        h = jnp.minimum(h, 1.0 - t)
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + 3 * h / 4 * k2)
        new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        k4 = slope(new)
        error = h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)
        scale = 1e-6 + 1e-6 * jnp.maximum(jnp.abs(y), jnp.abs(new))
        size = jnp.sqrt(jnp.mean((error / scale) ** 2))
        accepts = size <= 1.0
        factor = jnp.clip(0.9 * jnp.power(size + 1e-30, -1 / 3), 0.2, 5.0)
        return jnp.where(accepts, t + h, t), jnp.where(accepts, new, y), h * factor

    return lax.while_loop(goes_on, step, (0.0, jnp.ones(3), 1e-3))[1].sum()


def bodies(p, start):
    def acceleration(x):
        d = x[:, None] - x[None]
        square = (d**2).sum(-1) + 0.1
        return -p[0] * (d / square[..., None] ** 1.5).sum(1)

    def step(carry, _):
        x, v = carry
        v = v + 0.01 * acceleration(x)
        return (x + 0.01 * v, v), None

    x, v = lax.scan(step, (start, jnp.zeros_like(start)), None, length=100)[0]
    return p[1] * (x**2).sum() + (v**2).sum()


def heat(p):
    start = jnp.zeros((32, 32), p.dtype).at[10, 12].set(p[1])

    def step(u, _):
        q = jnp.pad(u, 1)
        around = q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:]
        return u + p[0] * (around - 4 * u), None

    return (lax.scan(step, start, None, length=100)[0] ** 2).sum()


def life(p, cells):
    sides = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]

    def step(alive, _):
        near = sum(jnp.roll(alive, side, (0, 1)) for side in sides)
        return ((near == 3) | ((near == 2) & (alive == 1))).astype(alive.dtype), None

    return p[0] * lax.scan(step, cells, None, length=50)[0].sum()


_CELLS = (draws(24, 24) > 0.5).astype(int)

FUNCTIONS = {
    "runge_kutta": JaxFunction(runge_kutta, (np.array([0.8, 0.5, 0.4, 0.6]),)),
    "bogacki_shampine": JaxFunction(bogacki_shampine, (np.array([10.0, 28.0, 8 / 3]),), False),
    "bodies": JaxFunction(bodies, (np.array([0.2, 0.5]), draws(20, 3))),
    "heat": JaxFunction(heat, (np.array([0.1, 5.0]),)),
    "life": JaxFunction(life, (np.array([1.0]), _CELLS), False),
}
