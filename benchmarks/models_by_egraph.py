"""The models with ``optimize="egraph"`` beside the same without, in native code: value and gradient.

    python -m benchmarks.models_by_egraph [NAME ...]

Both are compiled in one process and run in turns. Where the e-graph leaves a program as it was there is
nothing to time: two compilations of one program differ by some percent themselves. Rewriting is timed
beside PyTensor's own, of its mode NUMBA.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytensor
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs

from benchmarks.measure import BATCH, Estimate, Pairs, in_rounds, no_collection
from benchmarks.models_beside_pytensor import (
    FlatModel,
    compare,
    flat_model,
    value_and_pytensor_grad,
)
from loopax import explain, jaxify
from loopax.lowering.egraph.optimize import egraph

ROUNDS = 41


class Result(NamedTuple):
    name: str
    speed_up: Estimate | None  # None where the program is the same
    rewriting: float  # seconds of the pass
    in_pytensor: float  # seconds of PyTensor's own rewriting


def results(names: list[str]) -> Iterator[Result]:
    """Of each model. What is loaded once a process is loaded before."""
    x = pytensor.tensor.dvector("x")
    _measured(FlatModel("warm-up", x, pytensor.tensor.sum(x**2), np.ones(2)))
    for name in names:
        yield _measured(flat_model(name))


def _measured(model: FlatModel) -> Result:
    inputs, outputs = value_and_pytensor_grad(model)
    read = [
        v for v in graph_inputs(outputs) if not isinstance(v, Constant)
    ]  # data in shared variables too
    graph = FunctionGraph(read, outputs, clone=True)
    rewriter = (
        get_mode("NUMBA").excluding("inplace").optimizer
    )  # it wants to know what may be overwritten
    in_pytensor = _seconds(lambda: rewriter.rewrite(graph))
    ours = jaxify(inputs, outputs, backend="numba", optimize="egraph")
    stages = {stage.name: stage.before for stage in explain(ours).stages}
    before = stages.get("egraph", explain(ours).lowered)
    rewriting = _seconds(lambda: egraph(before.clone()))
    if "egraph" not in stages:
        return Result(model.name, None, rewriting, in_pytensor)
    plain = jaxify(inputs, outputs, backend="numba")
    compare(model.name, {"plain": plain(model.point), "egraph": ours(model.point)})
    with no_collection():
        seconds = in_rounds([_batch(f, model.point) for f in (plain, ours)], ROUNDS)
    return Result(model.name, Pairs(*seconds).ratio, rewriting, in_pytensor)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _batch(f: Callable, point: Any) -> Callable[[], float]:
    calls = max(1, round(BATCH / min(_seconds(lambda: f(point)) for _ in range(5))))

    def batch() -> float:
        return _seconds(lambda: [f(point) for _ in range(calls)]) / calls

    return batch


def main(names: list[str]) -> None:
    from benchmarks.models import MODELS

    print(f"{'model':26} {'faster by':>22} {'egraph':>9} {'PyTensor':>9}")
    for name, speed_up, rewriting, in_pytensor in results(names or list(MODELS)):
        said = "same program"
        if speed_up is not None:
            said = f"{speed_up.median:.2f} ({speed_up.low:.2f} to {speed_up.high:.2f})"
        print(f"{name:26} {said:>22} {rewriting:8.2f}s {in_pytensor:8.2f}s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
