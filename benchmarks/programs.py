"""The programs that are measured: each in PyTensor, and beside it as an expert writes it in JAX."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from jax import lax


class Program(NamedTuple):
    """One scalar function, twice."""

    title: str  # with the number of steps
    graph: Callable[[], tuple[list, Any]]  # builds the PyTensor graph: its inputs and its output
    hand: Callable[..., Any]  # the same function in JAX, of the same inputs in the same order
    values: Callable[[], list[np.ndarray]]  # one float64 array for each input


# GARCH(1,1): s2[t] = w + a r[t-1]^2 + b s2[t-1], and the Gaussian log-likelihood of the returns r.


def garch_graph():
    w, a, b, s2_0 = pt.dscalars("w", "a", "b", "s2_0")
    r = pt.dvector("r")
    s2 = pytensor.scan(
        lambda r, s2, w, a, b: w + a * r**2 + b * s2,
        sequences=[r[:-1]],
        outputs_info=[s2_0],
        non_sequences=[w, a, b],
        return_updates=False,
    )
    s2 = pt.concatenate([s2_0[None], s2])
    return [w, a, b, s2_0, r], -0.5 * pt.sum(pt.log(2 * np.pi * s2) + r**2 / s2)


def garch_hand(w, a, b, s2_0, r):
    def step(s2, r):
        s2 = w + a * r**2 + b * s2
        return s2, s2

    _, s2 = lax.scan(step, s2_0, r[:-1])
    s2 = jnp.concatenate([s2_0[None], s2])
    return -0.5 * jnp.sum(jnp.log(2 * np.pi * s2) + r**2 / s2)


def garch_values():
    # 2001 returns: the first variance is given, so the loop has 2000 steps.
    r = np.random.default_rng(0).normal(size=2001)
    return [np.float64(0.1), np.float64(0.2), np.float64(0.7), np.float64(1.0), r]


# AR(2): y[t] = p1 y[t-1] + p2 y[t-2] + e[t], and the sum of its squares.


def ar2_graph():
    p1, p2 = pt.dscalars("p1", "p2")
    y0, e = pt.dvectors("y0", "e")
    y = pytensor.scan(
        lambda e, y1, y2, p1, p2: p1 * y1 + p2 * y2 + e,
        sequences=[e],
        outputs_info=[{"initial": y0, "taps": [-1, -2]}],
        non_sequences=[p1, p2],
        return_updates=False,
    )
    return [p1, p2, y0, e], pt.sum(y**2)


def ar2_hand(p1, p2, y0, e):
    def step(carry, e):
        y1, y2 = carry
        y = p1 * y1 + p2 * y2 + e
        return (y, y1), y

    _, y = lax.scan(step, (y0[1], y0[0]), e)
    return jnp.sum(y**2)


def ar2_values():
    rng = np.random.default_rng(1)
    return [np.float64(0.5), np.float64(0.3), rng.normal(size=2), rng.normal(size=1000)]


# Kalman filter, 3 states and a scalar observation: x' = T x + N(0, Q), y = Z x + N(0, H), and the
# log-likelihood of the observations y. (a, P): mean and covariance of the predicted state.


def kalman_graph(n=None):
    # With the number of states as static shape, where a backend can use it.
    T, Q, P_0 = (pt.matrix(name, shape=(n, n), dtype="float64") for name in ("T", "Q", "P_0"))
    Z, a_0 = (pt.vector(name, shape=(n,), dtype="float64") for name in ("Z", "a_0"))
    y = pt.dvector("y")
    H = pt.dscalar("H")

    def step(y, a, P, T, Z, Q, H):
        v = y - Z @ a
        F = Z @ P @ Z + H
        K = T @ P @ Z / F
        a_next = T @ a + K * v
        P_next = T @ P @ (T - pt.outer(K, Z)).T + Q
        return a_next, P_next, -0.5 * (pt.log(2 * np.pi * F) + v**2 / F)

    *_, terms = pytensor.scan(
        step,
        sequences=[y],
        outputs_info=[a_0, P_0, None],
        non_sequences=[T, Z, Q, H],
        return_updates=False,
    )
    return [T, Z, Q, H, a_0, P_0, y], pt.sum(terms)


def kalman_hand(T, Z, Q, H, a_0, P_0, y):
    def step(carry, y):
        a, P = carry
        v = y - Z @ a
        F = Z @ P @ Z + H
        K = T @ P @ Z / F
        a_next = T @ a + K * v
        P_next = T @ P @ (T - jnp.outer(K, Z)).T + Q
        return (a_next, P_next), -0.5 * (jnp.log(2 * np.pi * F) + v**2 / F)

    _, terms = lax.scan(step, (a_0, P_0), y)
    return jnp.sum(terms)


def kalman_values():
    T = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.1], [0.0, 0.0, 0.7]])
    Z = np.array([1.0, 0.5, 0.2])
    y = np.random.default_rng(2).normal(size=200)
    return [T, Z, 0.1 * np.eye(3), np.float64(0.3), np.zeros(3), np.eye(3), y]


PROGRAMS = {
    "garch": Program("GARCH 2000", garch_graph, garch_hand, garch_values),
    "ar2": Program("AR(2) 1000", ar2_graph, ar2_hand, ar2_values),
    "kalman": Program("Kalman 200", kalman_graph, kalman_hand, kalman_values),
}
