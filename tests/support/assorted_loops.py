"""Assorted loops, as scalars of their inputs: what derivatives, batches and passes are tried on."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from loopax import cond, fori_loop, lag, lead, scan, while_loop
from tests.support.compare import FAST_COMPILE

# PyTensor's Python code for an Elemwise takes 31 operands, and this rewrite makes sums of more.
PLAIN = FAST_COMPILE.excluding("local_add_canonizer")

x = pt.dvector("x")
s = pt.dscalar("s")
a = pt.dscalar("a")
v = pt.dvector("v")
m = pt.dmatrix("m")
X = np.array([0.4, -0.9, 0.7, 0.2])
V = np.array([0.3, -0.5])
M = np.array([[0.4, -0.3], [0.2, 0.6]])


class Case(NamedTuple):
    """What a loop makes of some inputs, and a scalar of that."""

    inputs: list[Any]
    outs: Sequence[Any]
    cost: Any
    values: list[Any]
    # Whether JAX's own reverse mode goes through the transpiled program.
    in_jax: bool = True
    # Whether it can be compiled by JAX: the trace of a loop that stops has no known length there.
    jit: bool = True


def recurrence(**options: Any) -> Case:
    final, ys = scan(lambda c, r: (a * c + pt.sin(c * r), c * r), s, x, **options)
    return Case([x, s, a], [final, ys], final**2 + (ys**3).sum(), [X, 0.6, 0.7])


def recurrent_network() -> Case:
    def step(h, r):
        h = pt.tanh(m @ h + r * v)
        return h, h.sum()

    final, ys = scan(step, v, x)
    return Case([x, v, m], [final, ys], (final**2).sum() + (ys[1:] * ys[:-1]).sum(), [X, V, M])


def coupled() -> Case:
    def step(c, r):
        p = c["p"] - 0.3 * pt.sin(c["q"]) * a
        return {"p": p, "q": c["q"] + 0.3 * p}, r * p

    final, ys = scan(step, {"p": s, "q": a**2}, x)
    return Case(
        [x, s, a],
        [final["p"], final["q"], ys],
        final["q"] ** 3 + ys.sum() * final["p"],
        [X, 0.6, 0.7],
    )


def counted() -> Case:
    def step(c, r):
        n, z = c
        return (n + 2, z * pt.cos(n * a) + r), n * z

    (n, z), ys = scan(step, (1, s), x)
    return Case([x, s, a], [n, z, ys], n * z**2 + (ys**2).sum(), [X, 0.6, 0.7])


def nested() -> Case:
    def inner(c, w):
        return pt.tanh(a * c + w), c**2

    def outer(c, r):
        final, ys = scan(inner, c * r, x + c)
        return final + a * ys.sum(), final

    final, ys = scan(outer, s, v)
    return Case([x, v, s, a], [final, ys], final**2 + (ys**3).sum(), [X[:3], V, 0.6, 0.7])


def traces_only() -> Case:
    _, ys = scan(lambda c, r: (pt.sin(a * c) + r, (c * r, pt.exp(-(c**2)))), s, x)
    return Case([x, s, a], [*ys], (ys[0] * ys[1]).sum(), [X, 0.6, 0.7])


def finals_only() -> Case:
    final = fori_loop(1, 5, lambda i, c: pt.tanh(a * c + s / i), v)
    return Case([v, s, a], [final], (final**3).sum(), [V, 0.6, 0.7])


def lags() -> Case:
    def step(c, r):
        (last, far), (now, ahead) = c, r
        new = pt.sin(a * last + far * now) + ahead**2
        return new, new * now

    final, ys = scan(step, lag(v, [1, 2]), lead(x, [0, 1]))
    return Case([x, v, a], [final, ys], (final**2).sum() + (ys**3).sum(), [X, V, 0.7])


def far_lags() -> Case:
    start = pt.dvector("start")

    def step(c, r):
        new = pt.sin(a * c[0]) + c[1] * r
        return new, new**2

    final, ys = scan(step, lag(start, [1, 12]), x)
    return Case(
        [x, start, a],
        [final, ys],
        (final**3).sum() + ys.sum(),
        [X, np.linspace(-0.6, 0.5, 12), 0.7],
    )


def branching() -> Case:
    def step(c, r):
        c = cond(r > 0, lambda: pt.sin(c * r) + a, lambda: a * c**2 - r)
        return c, cond(c > 0.5, lambda: c**2, lambda: pt.exp(c))

    final, ys = scan(step, s, x)
    return Case([x, s, a], [final, ys], final**2 + ys.sum() ** 2, [X, 0.6, 0.7])


def inside_and_outside() -> Case:
    final, ys = scan(lambda c, r: (c * a + r * x[0], c * a.exp()), s * a, x * a)
    return Case([x, s, a], [final, ys], a * final**2 + (ys * x).sum() + x[3] * a**3, [X, 0.6, 0.7])


def echoed() -> Case:
    """States before and after the step, rows and constants, emitted as they are."""

    def step(c, r):
        p, q = c
        new = pt.sin(p * r) + a * q
        return (new, p), (p, new, q, r, a)

    final, ys = scan(step, (s, a * s), x)
    return Case(
        [x, s, a], [*final, *ys], final[0] * final[1] + sum((y**2).sum() for y in ys), [X, 0.6, 0.7]
    )


def feeding() -> Case:
    """Each thing that the step returns follows from the one before it, or is it."""

    def step(c, r):
        p, q, _ = c
        p = pt.sin(p * a) + r * q
        q = p**2 + 0.5 * q
        y = p * q
        return (p, q, y), (y, y * p, p)

    final, ys = scan(step, (s, a, s), x)
    return Case(
        [x, s, a], [*final, *ys], sum(f**2 for f in final) + sum(y.sum() for y in ys), [X, 0.6, 0.7]
    )


def stopping(**options: Any) -> Case:
    def step(c, r):
        c = c + a * r**2 + pt.exp(-c)
        return c, c * r, c > 2.0

    final, ys, stopped = scan(step, s, x, **options)
    return Case(
        [x, s, a],
        [final, ys, stopped],
        final**2 + (ys**2).sum(),
        [X, 0.6, 0.7],
        in_jax=False,
        jit=False,
    )


def stopping_finals(**options: Any) -> Case:
    def body(c):
        return c[0] + a / (1 + c[1] ** 2), c[0] * c[1]

    p, q = while_loop(lambda c: c[0] < 2.0, body, (s, a), max_steps=9, **options)
    return Case([s, a], [p, q], p**2 * q, [0.6, 0.7], in_jax=False)


CASES: dict[str, Callable[[], Case]] = {
    "recurrence": recurrence,
    "reverse": functools.partial(recurrence, reverse=True),
    "sqrt": functools.partial(recurrence, checkpoint="sqrt"),
    "every 3": functools.partial(recurrence, checkpoint=3, reverse=True),
    "unrolled": functools.partial(recurrence, unroll=3),
    "recurrent network": recurrent_network,
    "coupled": coupled,
    "counted": counted,
    "nested": nested,
    "traces only": traces_only,
    "finals only": finals_only,
    "lags": lags,
    "far lags": far_lags,
    "branching": branching,
    "inside and outside": inside_and_outside,
    "echoed": echoed,
    "feeding": feeding,
    "stopping": stopping,
    "stopping, reverse": functools.partial(stopping, reverse=True),
    "stopping, sqrt": functools.partial(stopping, checkpoint="sqrt"),
    "stopping, finals": stopping_finals,
}


def slopes(f: Callable[..., Any], values: Any) -> list[list[Any]]:
    """Finite differences of each of the scalars that ``f`` returns, by each of its arguments."""
    h = 2e-3
    n, actual = len(f(*values)), []
    for k, value in enumerate(values):
        value = np.asarray(value, dtype=float)
        slope = np.zeros((value.size, n))
        for j in range(value.size):
            shifted = []
            for t in (-2, -1, 1, 2):
                moved = value.copy()
                moved.flat[j] += t * h
                shifted.append(np.array(f(*values[:k], moved, *values[k + 1 :])))
            slope[j] = (shifted[0] - 8 * shifted[1] + 8 * shifted[2] - shifted[3]) / (12 * h)
        actual.append(slope.T.reshape((n, *value.shape)))
    return [[x[k] for x in actual] for k in range(n)]


def close(actual: Any, expected: Any, rtol: float) -> None:
    for k, (gs, es) in enumerate(zip(actual, expected, strict=True)):
        scale = max([np.abs(e).max() for e in es if np.size(e)])
        for g, e in zip(gs, es, strict=True):
            np.testing.assert_allclose(g, e, rtol, atol=rtol * scale, err_msg=f"order {k + 1}")
