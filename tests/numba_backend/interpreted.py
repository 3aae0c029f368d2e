"""A native program run as the Python that it is: no compiling, so that there can be many of them."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph

from loopax.numba_backend.emitter import Emitter
from loopax.numba_backend.program import emitted
from loopax.numba_backend.runtime import StateChangesShape


def interpreted(graph: FunctionGraph, sized: bool = False) -> Callable[..., list[Any]]:
    """The program of a lowered graph as a Python function of one value for each input.

    With ``sized`` it is written for the lengths that its arguments have, wherever a step uses them.
    """

    def run(*values: Any) -> list[Any]:
        arrays = [np.asarray(x) if isinstance(x, np.ndarray | float | int) else x for x in values]
        try:
            return _returned(graph, _written(graph, arrays, sized, True), arrays)
        except StateChangesShape:
            return _returned(graph, _written(graph, arrays, sized, False), arrays)

    return run


def _written(graph: FunctionGraph, values: Sequence[Any], sized: bool, keeps: bool) -> Emitter:
    general = emitted(graph, {}, keeps)
    if not sized:
        return general
    axes = [general.axes[n] for n in general.scopes.in_steps() if n in general.axes]
    return emitted(
        graph, {(k, a): values[k].shape[a] for k, a in axes if values[k].shape[a]}, keeps
    )


def _returned(graph: FunctionGraph, emit: Emitter, values: Sequence[Any]) -> list[Any]:
    plain = {name: getattr(f, "py_func", f) for name, f in emit.namespace.items()}
    plain["as_scalar"] = lambda x: np.asarray(x)[()]
    given = [x[()] if getattr(x, "ndim", 1) == 0 else x for x in values]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # overflow of integers, which wrap
        found = emit.source.function(plain)(*given)
    return [
        np.asarray(y, v.type.dtype) if hasattr(v.type, "dtype") and np.ndim(y) == 0 else y
        for y, v in zip(found, graph.outputs, strict=True)
    ]
