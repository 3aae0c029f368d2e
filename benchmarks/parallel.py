"""Affine recurrences in parallel over their steps, beside the same steps one by one.

An AR(1) path, a GARCH variance with its likelihood, and a path of 3 states with a matrix for each step.
``auto`` is what `jaxify` chooses on this machine, for 10 to 1,000,000 steps. ``8 devices`` is one more
process, with ``XLA_FLAGS=--xla_force_host_platform_device_count=8``, in which the steps are divided over 8
devices of as many cores as there are; the steps one by one run on one of them. On an accelerator the
rows of ``True`` are the ones to look at.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytensor.tensor as pt

from benchmarks.comparisons import check_agreement
from benchmarks.measure import Pairs, repeated_calls
from benchmarks.report import PARALLEL, Figure
from loopax import jaxify, scan

LENGTHS = (10, 1_000, 100_000, 1_000_000)
LIMIT = 1.05  # of "auto"
DEVICES = 8


def autoregression(**options: Any) -> Any:
    x, a = pt.dvector("x"), pt.dscalar("a")
    _, path = scan(lambda s, row: (a * s + row,) * 2, 0.0, x)
    return jaxify([x, a], path[-1] + (path**2).sum(), loops="xla", **options)


def garch(**options: Any) -> Any:
    x, a = pt.dvector("x"), pt.dscalar("a")
    _, terms = scan(
        lambda h, row: (0.1 + 0.1 * row**2 + a * h, pt.log(h) + row**2 / h), pt.ones(()), x
    )
    return jaxify([x, a], terms.sum(), loops="xla", **options)


def states(**options: Any) -> Any:
    x, a = pt.dvector("x"), pt.dscalar("a")

    def step(s, row):
        turn = pt.stack([pt.stack([a, 0.1, row]), pt.stack([0.0, a, 0.1]), pt.stack([0.1, 0.0, a])])
        return (turn @ s + row,) * 2

    final, path = scan(step, pt.zeros(3), 0.1 * pt.tanh(x))
    return jaxify([x, a], final.sum() + (path**2).sum(), loops="xla", **options)


PROGRAMS = {"AR(1)": autoregression, "GARCH": garch, "3 states": states}


def arguments(n: int) -> tuple[Any, ...]:
    return np.random.default_rng(0).normal(size=n), np.float64(0.8)


def both(make: Callable, gradient: bool, **options: Any) -> tuple[Callable, Callable]:
    """With ``options``, and the steps one by one, each compiled."""
    functions = [make(**options), make(parallel=False)]
    return tuple(jax.jit(jax.value_and_grad(f, (0, 1)) if gradient else f) for f in functions)  # type: ignore[return-value]


def figure(name: str, n: int, pairs: int, gradient: bool, limit: Any, **options: Any) -> Figure:
    args = [jax.device_put(x) for x in arguments(n)]
    check_agreement(*(f(*args) for f in both(PROGRAMS[name], gradient, **options)))
    calls = repeated_calls(lambda: both(PROGRAMS[name], gradient, **options), args, pairs)
    label = f"{options['parallel']}{', grad' * gradient}, {n:g}"
    return Figure(name, label, PARALLEL, limit, calls)


def parallels(pairs: int, say: Callable[[str], None]) -> Iterator[Figure]:
    """What "auto" chooses, at all lengths; blocks, with gradients; blocks over devices."""
    for n in LENGTHS:
        say(f"parallel, auto, {n} steps")
        yield figure("GARCH", n, pairs, False, LIMIT, parallel="auto")
    for name in PROGRAMS:
        for n in LENGTHS[1:]:
            say(f"parallel, {name}, {n} steps")
            yield figure(name, n, pairs, False, None, parallel=True)
        yield figure(name, LENGTHS[2], pairs, True, None, parallel=True)
    if jax.default_backend() == "cpu":
        say(f"parallel, {DEVICES} devices")
        yield from over_devices(pairs)


def over_devices(pairs: int) -> Iterator[Figure]:
    """The same in a process with several virtual devices, over which the steps are divided."""
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.parallel", str(pairs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for name, n, seconds in json.loads(done.stdout.splitlines()[-1]):
        label = f"{DEVICES} devices, {n:g}"
        yield Figure(name, label, PARALLEL, None, Pairs(*map(np.asarray, seconds)))


def divided(pairs: int) -> list[Any]:
    """Of each program and length: name, length, seconds of both sides."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    over = NamedSharding(Mesh(np.array(jax.devices()), ("steps",)), PartitionSpec("steps"))
    timings = []
    for name, make in PROGRAMS.items():
        for n in (100_000, 1_000_000):
            x, a = arguments(n)
            parallel, plain = both(make, False, parallel=True)
            split, whole = jax.device_put(x, over), jax.device_put(x)
            check_agreement(parallel(split, a), plain(whole, a))

            def mine(x: Any, f: Any = parallel, split: Any = split) -> Any:
                return f(split, 0.8)

            def theirs(x: Any, f: Any = plain, whole: Any = whole) -> Any:
                return f(whole, 0.8)

            calls = repeated_calls(lambda m=mine, t=theirs: (m, t), [None], pairs)
            timings.append((name, n, [list(map(float, side)) for side in calls]))
    return timings


if __name__ == "__main__":
    print(json.dumps(divided(int(sys.argv[1]))))
