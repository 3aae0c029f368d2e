"""Conversions of the IR's ops for PyTensor's Numba mode: the native functions of ``backend="numba"``.

PyTensor holds 0-d values in arrays too, and has arrays of any layout: see `array_function`.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key

from loopax.importer.import_graph import import_graph
from loopax.ir import Call, Cond, FitRows, KeepRows, Scan, Stack, Unstack
from loopax.lowering import lower_to_loops
from loopax.numba_backend.cache.content import content_key
from loopax.numba_backend.callable.array_function import array_function
from loopax.numba_backend.callable.program import refuse_unknown_types, warn_of_python


def native_function(op: Cond | Scan, node: Apply, **kwargs: object) -> tuple[Any, str | None]:
    """Convert a node to a native function; return it with its key in PyTensor's cache, or None."""
    inputs = [v.type() for v in node.inputs]
    graph = FunctionGraph(inputs, op.make_node(*inputs).outputs, clone=True)
    import_graph(graph)
    lower_to_loops(graph)
    refuse_unknown_types(graph)
    function, emit = array_function(graph, type(op).__name__.lower(), always_tuple=False)
    if emit.by_python:
        warn_of_python(list(dict.fromkeys(emit.by_python)))
    types = [v.type for v in (*inputs, *node.outputs)]
    return numba_njit(function), content_key(function, types)


for _op_class in (Scan, Cond, Call, FitRows, KeepRows, Stack, Unstack):
    register_funcify_and_cache_key(_op_class)(native_function)
