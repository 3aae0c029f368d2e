"""Log-densities of real models, with their gradients, beside PyTensor's own JAX and NUMBA modes.

Each route makes a function of one flat vector, as a sampler calls it, that returns the log-density and its
gradient. The vector is on the device for JAX, a NumPy array for Numba. Values and gradients are compared
before anything counts. All routes of a model are compiled in one process and then run in turns.
"""

import ctypes
import gc
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pytensor

from benchmarks.measure import BATCH, Pairs, in_rounds, no_collection
from benchmarks.models_report import EVALUATION, FIRST, MEMORY
from benchmarks.report import Figure
from loopax import jaxify

RTOL, RTOL_GRADIENT = 1e-9, 1e-6
MISSING = (
    "the models are written with PyMC, which is missing: pip install 'loopax[pymc]' "
    "(Python 3.12 or later)"
)


class FlatModel(NamedTuple):
    """A model as what a sampler sees of it."""

    name: str
    vector: Any  # pytensor variable, (n,)
    logp: Any  # pytensor variable, ()
    point: np.ndarray  # (n,)


class Route(NamedTuple):
    name: str
    make: Callable[[FlatModel], Callable]
    on_device: bool


class CompiledRoute(NamedTuple):
    """A compiled route, and what it took."""

    run: Callable
    argument: Any
    first: float  # seconds to the first result
    memory: float  # bytes by which the process grew meanwhile, at its peak


def pymc_is_there() -> bool:
    return importlib.util.find_spec("pymc") is not None


def flat_model(name: str) -> FlatModel:
    """The joint log-density, Jacobians included, of one vector, and a point near PyMC's initial one."""
    import pymc as pm

    from benchmarks.models import MODELS

    model = MODELS[name]()
    start = model.initial_point()
    values = model.value_vars
    [logp], vector = pm.pytensorf.join_nonshared_inputs(start, [model.logp()], values)
    point = np.concatenate([np.ravel(start[v.name]) for v in values]).astype(vector.dtype)
    return FlatModel(
        name, vector, logp, point + 0.05 * np.random.default_rng(0).normal(size=len(point))
    )


# -- the routes ----------------------------------------------------------------------------------------


def value_and_pytensor_grad(model: FlatModel) -> tuple[list, list]:
    return [model.vector], [model.logp, pytensor.grad(model.logp, model.vector)]


def pytensor_jax(model: FlatModel) -> Callable:
    return in_mode(model, "JAX")


def pytensor_numba(model: FlatModel) -> Callable:
    return in_mode(model, "NUMBA")


def in_mode(model: FlatModel, mode: str) -> Callable:
    """Without the checks of arguments that a sampler leaves out too."""
    function = pytensor.function(*value_and_pytensor_grad(model), mode=mode)
    function.trust_input = True
    return function


def jax_transpiled(model: FlatModel) -> Callable:
    return jaxify(*value_and_pytensor_grad(model))


def jax_grad(model: FlatModel) -> Callable:
    return jax.jit(jax.value_and_grad(jaxify([model.vector], model.logp)))


def numba(model: FlatModel) -> Callable:
    return jaxify(*value_and_pytensor_grad(model), backend="numba")


YARDSTICKS = {
    "JAX": Route("JAX", pytensor_jax, True),
    "NUMBA": Route("NUMBA", pytensor_numba, False),
}
# Each beside one of PyTensor's modes.
ROUTES = (
    (Route("transpiled", jax_transpiled, True), "JAX"),
    (Route("jax.grad", jax_grad, True), "JAX"),
    (Route("Numba", numba, False), "NUMBA"),
)


# -- measuring -----------------------------------------------------------------------------------------


def models(pairs: int, names: Any, say: Callable[[str], None]) -> Iterator[Figure]:
    """Of each model and route: one evaluation, seconds to the first result, memory.

    Nothing comes from PyTensor's cache on disk meanwhile, which would hide what compiling costs.
    """
    from benchmarks.models import MODELS

    with pytensor.config.change_flags(numba__cache=False):
        warm_up()
        for name in names or MODELS:
            say(f"models, {name}")
            yield from figures(flat_model(name), pairs, say)
            jax.clear_caches()


def warm_up() -> None:
    """What is loaded and compiled once a process is no model's cost."""
    x = pytensor.tensor.dvector("x")
    model = FlatModel("warm-up", x, pytensor.tensor.sum(x**2), np.ones(2))
    for route in (*YARDSTICKS.values(), *(route for route, _ in ROUTES)):
        compiled_route(route, model)


