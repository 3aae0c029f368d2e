"""Native programs as functions of arrays alone, including 0-d ones, for other native code to call."""

from __future__ import annotations

from collections.abc import Callable
from keyword import iskeyword
from typing import Any

import numpy as np
from numba import njit
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.type import Type
from pytensor.tensor.type import DenseTensorType

from loopax.base.compiling.compile_status import with_status
from loopax.base.compiling.pipeline import EmittedCode, njit_inner
from loopax.base.upstream.numba import Dispatcher
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
    """A Python function for Numba to compile, which calls the native program of ``graph``; and its
    emitter.

    PyTensor's Numba mode holds scalars in arrays, and has arrays of any layout: the function unpacks
    the scalars, copies arrays that are not in C order, and packs the results into arrays.

    Parameters
    ----------
    graph
        Lowered to loops.
    name
        The name of the function.
    always_tuple
        Whether a single result is a tuple too.
    """
    emit = emitted(graph, {}, keeps_shapes=False, lists=lambda emit, name, v: Opaque(name))
    names = [f"x{k}" for k in range(len(graph.inputs))]
    results = [f"y{k}" for k in range(len(graph.outputs))]
    source = Source(name, names)
    arguments = [_from_array(x, v.type) for x, v in zip(names, graph.inputs, strict=True)]
    to = f"{', '.join(results)}, = " if results else ""
    source.line(f"{to}program({', '.join(arguments)})")
    arrays = [_to_array(y, v.type) for y, v in zip(results, graph.outputs, strict=True)]
    single = len(arrays) == 1 and not always_tuple
    source.line(f"return {arrays[0] if single else tuple_of(arrays)}")
    program = compiled(emit.source.function(emit.namespace, emit.keys), inner=True)
    return source.function({"np": np, "program": program}), emit


def compiled_array_function(graph: FunctionGraph, name: str) -> Any:
    """Compile the `array_function` of ``graph`` at its first call."""
    graph = graph.clone()
    scan_to_loop(graph)
    identifier = name if name.isidentifier() and not iskeyword(name) else "program"
    # With all of Numba's wrappers, so that it can be an argument of another function.
    native = njit(array_function(graph, identifier)[0], error_model="numpy", nogil=True)
    function = with_status(native)
    keep_on_disk(function)
    return function


def called_natively(function: Dispatcher) -> Any:
    """Strip a `compiled_array_function` for native callers alone, which saves a third of the
    compilation.

    Other Numba functions are returned unchanged.
    """
    if not hasattr(function.py_func, "__source__"):
        return function
    inner = njit_inner(function.py_func, error_model="numpy", pipeline_class=EmittedCode)
    keep_on_disk(inner, "called natively")
    return inner


def _from_array(x: str, declared: Type) -> str:
    if not isinstance(declared, DenseTensorType):
        return x
    return f"np.ascontiguousarray({x})" if declared.ndim else f"{x}.item()"


def _to_array(y: str, declared: Type) -> str:
    if not isinstance(declared, DenseTensorType) or declared.ndim:
        return y
    return f"np.array({dtype_name(declared.dtype)}({y}))"
