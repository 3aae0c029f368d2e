"""Seconds to the first value and gradient of the models in a new process, when it is not the first one.

    python -m benchmarks.models_from_disk [NAME ...]

Each route runs in processes of its own, of which the first fills the caches: loopax's, and that of
PyTensor's mode NUMBA. Imports and building the model are not counted: a small program with a loop has run
before. What counts is from the model's graph to the result, PyTensor's gradient and rewriting included. The
least of some processes is said.
"""

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytensor

import loopax
from benchmarks.models_beside_pytensor import ROUTES as BESIDE
from benchmarks.models_beside_pytensor import (
    YARDSTICKS,
    FlatModel,
    Route,
    compiled_route,
    flat_model,
)

PROCESSES = 3  # after the one that fills the caches
ROUTES: dict[str, Route] = YARDSTICKS | {route.name: route for route, _ in BESIDE}


def seconds(name: str, route: str, folder: str) -> float:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.models_from_disk", name, route]
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={folder}/pytensor"
    environment = os.environ | {
        "LOOPAX_CACHE_DIR": f"{folder}/loopax",
        "PYTENSOR_FLAGS": flags.lstrip(","),
    }
    runs = [
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        for _ in range(1 + PROCESSES)
    ]
    return min(float(run.stdout) for run in runs[1:])


def in_this_process(name: str, route: str) -> float:
    x = pytensor.tensor.dvector("x")
    total, _ = loopax.scan(lambda s, r: (s + pytensor.tensor.exp(r), None), 0.0, x)
    warm_up = FlatModel("warm-up", x, total, np.ones(2))
    compiled_route(ROUTES[route], warm_up)
    model = flat_model(name)
    gc.collect()
    gc.freeze()  # what is there by now is not looked through again, by whomever the turn comes to
    return compiled_route(ROUTES[route], model).first


def results(names: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            yield name, {route: seconds(name, route, folder) for route in ROUTES}


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> None:
    from benchmarks.models import MODELS

    if len(arguments) == 2 and arguments[1] in ROUTES:
        say(str(in_this_process(*arguments)))
        return
    heads = [*YARDSTICKS, *(f"{route.name} / {yardstick}" for route, yardstick in BESIDE)]
    say(f"{'model':26}" + "".join(f"{head:>19}" for head in heads))
    ratios = []
    for name, seconds_by_route in results(arguments or list(MODELS)):
        ratios.append(
            [
                seconds_by_route[route.name] / seconds_by_route[yardstick]
                for route, yardstick in BESIDE
            ]
        )
        columns = [f"{seconds_by_route[yardstick]:.2f}s" for yardstick in YARDSTICKS]
        columns += [
            f"{seconds_by_route[route.name]:.2f}s ({ratio:.2f})"
            for (route, _), ratio in zip(BESIDE, ratios[-1], strict=True)
        ]
        say(f"{name:26}" + "".join(f"{column:>19}" for column in columns))
    medians, worst = np.median(ratios, axis=0), np.max(ratios, axis=0)
    for what, row in ("median", medians), ("worst", worst):
        say(f"{what:64}" + "".join(f"{ratio:19.2f}" for ratio in row))


if __name__ == "__main__":
    main(sys.argv[1:])
