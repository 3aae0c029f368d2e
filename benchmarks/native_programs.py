"""The programs that run as one native function, in PyTensor, as its users write them.

A graph is built for shapes that are declared or, where ``static`` is false, for shapes that are only known
when it is called. `native_hand` has the same functions by hand, of the same inputs in the same order;
the first of `garch`, `ar2` and `kalman` are those of `programs`.
"""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.scan import until

Graph = tuple[list[Any], Any]  # inputs, and one scalar


def tensor(name: str, *shape: int | None, static: bool) -> Any:
    return pt.tensor(name, dtype="float64", shape=shape if static else (None,) * len(shape))


def gaussian(y: Any, mean: Any) -> Any:
    """Log-density of each observation in each state."""
    return -0.5 * (y[:, None] - mean) ** 2 - 0.5 * np.log(2 * np.pi)


# Hidden Markov model, 4 states with Gaussian observations y: log-likelihood by the forward recursion.


def hmm(static: bool) -> Graph:
    """The probabilities are scaled to a sum of 1 in each step."""
    start, A, mean = (tensor(n, *s, static=static) for n, s in HMM)
    y = pt.dvector("y")

    def step(b: Any, alpha: Any, A: Any) -> Any:
        alpha = (alpha @ A) * b
        c = alpha.sum()
        return alpha / c, pt.log(c)

    b = pt.exp(gaussian(y, mean))
    first = start * b[0]
    _, logs = pytensor.scan(
        step,
        sequences=[b[1:]],
        outputs_info=[first / first.sum(), None],
        non_sequences=[A],
        return_updates=False,
    )
    return [start, A, mean, y], pt.log(first.sum()) + logs.sum()


def log_of_sum(x: Any, A: Any) -> Any:
    """log(exp(x) @ A). PyTensor's gradient of its logsumexp is nan once all terms underflow."""
    most = x.max()
    return pt.log(pt.exp(x - most) @ A) + most


def hmm_log(static: bool) -> Graph:
    """The same in logarithms."""
    start, A, mean = (tensor(n, *s, static=static) for n, s in HMM)
    y = pt.dvector("y")
    b = gaussian(y, mean)
    alpha = pytensor.scan(
        lambda b, alpha, A: log_of_sum(alpha, A) + b,
        sequences=[b[1:]],
        outputs_info=[pt.log(start) + b[0]],
        non_sequences=[A],
        return_updates=False,
    )
    return [start, A, mean, y], log_of_sum(alpha[-1], np.ones(4))


HMM = (("start", (4,)), ("A", (4, 4)), ("mean", (4,)))


def hmm_values() -> list[Any]:
    rng = np.random.default_rng(3)
    A = rng.uniform(0.1, 1.0, (4, 4)) + 3 * np.eye(4)
    start = np.full(4, 0.25)
    return [start, A / A.sum(1, keepdims=True), np.arange(4.0), rng.normal(1.5, 1.5, 501)]


# Recurrent network: 32 units, a batch of 16, 100 steps; the loss is that of the outputs' last row.


def rnn(static: bool) -> Graph:
    x = tensor("x", None, 16, 8, static=static)
    h0, target = (tensor(n, 16, 32, static=static) for n in ("h0", "target"))
    U, W = tensor("U", 8, 32, static=static), tensor("W", 32, 32, static=static)
    b = tensor("b", 32, static=static)
    h = pytensor.scan(
        lambda x, h, U, W, b: pt.tanh(x @ U + h @ W + b),
        sequences=[x],
        outputs_info=[h0],
        non_sequences=[U, W, b],
        return_updates=False,
    )
    return [x, h0, target, U, W, b], ((h[-1] - target) ** 2).sum()


def rnn_values() -> list[Any]:
    rng = np.random.default_rng(4)
    shapes = ((100, 16, 8), (16, 32), (16, 32), (8, 32), (32, 32), (32,))
    return [
        scale * rng.normal(size=s) for scale, s in zip((1, 1, 1, 0.3, 0.1, 1), shapes, strict=True)
    ]


# Lotka-Volterra by Runge-Kutta 4: sum of squared residuals to data.


