"""Structure of the outputs of nodes: loops step by step, branches, calls; other ops by their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import DenseTensorType
from scipy import sparse

from loopax.extensions.sparse_jacobians.known import (
    Known,
    UnknownStructure,
    constant,
    stacked,
    union,
)
from loopax.extensions.sparse_jacobians.rules import known_outputs
from loopax.facts.record import is_foreign
from loopax.ir.derivatives.lazy import Derivative
from loopax.ir.evaluation.evaluate import apply
from loopax.ir.ops.call import Call
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.ops.scan import Scan

# The most nodes of all steps, some 0.1 ms each: with more the analysis costs more than dense products.
_MANY = 200_000


def known_node_outputs(node: Apply, operands: Sequence[Known]) -> list[Known]:
    """Infer the structure of the outputs of ``node`` from its operands.

    Raises `UnknownStructure` if a length, or the number of steps of a loop, is unknown.
    """
    if _is_known(node, operands):
        return [constant(x) for x in apply(node, [k.value for k in operands])]
    if not any(k.deps is not None for k in operands):
        return known_outputs(node, operands)
    match node.op:
        case Scan() as op:
            return _loop(op, operands)
        case Cond() as op:
            return _branches(op, operands)
        case Call(rule=None, fgraph=graph) | Derivative(expansion=graph):
            return _body(graph, operands)
    return known_outputs(node, operands)


def _is_known(node: Apply, operands: Sequence[Known]) -> bool:
    """Whether the outputs are constant; the outputs of draws and of user-defined ops may change."""
    op: Any = node.op
    if isinstance(op, RandomVariable) or is_foreign(type(op)):
        return False
    if isinstance(op, HasInnerGraph) and not isinstance(op, InnerGraphOp):
        return False
    return bool(operands) and all(k.value is not None and k.deps is None for k in operands)


def _body(graph: AbstractFunctionGraph, operands: Sequence[Known]) -> list[Known]:
    env = dict(zip(graph.inputs, operands, strict=True))
    return _walked(graph, graph.toposort(), env)


def _walked(
    graph: AbstractFunctionGraph, nodes: Sequence[Apply], env: dict[Any, Known]
) -> list[Known]:
    def read(v: Variable) -> Known:
        return constant(v.data) if isinstance(v, Constant) else env[v]

    for node in nodes:
        env.update(
            zip(node.outputs, known_node_outputs(node, [read(v) for v in node.inputs]), strict=True)
        )
    return [read(v) for v in graph.outputs]


def _branches(cond: Cond, operands: Sequence[Known]) -> list[Known]:
    outputs = _body(cond.fgraph, operands[1:])
    n = cond.n_outs
    then, otherwise = outputs[:n], outputs[n:]
    if operands[0].value is not None:
        return then if operands[0].value else otherwise
    return [_either(a, b) for a, b in zip(then, otherwise, strict=True)]


def _either(a: Known, b: Known) -> Known:
    shape = tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))
    are_equal = a.value is not None and b.value is not None and np.array_equal(a.value, b.value)
    return Known(shape, a.value if are_equal else None, union([a.deps, b.deps]))


def _loop(scan: Scan, operands: Sequence[Known]) -> list[Known]:
    if scan.stops:
        raise UnknownStructure(f"{scan}, which stops after an unknown number of steps")
    args = scan.split_inputs(operands)
    if args.n_steps.value is None:
        raise UnknownStructure(f"{scan}, whose number of steps is unknown")
    n, nodes = int(args.n_steps.value), scan.fgraph.toposort()
    if n * len(nodes) > _MANY:
        raise UnknownStructure(f"{scan}, which takes too many steps to examine one by one")
    if not all(isinstance(v.type, DenseTensorType) for v in scan.outs.ys):
        raise UnknownStructure(f"{scan}, whose rows are not tensors")
    states, rows = list(args.states), []
    sequences = [_rows(x, n) for x in args.sequences]
    order = range(n)
    for i in reversed(order) if scan.options.reverse else order:
        inputs = [constant(np.int64(i)), *(x[i] for x in sequences), *states, *args.consts]
        env = dict(zip(scan.fgraph.inputs, inputs, strict=True))
        outs = scan.split_body_outputs(_walked(scan.fgraph, nodes, env))
        states = list(outs.states)
        rows.append(outs.ys)
    if scan.options.reverse:
        rows.reverse()
    traces = [_trace([row[k] for row in rows], y) for k, y in enumerate(scan.outs.ys)]
    return [*states, *traces]


def _rows(x: Known, n: int) -> list[Known]:
    """Split a sequence into its ``n`` rows."""
    if x.deps is None:
        if x.value is None:
            return [Known(x.shape[1:])] * n
        return [Known(x.shape[1:], np.asarray(row)) for row in x.value]
    size = x.size // n if n else 0
    return [Known(x.shape[1:], None, x.deps[k * size : (k + 1) * size]) for k in range(n)]


def _trace(rows: Sequence[Known], y: Variable) -> Known:
    if not rows:
        return Known((0, *y.type.shape))
    shape = (len(rows), *rows[0].shape)
    if all(row.value is not None for row in rows):
        return Known(shape, np.stack([row.value for row in rows]))
    width = next((row.deps.shape[1] for row in rows if row.deps is not None), None)
    if width is None:
        return Known(shape)
    parts = [
        sparse.csr_matrix((row.size, width), dtype=bool) if row.deps is None else row.deps
        for row in rows
    ]
    return Known(shape, None, stacked(parts))
