"""Solvers that iterate: roots, linear systems, fixed points, sums along an array."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.jax_functions.function import JaxFunction, draws


def newton(p, xs):
    def solve(x):
        def goes_on(carry):
            return (jnp.abs(carry[1]) > 1e-10) & (carry[2] < 50)

        def improve(carry):
            x, _, n = carry
            step = (x**3 - p[0] * x - p[1]) / (3 * x**2 - p[0])
            return x - step, step, n + 1

        return lax.while_loop(goes_on, improve, (x, 1.0, 0))[0]

    return jax.vmap(solve)(xs).sum()


def bisection(p):
    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        is_below = jnp.cos(middle) * p[0] > middle * p[1]
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    low, high = lax.fori_loop(0, 50, halve, (0.0 * p[0], 1.0 + 0.0 * p[0]))
    return low + high + p[0]


def conjugate_gradients(p, a, b):
    m = a @ a.T + p[0] * jnp.eye(30)

    def goes_on(carry):
        return (carry[3] > 1e-16) & (carry[4] < 100)

    def step(carry):
        x, residual, direction, square, n = carry
        moved = m @ direction
        length = square / (direction @ moved)
        x, residual = x + length * direction, residual - length * moved
        new = residual @ residual
        return x, residual, residual + new / square * direction, new, n + 1

    return lax.while_loop(goes_on, step, (jnp.zeros(30), b, b, b @ b, 0))[0].sum()


def tridiagonal(p, right):
    def forward(carry, d):
        c, e = carry
        m = p[1] - p[0] * c
        out = p[2] / m, (d - p[0] * e) / m
        return out, out

    def backward(x, row):
        x = row[1] - row[0] * x
        return x, x

    rows = lax.scan(forward, (0.0, 0.0), right)[1]
    return (lax.scan(backward, 0.0, rows, reverse=True)[1] ** 2).sum()


def running_sums(xs):
    def step(total, x):
        return total + x, total + x

    return (lax.scan(step, 0.0, xs)[1] ** 2).sum()


def value_iteration(transitions, rewards):
    def step(value, _):
        return (rewards + 0.95 * jnp.einsum("sat,t->sa", transitions, value)).max(1), None

    return lax.scan(step, jnp.zeros(rewards.shape[0]), None, length=200)[0].sum()


def mandelbrot(p, xs):
    def escape(x):
        c = x + 1j * p[0]

        def goes_on(carry):
            return (jnp.abs(carry[0]) < 2) & (carry[1] < 100)

        return lax.while_loop(goes_on, lambda s: (s[0] ** 2 + c, s[1] + 1), (0j, 0))[1]

    return jax.vmap(escape)(xs).sum()


def mapped_loops(p, xs):
    def one(x):
        return lax.fori_loop(0, 20, lambda _, y: jnp.sin(y * p) + x, x).sum()

    return lax.map(one, xs).sum()


_TRANSITIONS = np.random.default_rng(3).dirichlet(np.ones(5), size=(5, 3))

FUNCTIONS = {
    "newton": JaxFunction(newton, (np.array([2.0, 1.0]), np.linspace(1.2, 4, 200)), False),
    "bisection": JaxFunction(bisection, (np.array([1.0, 1.3]),)),
    "conjugate_gradients": JaxFunction(
        conjugate_gradients, (np.array([30.0]), draws(30, 30), draws(30)), False
    ),
    "tridiagonal": JaxFunction(tridiagonal, (np.array([1.0, 4.0, 1.0]), draws(500))),
    "running_sums": JaxFunction(running_sums, (draws(2000),)),
    "value_iteration": JaxFunction(value_iteration, (_TRANSITIONS, draws(5, 3))),
    "mandelbrot": JaxFunction(mandelbrot, (np.array([0.3]), np.linspace(-1, 1, 400)), False),
    "mapped_loops": JaxFunction(mapped_loops, (draws(4), draws(200, 4))),
}
