"""Loops that stop early: 100 steps of at most 100,000, beside what one writes by hand.

The forward pass beside ``lax.while_loop``; value and gradient beside those of a plain ``lax.scan`` of 100
steps, which knows beforehand what the loop finds out, and beside ``equinox.internal.while_loop`` with
``kind="checkpointed"``; 64 rows at once, that stop after 37 to 100 steps, beside a scan over the longest.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt

from benchmarks.comparisons import check_agreement
from benchmarks.measure import repeated_calls
from benchmarks.report import STOPPING, Figure
from loopax import jaxify, scan

BOUND, STEPS, ROWS = 100_000, 100, 64
FORWARD, GRADIENT, CALL = 1.1, 2.5, 50e-6  # seconds that a gradient may take besides
WIDTH = 8  # numbers in the state


def step(sin: Callable, x: Any, a: Any) -> Any:
    return x + 0.01 * sin(a * x) + 0.01


def ours_graph() -> Any:
    x, a, end = pt.dvector("x"), pt.dscalar("a"), pt.dscalar("end")

    def until(x, _):
        new = step(pt.sin, x, a)
        return new, None, new[0] > end

    return [x, a, end], scan(until, x, length=BOUND)[0].sum()


def ours() -> Any:
    return jaxify(*ours_graph())


def by_while_loop(x: Any, a: Any, end: Any) -> Any:
    def going(carry):
        k, x = carry
        return (k < BOUND) & (x[0] <= end)

    def body(carry):
        return carry[0] + 1, step(jnp.sin, carry[1], a)

    return jax.lax.while_loop(going, body, (0, x))[1].sum()


def by_scan(x: Any, a: Any, end: Any) -> Any:
    """It masks nothing: it is told how many steps there are."""
    return jax.lax.scan(lambda x, _: (step(jnp.sin, x, a), None), x, None, length=STEPS)[0].sum()


def by_masked_scan(x: Any, a: Any, end: Any) -> Any:
    def body(x, _):
        return jnp.where(x[0] <= end, step(jnp.sin, x, a), x), None

    return jax.lax.scan(body, x, None, length=STEPS)[0].sum()


def by_equinox(x: Any, a: Any, end: Any) -> Any:
    from equinox.internal import while_loop

    return while_loop(
        lambda x: x[0] <= end,
        lambda x: step(jnp.sin, x, a),
        x,
        max_steps=BOUND,
        kind="checkpointed",
    ).sum()


def arguments() -> tuple[Any, ...]:
    """A start, a parameter, and an end that the loop passes in its last step."""
    x, a = np.linspace(0.1, 0.2, WIDTH), 0.5
    y = x
    for _ in range(STEPS):
        before, y = y, step(np.sin, y, a)
    end = (before[0] + y[0]) / 2
    return tuple(jax.device_put(v) for v in (x, np.float64(a), np.float64(end)))


def stoppings(pairs: int) -> Iterator[Figure]:
    """Forward, gradient, a batch of gradients."""
    x, a, end = args = arguments()

    def figure(name: str, limit: Any, mine: Callable, theirs: Callable, args: Any) -> Figure:
        check_agreement(jax.jit(mine())(*args), jax.jit(theirs())(*args))
        calls = repeated_calls(lambda: (jax.jit(mine()), jax.jit(theirs())), args, pairs)
        if limit == GRADIENT:
            limit += CALL / float(np.median(calls.theirs))
        return Figure("stopping", name, STOPPING, limit, calls)

    def gradient(f: Callable) -> Callable:
        return jax.value_and_grad(f, (0, 1))

    yield figure("while_loop", FORWARD, ours, lambda: by_while_loop, args)
    yield figure("scan, grad", GRADIENT, lambda: gradient(ours()), lambda: gradient(by_scan), args)
    rows = x * jnp.linspace(1.0, 3.0, ROWS)[:, None]
    batch = rows, a, end

    def batched(f: Callable) -> Callable:
        return jax.vmap(gradient(f), in_axes=(0, None, None))

    yield figure(
        "64 rows, grad", GRADIENT, lambda: batched(ours()), lambda: batched(by_masked_scan), batch
    )
    try:
        import equinox  # noqa: F401
    except ImportError:
        return
    equinoxes = "equinox, grad", 1.0, lambda: gradient(ours()), lambda: gradient(by_equinox)
    yield figure(*equinoxes, args)
