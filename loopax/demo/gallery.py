"""Data and comparisons of the documentation's gallery, whose scripts run wherever loopax is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import toposort

from loopax.demo import interleaved_medians
from loopax.explanation.profile import time_in_words

DATA = Path(__file__).parent / "data"
# The time limit of one comparison, in seconds; each side has at least three turns.
PATIENCE = 1.0

# What `examples.gallery.__main__` sets and reads: whether calls are timed; and the ratios of the example
# that runs, by what is compared.
timing = True
ratios: dict[str, float] = {}


def read(name: str) -> np.ndarray:
    """The columns of `data/NAME.csv`, (n,) each; one column is one array. Its first line is the source."""
    return np.loadtxt(DATA / f"{name}.csv", delimiter=",", skiprows=2, unpack=True)


def compare_times(calls: Mapping[str, Callable[[], Any]]) -> None:
    """Time ``calls``, {name: call without arguments}, alternately, and print ratios to the last one.

    The last one is the baseline, by PyMC or PyTensor. A call returns when its result is there.
    """
    if not timing:
        return
    seconds: list[float] = []
    for call in calls.values():
        call()  # compiled, and its caches filled
        seconds += interleaved_medians([call], rounds=1, repeats=1)
    rounds = int(np.clip(PATIENCE / sum(seconds), 3, 200))
    repeats = int(np.clip(PATIENCE / (sum(seconds) * rounds), 1, 10))
    seconds = interleaved_medians(calls.values(), rounds=rounds, repeats=repeats)
    print(f"{'':34}{'time of a call':>16}{'ratio':>9}")
    *_, last = calls
    for name, each in zip(calls, seconds, strict=True):
        ratio = each / seconds[-1]
        print(f"{name:34}{time_in_words(each):>16}{ratio:9.2g}")
        if name != last:
            ratios[f"{name} / {last}"] = ratio


def pytensor_scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: object,
    xs: Any = None,
    length: int | None = None,
) -> tuple[Any, Any]:
    """`loopax.scan` by `pytensor.scan`, for models to compare with: no lags, and nothing that stops.

    Captured variables become `non_sequences`, as PyMC's models need it: PyTensor would take the roots of
    captured variables, which are draws there.
    """
    carry, of_carry = jax.tree.flatten(init)
    rows, of_rows = jax.tree.flatten(xs)
    carry = [pt.as_tensor(c).astype("float64") for c in carry]
    rows = [pt.as_tensor(x) for x in rows]
    now = [x[0].type() for x in rows]
    state = [c.type() for c in carry]
    following, emitted = step(jax.tree.unflatten(of_carry, state), jax.tree.unflatten(of_rows, now))
    emitted, of_emitted = jax.tree.flatten(emitted)
    outputs = [*jax.tree.leaves(following), *(y.copy() for y in emitted)]
    inside = {*now, *state}
    read: dict[Variable, None] = {}
    for node in toposort(outputs):
        if not inside.isdisjoint(node.inputs):
            inside.update(node.outputs)
            read |= dict.fromkeys(node.inputs)
    captured = [v for v in read if v not in inside and not isinstance(v, Constant)]

    def legacy_step(*args: Variable) -> Sequence[Variable]:
        return graph_replace(outputs, dict(zip([*now, *state], args, strict=False)), strict=False)

    traces = pytensor.scan(
        legacy_step,
        sequences=rows,
        outputs_info=[*carry, *[None] * len(emitted)],
        non_sequences=captured,
        n_steps=length,
        return_updates=False,
        return_list=True,
    )
    final = jax.tree.unflatten(of_carry, [trace[-1] for trace in traces[: len(carry)]])
    return final, jax.tree.unflatten(of_emitted, traces[len(carry) :])


def log_densities(model: object, own: Any) -> None:
    """Compare the log-density of a PyMC model and its gradient with PyMC's, of the same model `own`.

    Both are functions of one vector, the unconstrained values. They are compared at the point from which
    PyMC starts and at two near it, and timed. If nothing is timed, PyMC computes only the value, in
    Python, and the gradients of native code and of JAX are compared.
    """
    import loopax.pymc  # here: it imports PyMC, which not every example needs

    native = loopax.pymc.logp(model, backend="numba")
    in_jax = jax.jit(jax.value_and_grad(loopax.pymc.logp(model).ravel))
    native_gradient = loopax.value_and_grad(native.ravel)
    if timing:
        by_pymc = own.logp_dlogp_function(ravel_inputs=True)
    else:
        value_by_pymc = own.compile_logp(mode="FAST_COMPILE")

        def by_pymc(vector: np.ndarray) -> tuple[Any, Any]:
            return value_by_pymc(native.unflatten(vector)), in_jax(vector)[1]

    start = native.flatten(native.initial_point(0))
    rng = np.random.default_rng(1)
    worst = 0.0
    for point in (start, *(start + 0.05 * rng.normal(size=(2, len(start))))):
        value, gradient = by_pymc(point)
        scale = np.abs(gradient).max()
        for result in (native_gradient(point), in_jax(point)):
            np.testing.assert_allclose(result[0], value, rtol=1e-8)
            np.testing.assert_allclose(result[1], gradient, rtol=1e-6, atol=1e-8 * scale)
            worst = max(worst, np.max(np.abs(result[1] - gradient)) / scale)
    print(f"Log-density and gradient at 3 points of {len(start)} values: as PyMC's,")
    print(f"the largest difference {worst:.0e} of the gradient's largest element")
    compare_times(
        {
            "loopax, native": lambda: native_gradient(start),
            "loopax, JAX": lambda: jax.block_until_ready(in_jax(start)),
            "PyMC, as pm.sample compiles it": lambda: by_pymc(start),
        }
    )
