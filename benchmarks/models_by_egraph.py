"""The models with ``optimize="egraph"`` beside the same without: value and gradient.

    python -m benchmarks.models_by_egraph [--jax] [NAME ...]

In native code, or with ``--jax`` in JAX. Both are compiled in one process and run in turns. Where the
e-graph leaves a program as it was there is nothing to time: two compilations of one program differ by some
percent themselves. Native code runs on one thread, whose own time counts, so that other work on the
machine matters little. Rewriting is timed beside PyTensor's own, of its mode NUMBA.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pytensor
from pytensor.compile.debug.profiling import ProfileStats

from benchmarks.measure import BATCH, Estimate, Pairs, in_rounds, no_collection
from benchmarks.models_beside_pytensor import (
    FlatModel,
    compare,
    flat_model,
    value_and_pytensor_grad,
)
from loopax import explain, jaxify
from loopax.extensions.egraph.optimize import egraph

ROUNDS = 41


class Result(NamedTuple):
    name: str
    speed_up: Estimate | None  # None where the program is the same
    rewriting: float  # seconds of the pass
    in_pytensor: float  # seconds of PyTensor's own rewriting


def results(names: list[str], backend: str = "numba") -> Iterator[Result]:
    """Of each model. What is loaded once a process is loaded before."""
    x = pytensor.tensor.dvector("x")
    _measured(FlatModel("warm-up", x, pytensor.tensor.sum(x**2), np.ones(2)), backend)
    for name in names:
        yield _measured(flat_model(name), backend)


def _measured(model: FlatModel, backend: str) -> Result:
    inputs, outputs = value_and_pytensor_grad(model)
    profile = ProfileStats(atexit_print=False)
    with no_collection():
        pytensor.function(inputs, outputs, mode="NUMBA", profile=profile)
    in_pytensor = profile.rewriting_time
    ours = jaxify(inputs, outputs, backend=backend, optimize="egraph")
    stages = {stage.name: stage.before for stage in explain(ours).stages}
    before = stages.get("egraph", explain(ours).lowered)
    with no_collection():
        rewriting = _seconds(lambda: egraph(before.clone()))
    if "egraph" not in stages:
        return Result(model.name, None, rewriting, in_pytensor)
    plain = jaxify(inputs, outputs, backend=backend)
    both, point, clock = [plain, ours], model.point, time.thread_time
    if backend == "jax":
        both, point = [jax.jit(f) for f in both], jax.device_put(point)
        clock = time.perf_counter
    compare(model.name, {"plain": both[0](point), "egraph": both[1](point)})
    with no_collection():
        seconds = in_rounds([_batch(f, point, clock) for f in both], ROUNDS)
    return Result(model.name, Pairs(*seconds).ratio, rewriting, in_pytensor)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _batch(f: Callable, point: Any, clock: Callable[[], float]) -> Callable[[], float]:
    calls = max(1, round(BATCH / min(_seconds(lambda: f(point)) for _ in range(5))))

    def batch() -> float:
        start = clock()
        for _ in range(calls):
            result = f(point)
        jax.block_until_ready(result)
        return (clock() - start) / calls

    return batch


def main(names: list[str]) -> None:
    from benchmarks.models import MODELS

    print(f"{'model':26} {'faster by':>22} {'egraph':>9} {'PyTensor':>9}")
    backend = "jax" if "--jax" in names else "numba"
    names = [name for name in names if name != "--jax"]
    for name, speed_up, rewriting, in_pytensor in results(names or list(MODELS), backend):
        outcome = "same program"
        if speed_up is not None:
            outcome = f"{speed_up.median:.2f} ({speed_up.low:.2f} to {speed_up.high:.2f})"
        print(f"{name:26} {outcome:>22} {rewriting:8.2f}s {in_pytensor:8.2f}s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
