"""``ScalarLoop``, a series inside the derivative of a special function, as a function of numbers.

PyTensor's conversion compiles a function for each operation of its step. The second derivatives of
`betainc` have thousands, which took Numba minutes; here they are expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.scalar.loop import ScalarLoop

from loopax.numba_backend.emit.emitter import Emitter, globals_of
from loopax.numba_backend.emit.expressions import FALSE, Expr, call, expr, local, tuple_of
from loopax.numba_backend.emit.statements import Break, Function, Return

# Writes a graph of scalar ops for these operands, and returns its outputs.
WriteGraph = Callable[[Emitter, Any, Sequence[Expr]], list[Expr]]


def scalar_loop(
    emit: Emitter, op: ScalarLoop, operands: Sequence[Expr], write_graph: WriteGraph
) -> list[Expr]:
    """Call a loop of numbers, in the dtypes of its inputs; returns its outputs."""
    outputs = emit.temp(call(_function(emit, op, write_graph), *operands))
    return [emit.temp(outputs[k]) for k in range(len(op.outputs))]


def _function(emit: Emitter, op: ScalarLoop, write_graph: WriteGraph) -> str:
    """Define the function of ``op``, unless this one has an equal function; returns its name."""
    n_states = len(op.outputs) - int(op.is_while)
    n_steps, *values = args = [local(f"x{k}") for k in range(1 + len(op.inputs))]
    inner = Emitter(Function("series", args), emit.largest, emit.keeps_shapes)
    until = inner.temp(FALSE, "until")
    if not op.is_while:
        with inner.when(expr("{} < 0", n_steps)):
            inner.fail("ValueError", "ScalarLoop does not have a termination condition.")
    with inner.repeated(inner.local("k"), n_steps):
        updates = write_graph(inner, op.fgraph, values)
        inner.assign(values[:n_states], updates[:n_states])
        if op.is_while:
            inner.set(until, updates[-1])
            with inner.when(until):
                inner.add(Break())
    inner.add(Return(tuple_of([*values[:n_states], *[until][: int(op.is_while)]])))
    things = globals_of(inner.source, inner.namespace).items()
    keys = [(name, inner.keys.get(name, id(thing))) for name, thing in things]
    key = str(inner.source), *keys
    if key not in emit.series:
        inner.source.name = emit.series[key] = emit.source.fresh("series")
        emit.define(inner)
    return emit.series[key]
