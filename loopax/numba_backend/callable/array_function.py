"""A native program as a function that other native code calls: of arrays only, 0-d ones too."""

from __future__ import annotations

from collections.abc import Callable
from keyword import iskeyword
from typing import Any

import numpy as np
from numba import njit
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.base.compiling.pipeline import EmittedCode, njit_inner
from loopax.base.compiling.waited_for import waited_for
from loopax.lowering.scan_to_loop import scan_to_loop
from loopax.numba_backend.cache.code_cache import keep_on_disk
from loopax.numba_backend.callable.program import emitted
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import dtype_name
from loopax.numba_backend.emit.source import Source, compiled, tuple_of
from loopax.numba_backend.emit.values import Opaque


def array_function(
    graph: FunctionGraph, name: str, always_tuple: bool = True
) -> tuple[Callable[..., Any], Emitter]:
    """A Python function for Numba to compile, that calls the native program of ``graph``, and its emitter.

    PyTensor's Numba mode holds numbers in arrays too, and has arrays of any layout: the function takes the
    numbers out, copies what is not in C order, and puts the results into arrays.

    Parameters
    ----------
    graph
        Lowered to loops.
    name
        Of the function.
    always_tuple
        Whether one result is a tuple of one.
    """
    emit = emitted(graph, {}, keeps_shapes=False, lists=lambda emit, name, v: Opaque(name))
    names = [f"x{k}" for k in range(len(graph.inputs))]
    results = [f"y{k}" for k in range(len(graph.outputs))]
    source = Source(name, names)
    given = [_from_array(x, v.type) for x, v in zip(names, graph.inputs, strict=True)]
    to = f"{', '.join(results)}, = " if results else ""
    source.line(f"{to}program({', '.join(given)})")
    made = [_to_array(y, v.type) for y, v in zip(results, graph.outputs, strict=True)]
    single = len(made) == 1 and not always_tuple
    source.line(f"return {made[0] if single else tuple_of(made)}")
    program = compiled(emit.source.function(emit.namespace, emit.keys), inner=True)
    return source.function({"np": np, "program": program}), emit


def compiled_array_function(graph: FunctionGraph, name: str) -> Any:
    """`array_function` of ``graph``, with the loops it has, compiled when it is called first."""
    graph = graph.clone()
    scan_to_loop(graph)
    identifier = name if name.isidentifier() and not iskeyword(name) else "program"
    # With all of Numba's wrappers: a function that takes functions may be given it.
    native = njit(array_function(graph, identifier)[0], error_model="numpy", nogil=True)
    function = waited_for(native)
    keep_on_disk(function)
    return function


def called_natively(function: Any) -> Any:
    """A `compiled_array_function` for native code alone: a third of what there is to compile is left out.

    Other functions of Numba's are returned as they are.
    """
    if not hasattr(function.py_func, "__source__"):
        return function
    inner = njit_inner(function.py_func, error_model="numpy", pipeline_class=EmittedCode)
    keep_on_disk(inner, "called natively")
    return inner


def _from_array(x: str, declared: Any) -> str:
    if not isinstance(declared, DenseTensorType):
        return x
    return f"np.ascontiguousarray({x})" if declared.ndim else f"{x}.item()"


def _to_array(y: str, declared: Any) -> str:
    if not isinstance(declared, DenseTensorType) or declared.ndim:
        return y
    return f"np.array({dtype_name(declared.dtype)}({y}))"