def runge_kutta() -> Graph:
    a, b, c, d, u0, v0, dt = pt.dscalars("a", "b", "c", "d", "u0", "v0", "dt")
    u_data, v_data = pt.dvectors("u_data", "v_data")

    def slope(u: Any, v: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return a * u - b * u * v, c * u * v - d * v

    def step(u: Any, v: Any, dt: Any, *rates: Any) -> Any:
        u1, v1 = slope(u, v, *rates)
        u2, v2 = slope(u + dt / 2 * u1, v + dt / 2 * v1, *rates)
        u3, v3 = slope(u + dt / 2 * u2, v + dt / 2 * v2, *rates)
        u4, v4 = slope(u + dt * u3, v + dt * v3, *rates)
        return u + dt / 6 * (u1 + 2 * u2 + 2 * u3 + u4), v + dt / 6 * (v1 + 2 * v2 + 2 * v3 + v4)

    u, v = pytensor.scan(
        step,
        outputs_info=[u0, v0],
        non_sequences=[dt, a, b, c, d],
        n_steps=u_data.shape[0],
        return_updates=False,
    )
    return [a, b, c, d, u0, v0, dt, u_data, v_data], ((u - u_data) ** 2 + (v - v_data) ** 2).sum()


def runge_kutta_values() -> list[Any]:
    u, v = np.random.default_rng(5).uniform(0.5, 2.0, (2, 500))
    return [1.1, 0.4, 0.1, 0.4, 1.0, 1.0, 0.02, u, v]


# A loop in a loop: a state driven by 100 inputs, 20 Euler steps between two of them.


def nested() -> Graph:
    k, c, z0 = pt.dscalars("k", "c", "z0")
    f, y = pt.dvectors("f", "y")

    def outer(f: Any, z: Any, k: Any, c: Any) -> Any:
        return pytensor.scan(
            lambda z, f, k, c: z + 0.05 * (f - k * z - c * z**3),
            outputs_info=[z],
            non_sequences=[f, k, c],
            n_steps=20,
            return_updates=False,
        )[-1]

    z = pytensor.scan(
        outer, sequences=[f], outputs_info=[z0], non_sequences=[k, c], return_updates=False
    )
    return [k, c, z0, f, y], ((z - y) ** 2).sum()


def nested_values() -> list[Any]:
    f, y = np.random.default_rng(6).normal(size=(2, 100))
    return [0.7, 0.2, 0.1, f, y]


# Newton's method until converged, for Kepler's equation E - e sin E = m.


def kepler(m: Any, e: Any) -> Any:
    def step(E: Any, m: Any, e: Any) -> Any:
        new = E - (E - e * pt.sin(E) - m) / (1 - e * pt.cos(E))
        return new, until(abs(new - E) < 1e-10)

    return pytensor.scan(
        step, outputs_info=[m], non_sequences=[m, e], n_steps=50, return_updates=False
    )[-1]


def newton() -> Graph:
    m, e = pt.dscalars("m", "e")
    return [m, e], kepler(m, e)


def newton_values() -> list[Any]:
    return [1.3, 0.8]


def newton_many() -> Graph:
    m, e = pt.dvector("m"), pt.dscalar("e")
    E = pytensor.scan(kepler, sequences=[m], non_sequences=[e], return_updates=False)
    return [m, e], (E**2).sum()


def newton_many_values() -> list[Any]:
    return [np.linspace(0.0, 3.0, 200), 0.8]


# Newton's method for the location of Cauchy observations: each step reads all 500 of them.


def newton_data() -> Graph:
    start, scale = pt.dscalars("start", "scale")
    y = pt.dvector("y")

    def step(x: Any, y: Any, scale: Any) -> Any:
        z = (y - x) / scale
        w = 1 / (1 + z**2)
        first, second = (z * w).sum(), ((1 - z**2) * w**2).sum()
        new = x + scale * first / second
        return new, until(abs(new - x) < 1e-10)

    x = pytensor.scan(
        step, outputs_info=[start], non_sequences=[y, scale], n_steps=100, return_updates=False
    )[-1]
    return [start, scale, y], x**2


def newton_data_values() -> list[Any]:
    return [0.9, 1.5, 1.0 + np.random.default_rng(7).standard_cauchy(500)]
