"""The ops of the IR in PyTensor's Numba mode: each as the native function that ``backend="numba"`` writes.

PyTensor holds 0-d values in arrays too, and arrays of any layout. So a function around the native one takes
the numbers out, and puts the results into arrays.
"""

from __future__ import annotations

import pickle
from hashlib import sha256
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key
from pytensor.tensor.type import DenseTensorType

from loopax.ir import Call, Cond, FitRows, KeepRows, Scan, Stack, Unstack
from loopax.lowering import lower_to_loops
from loopax.numba_backend.callable.program import emitted, refuse_unknown_types, warn_of_python
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.literals import dtype_name
from loopax.numba_backend.emit.source import Source, compiled, tuple_of
from loopax.numba_backend.emit.values import Opaque


def native_function(op: Any, node: Any, **kwargs: Any) -> tuple[Any, str | None]:
    """The function of a node, and the key of PyTensor's cache; None where it has none."""
    inputs = [v.type() for v in node.inputs]
    graph = FunctionGraph(inputs, op.make_node(*inputs).outputs, clone=True)
    lower_to_loops(graph)
    refuse_unknown_types(graph)
    emit = emitted(graph, {}, keeps_shapes=False, lists=lambda emit, name, v: Opaque(name))
    if emit.by_python:
        warn_of_python(list(dict.fromkeys(emit.by_python)))
    names = [f"x{k}" for k in range(len(inputs))]
    results = [f"y{k}" for k in range(len(node.outputs))]
    source = Source(type(op).__name__.lower(), names)
    given = [_from_array(x, v.type) for x, v in zip(names, inputs, strict=True)]
    source.line(f"{', '.join(results)}, = program({', '.join(given)})")
    made = [_to_array(y, v.type) for y, v in zip(results, node.outputs, strict=True)]
    source.line(f"return {made[0] if len(made) == 1 else tuple_of(made)}")
    program = compiled(emit.source.function(emit.namespace))
    function = source.function({"np": np, "program": program})
    types = [v.type for v in (*inputs, *node.outputs)]
    return numba_njit(function), _key(emit, op, types)


def _from_array(x: str, declared: Any) -> str:
    if not isinstance(declared, DenseTensorType):
        return x
    return f"np.ascontiguousarray({x})" if declared.ndim else f"{x}.item()"


def _to_array(y: str, declared: Any) -> str:
    if not isinstance(declared, DenseTensorType) or declared.ndim:
        return y
    return f"np.array({dtype_name(declared.dtype)}({y}))"


def _key(emit: Emitter, op: Any, *parts: Any) -> str | None:
    """What two equal functions have in common: their text, and what it was written for."""
    if emit.by_python or not emit.is_cacheable:
        return None
    try:
        written_for = pickle.dumps((op, *parts))
    except Exception:  # an op of somebody's that does not pickle
        return None
    return sha256(emit.text.encode() + written_for).hexdigest()


for _op_class in (Scan, Cond, Call, FitRows, KeepRows, Stack, Unstack):
    register_funcify_and_cache_key(_op_class)(native_function)
