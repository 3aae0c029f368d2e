"""The parts of a run on which its draws depend, by name: model, data, arguments and versions.

A part is text, equal in two processes if the part is: short values as they are written, others as a
digest. The graph of the model is written as the cache writes it, by the code of its ops; an op or a
function of the user's own is identified by its own code, without the functions that it calls.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.compile import SharedVariable
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

from loopax.cache import code
from loopax.cache.environment import NotKnown, flags_of_jax
from loopax.cache.graph_key import Content
from loopax.pymc.checkpoints.folder import CheckpointError
from loopax.pymc.checkpoints.pymc_steps import parts_of, refuse_steps
from loopax.pymc.checkpoints.step_state import TREE, as_arrays

if TYPE_CHECKING:
    import pymc as pm

# Packages that draw or compute, and so decide the last bits. Not Python's version, nor the processor.
_PACKAGES = ("loopax", "pytensor", "pymc", "numpy", "numba", "jax", "jaxlib")
_SHORTEST_DIGEST = 60  # characters of a value that is written as it is

# Arguments that affect no draw: how chains are shown, distributed over processes and returned.
_INDIFFERENT = {
    *("progressbar", "progressbar_theme", "quiet", "cores", "mp_ctx", "blas_cores", "callback"),
    *("compute_convergence_checks", "return_inferencedata"),
}


def run_parts(model: pm.Model, backend: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The parts of a run of ``pm.sample(model=model, **options)`` with functions of ``backend``."""
    sampler = options["nuts_sampler"]
    parts = {"backend": repr(backend)}
    for name, value in options.items():
        if name == "step" and value is not None:
            parts[name] = _digest(_steps(value))
        elif name not in _INDIFFERENT and value is not None:
            parts[name] = _argument(name, value)
    for name, value in _data(model).items():
        parts[f"data {name!r}"] = _digest(value)
    parts["model"] = _model(model)
    # A processor of another kind may round otherwise.
    point = {name: np.asarray(x, np.float32) for name, x in model.initial_point(0).items()}
    parts["initial point"] = _digest(point)
    for package in _PACKAGES + (() if sampler == "pymc" else (sampler,)):
        try:
            parts[f"version of {package}"] = version(package)
        except PackageNotFoundError:
            parts[f"version of {package}"] = "unknown"
    loops = os.environ.get("LOOPAX_LOOPS", "auto")
    flags = [f"floatX={config.floatX}", f"LOOPAX_LOOPS={loops}", *flags_of_jax()]
    parts["flags"] = ", ".join(flags)
    return parts


def _model(model: pm.Model) -> str:
    """The log-density and the variables that are stored, without the values of the data."""
    outputs = [model.logp(), *model.unobserved_value_vars]
    roots = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    shared = sorted({*roots} - {*model.value_vars}, key=lambda v: str(v.name))
    content = _ModelContent()
    content.write_graph([*model.value_vars, *shared], outputs)
    return f"sha256 {content.key}"


def _data(model: pm.Model) -> dict[str, Any]:
    """The data of a model by name: ``pm.Data``, and observed values that are constants."""
    data: dict[Any, Any] = {
        v.name: v.get_value() for v in model.data_vars if isinstance(v, SharedVariable)
    }
    for variable in model.observed_RVs:
        values = model.rvs_to_values[variable]
        if isinstance(values, Constant):
            data[variable.name] = values.data
    return data


def _steps(step: Any) -> list[Any]:
    """The classes, variables and options of steps, without their generators: a chain has its own."""
    steps = list(step) if isinstance(step, list | tuple) else [step]
    refuse_steps(steps)
    content = []
    for one in steps:
        arrays = as_arrays(one.sampling_state)
        options = _without_generators(json.loads(arrays.pop(TREE).tobytes()))
        proposals = [getattr(part, "proposal_dist", None) for part in parts_of(one)]
        names = [f"{type(x).__qualname__} {getattr(x, 's', None)!r}" for x in (one, *proposals)]
        content.append([names, [v.name for v in one.vars], options, arrays])
    return content


def _without_generators(tree: object) -> Any:
    if isinstance(tree, dict):
        return {name: _without_generators(x) for name, x in tree.items() if name != "rng"}
    return list(map(_without_generators, tree)) if isinstance(tree, list) else tree


def _argument(name: str, value: object) -> str:
    if isinstance(value, Mapping):  # a start may be given by variables
        value = {getattr(k, "name", k): x for k, x in value.items()}
    text = repr(value)
    if _is_plain(value) and len(text) <= _SHORTEST_DIGEST:
        return text
    try:
        return _digest(value)
    except NotKnown:
        raise CheckpointError(
            f"checkpoint= resumes a run only with the same arguments, but {name}={text[:200]} holds an "
            "object that loopax cannot recognize in another process. Pass numbers, strings and "
            "arrays, or functions of installed packages."
        ) from None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_plain(x) for k, x in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str | type(None))


def _digest(value: object) -> str:
    content = _ModelContent()
    if isinstance(value, np.random.Generator | np.random.SeedSequence | np.random.BitGenerator):
        value = _state_of_generator(value)
    content.write(value)
    return f"sha256 {content.key}"


def _state_of_generator(value: Any) -> dict[str, Any]:
    bits = getattr(value, "bit_generator", value)
    seeds = getattr(
        bits, "seed_seq", bits
    )  # a generator spawns from its seeds, whatever it has drawn
    return {"bits": getattr(bits, "state", None), "seeds": seeds.state}


class _ModelContent(Content):
    """The content of a model, in which a user's own object is identified by its code.

    The cache keeps no result of such an object, since the code that it calls may change. A checkpoint
    compares it as far as possible.
    """

    def _write_object(self, value: object) -> None:
        try:
            super()._write_object(value)
        except NotKnown:
            if isinstance(value, FunctionType):
                self.write([*code.own_code(value), value.__defaults__, value.__kwdefaults__])
                self.write([cell.cell_contents for cell in value.__closure__ or ()])
            elif isinstance(value, type):
                functions = [x for x in vars(value).values() if isinstance(x, FunctionType)]
                self.write(f"{value.__module__}.{value.__qualname__}")
                self.write([list(code.own_code(f)) for f in functions])
                self.write(value.__bases__)
            elif hasattr(value, "__wrapped__"):  # jax.jit(f)
                self.write(value.__wrapped__)
            else:
                raise
