"""Statements of scalar ops.

An op without an expression (`scalar_expressions`) calls PyTensor's own function, which runs as fast, but
takes some ten milliseconds to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.loop import ScalarLoop

from loopax.facts.scalars import cycles
from loopax.numba_backend.cache.content import conversion_key
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr, call, literal, local
from loopax.numba_backend.emit.scalar_expressions import FOLDS, PLAIN, REAL, cast, expression_of
from loopax.numba_backend.emit.scalar_loops import scalar_loop
from loopax.numba_backend.emit.schedule import folded, ready

# Dtypes in which Numba computes; smaller integers are widened to 64 bits and truncated afterwards.
_NATURAL = REAL | {"int64"}


def emit_scalar(emit: Emitter, op: ScalarOp, operands: Sequence[Expr], node: Apply) -> list[Expr]:
    """Write a scalar op in the dtypes of ``node`` (scalar or tensor); returns its outputs."""
    dtypes = [v.type.dtype for v in node.inputs]
    outs = [v.type.dtype for v in node.outputs]
    if isinstance(op, ps.Composite):
        return _graph(emit, op.fgraph, operands)
    if isinstance(op, ScalarLoop):
        inner = [operands[0]]  # the number of steps, then what the graph reads
        for x, d, v in zip(operands[1:], dtypes[1:], op.inputs, strict=True):
            inner.append(converted(emit, x, d, v.type.dtype))
        return scalar_loop(emit, op, inner, _graph)
    if isinstance(op, ps.Identity) or (isinstance(op, ps.Cast) and dtypes == outs):
        return [operands[0]]
    if isinstance(op, ps.Second):
        return [converted(emit, operands[1], dtypes[1], outs[0])]
    if isinstance(op, ps.Cast) and {*dtypes, *outs} <= PLAIN:
        return [converted(emit, operands[0], dtypes[0], outs[0])]
    if type(op) in FOLDS and len(operands) > 2 and outs[0] in REAL:
        typed = [cast(x, d, outs[0]) for x, d in zip(operands, dtypes, strict=True)]
        value: Expr | None = folded(emit, typed, FOLDS[type(op)])
    else:
        in_elements = emit.is_in_elements
        value = (
            expression_of(op, operands, dtypes, outs[0], in_elements) if len(outs) == 1 else None
        )
    if value is None:
        return _by_pytensor(emit, op, operands, dtypes, outs)
    if outs[0] in _NATURAL or outs[0] == "bool":
        name = emit.temp(value)
        if type(op) is ps.EQ and dtypes == ["int64", "int64"]:
            emit.equal[name] = (operands[0], operands[1])
        when = max((ready(emit, x) for x in operands), default=-1)
        if when >= 0:
            emit.ready[name] = when + cycles(op)
        return [name]
    return [emit.temp(value.astype(outs[0]))]


def has_expression(op: ScalarOp, node: Apply) -> bool:
    """Whether a scalar op has an expression in the dtypes of ``node``."""
    operands = [local(f"x{k}") for k in range(len(node.inputs))]
    dtypes = [v.type.dtype for v in node.inputs]
    out = node.outputs[0].type.dtype
    return len(node.outputs) == 1 and expression_of(op, operands, dtypes, out) is not None


def converted(emit: Emitter, x: Expr, source: str, target: str) -> Expr:
    """Convert ``x`` from the dtype ``source`` to ``target``, in a local unless they are equal."""
    return x if source == target else emit.temp(cast(x, source, target))


def _by_pytensor(
    emit: Emitter,
    op: ScalarOp,
    operands: Sequence[Expr],
    dtypes: Sequence[str],
    outs: Sequence[str],
) -> list[Expr]:
    node = op.make_node(*[ps.get_scalar_type(d)() for d in dtypes])
    native, key = numba_funcify_and_cache_key(op, node=node)
    function = emit.bind(native, "scalar", conversion_key(node, key))
    value = call(function, *operands)
    if len(outs) == 1:
        return [emit.temp(value.astype(outs[0]))]
    outputs = emit.temp(value)
    return [emit.temp(outputs[k].astype(dtype)) for k, dtype in enumerate(outs)]


def _graph(emit: Emitter, graph: AbstractFunctionGraph, operands: Sequence[Expr]) -> list[Expr]:
    """Write a graph of scalar ops; returns its outputs."""
    env: dict[Any, Expr] = dict(zip(graph.inputs, operands, strict=True))

    def read(v: Variable) -> Expr:
        if isinstance(v, Constant):
            return literal(np.asarray(v.data, dtype=v.type.dtype))
        return env[v]

    for node in graph.toposort():
        outs = emit_scalar(emit, node.op, [read(v) for v in node.inputs], node)
        env.update(zip(node.outputs, outs, strict=True))
    return [read(v) for v in graph.outputs]
