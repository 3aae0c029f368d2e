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
from benchmarks.models_beside_pytensor import (
    FlatModel,
    Route,
    compiled_route,
    flat_model,
    jax_grad,
    numba,
    pytensor_numba,
)

PROCESSES = 3  # after the one that fills the caches
ROUTES = {
    "NUMBA": Route("NUMBA", pytensor_numba, False),
    "native": Route("native", numba, False),
    "jax.jit": Route("jax.jit", jax_grad, True),
}


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


def results(names: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            yield name, [seconds(name, route, folder) for route in ROUTES]


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> None:
    from benchmarks.models import MODELS

    if len(arguments) == 2 and arguments[1] in ROUTES:
        say(str(in_this_process(*arguments)))
        return
    say(f"{'model':26}" + "".join(f"{route:>16}" for route in ROUTES))
    ratios = []
    for name, (theirs, *ours) in results(arguments or list(MODELS)):
        ratios.append([mine / theirs for mine in ours])
        columns = "".join(f"{s:9.2f}s ({s / theirs:.2f})" for s in ours)
        say(f"{name:26}{theirs:15.2f}s{columns}")
    medians, worst = np.median(ratios, axis=0), np.max(ratios, axis=0)
    for what, row in ("median", medians), ("worst", worst):
        say(f"{what:42}" + "".join(f"{ratio:16.2f}" for ratio in row))


if __name__ == "__main__":
    main(sys.argv[1:])