def figures(model: FlatModel, pairs: int, say: Callable[[str], None]) -> Iterator[Figure]:
    compiled = dict(compiled_routes(model, say))
    for mode, error in disagreeing(model.name, compiled).items():
        say(f"models, {model.name}: PyTensor's {mode} mode is left out, its values differ: {error}")
        del compiled[mode]
    seconds = evaluations(list(compiled.values()), pairs)
    by_name = dict(zip(compiled, seconds, strict=True))
    for route, beside in ROUTES:
        if beside not in compiled:
            continue
        ours, theirs = compiled[route.name], compiled[beside]
        yield Figure(
            model.name, route.name, EVALUATION, None, Pairs(by_name[route.name], by_name[beside])
        )
        for measured, a, b in (
            (FIRST, ours.first, theirs.first),
            (MEMORY, ours.memory, theirs.memory),
        ):
            yield Figure(
                model.name, route.name, measured, None, Pairs(np.array([a]), np.array([b]))
            )


def compiled_routes(
    model: FlatModel, say: Callable[[str], None]
) -> Iterator[tuple[str, CompiledRoute]]:
    """The routes of a model. A mode of PyTensor's that cannot run it is left out, and said."""
    for route, _ in ROUTES:
        yield route.name, compiled_route(route, model)
    for name, route in YARDSTICKS.items():
        try:
            result = compiled_route(route, model)
        except Exception as error:
            say(f"models, {model.name}: PyTensor's {name} mode: {type(error).__name__}: {error}")
            continue
        yield name, result


def compiled_route(route: Route, model: FlatModel) -> CompiledRoute:
    argument = jax.device_put(model.point) if route.on_device else model.point
    before = start_of_peak()
    start = time.perf_counter()
    run = route.make(model)
    jax.block_until_ready(run(argument))
    first = time.perf_counter() - start
    return CompiledRoute(run, argument, first, peak() - before)


def disagreeing(model: str, compiled: dict[str, CompiledRoute]) -> dict[str, str]:
    """The modes of PyTensor's that disagree with our routes, and how.

    Raises
    ------
    AssertionError
        Our routes differ from one another, or from every mode: then PyTensor's are not what is wrong.
    """
    results = {name: route.run(route.argument) for name, route in compiled.items()}
    ours = {name: result for name, result in results.items() if name not in YARDSTICKS}
    compare(model, ours)
    first = next(iter(ours))
    errors: dict[str, str] = {}
    modes = [name for name in results if name in YARDSTICKS]
    for name in modes:
        try:
            compare(model, {first: ours[first], name: results[name]})
        except AssertionError as error:
            if len(errors) + 1 == len(modes):
                raise
            errors[name] = next(line for line in str(error).splitlines() if "difference" in line)
    return errors


def compare(model: str, results: dict[str, Any]) -> None:
    """The value and the gradient (n,) of each route beside those of the first.

    Raises
    ------
    AssertionError
        They differ: in which model, on which routes.
    """
    (first, (value, gradient)), *others = results.items()
    scale = np.max(np.abs(gradient))
    for name, (other_value, other_gradient) in others:
        where = f"{model}: {name} beside {first}"
        np.testing.assert_allclose(other_value, value, RTOL, err_msg=where)
        atol = RTOL_GRADIENT * scale
        np.testing.assert_allclose(
            other_gradient, gradient, RTOL_GRADIENT, atol, equal_nan=False, err_msg=where
        )


def evaluations(compiled: list[CompiledRoute], pairs: int) -> np.ndarray:
    """Seconds of a call, (routes, pairs), in batches in turns."""

    def batch(route: CompiledRoute, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(route.run(route.argument))
        return (time.perf_counter() - start) / calls

    calls = []
    for one in compiled:
        batch(one, 2)
        calls.append(max(1, round(BATCH / batch(one, 3))))
    sides = [lambda one=one, n=n: batch(one, n) for one, n in zip(compiled, calls, strict=True)]
    with no_collection():
        return in_rounds(sides, pairs)


# -- memory --------------------------------------------------------------------------------------------


def start_of_peak() -> float:
    """Bytes resident now; from here on `peak` counts. nan where the system does not say (not Linux)."""
    gc.collect()
    if sys.platform != "linux":
        return np.nan
    # What was freed goes back to the system, or the next route would use it unseen.
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)(0)
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")  # the peak is set to what is resident now
    except OSError:
        return np.nan
    return status("VmRSS")


def peak() -> float:
    return status("VmHWM") if sys.platform == "linux" else np.nan


def status(key: str) -> float:
    with open("/proc/self/status") as f:
        return next(1024.0 * float(line.split()[1]) for line in f if line.startswith(f"{key}:"))
