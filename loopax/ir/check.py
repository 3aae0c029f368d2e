"""``check(graph)``: the rules of the IR, verified. Every pass is run between two checks in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Constant, NominalVariable, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op

from loopax.base.errors import VerifyError
from loopax.ir.ops.call import Call
from loopax.ir.ops.calling_convention import FLAG_TYPE, INDEX_TYPE
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.scan import Scan
from loopax.ir.ops.trace import stacked
from loopax.ir.pformat import pformat


def check(graph: AbstractFunctionGraph) -> None:
    """Raise `VerifyError` where ``graph``, or a body inside it, breaks a rule.

    The rules: every variable is an input, a constant or an output of an earlier node; inputs and
    outputs of each op with a body have the types of its body, one by one; a state leaves a body with
    the type with which it entered; a flag is a bool scalar; the branches of a `Cond` have the same
    types; a body depends only on its inputs. The message ends with the graph as text.
    """
    for fault in _faults(graph):
        raise VerifyError(f"{fault}\n\nin\n\n{pformat(graph)}")


def _faults(graph: AbstractFunctionGraph) -> Any:
    defined: set[Variable] = set(graph.inputs)

    def unknown(v: Variable) -> bool:
        return v not in defined and not isinstance(v, Constant)

    for node in graph.toposort():
        for k, v in enumerate(node.inputs):
            if unknown(v):
                yield f"input {k} of {node.op}, {v}, is neither an input nor made by an earlier node"
        defined.update(node.outputs)
        if isinstance(node.op, Scan):
            yield from _scan_faults(node.op, node)
        elif isinstance(node.op, Cond):
            yield from _cond_faults(node.op, node)
        elif isinstance(node.op, Call):
            yield from _mismatches(node.op, "input", node.op.fgraph.inputs, node.inputs)
            yield from _mismatches(node.op, "output", node.op.fgraph.outputs, node.outputs)
            yield from _faults(node.op.fgraph)
    for k, v in enumerate(graph.outputs):
        if unknown(v):
            yield f"output {k}, {v}, is not made by the graph"


def _scan_faults(scan: Scan, node: Apply) -> Any:
    args, inner, inner_outs = scan.split_inputs(node.inputs), scan.args, scan.outs
    k, y = scan.n_states, scan.n_states + scan.n_ys
    finals, traces, closing = node.outputs[:k], node.outputs[k:y], node.outputs[y:]
    if not INDEX_TYPE.is_super(args.n_steps.type):
        yield f"n_steps of {scan} is {args.n_steps.type}, not an int64 scalar"
    ended = [INDEX_TYPE(), FLAG_TYPE()] if scan.stops else []
    yield from _mismatches(scan, "closing output", ended, closing)
    yield from _mismatches(scan, "state", inner.states, args.states)
    yield from _mismatches(scan, "const", inner.consts, args.consts)
    yield from _mismatches(scan, "next state", inner.states, inner_outs.states)
    yield from _mismatches(scan, "final state", inner.states, finals)
    rows = [stacked(r.type)() for r in inner.rows]
    yield from _mismatches(scan, "sequence", rows, args.sequences)
    yield from _mismatches(scan, "trace", [stacked(y.type)() for y in inner_outs.ys], traces)
    if inner_outs.stop is not None and not FLAG_TYPE.is_super(inner_outs.stop.type):
        yield f"the stop flag of {scan} is {inner_outs.stop.type}, not a bool scalar"
    if not all(isinstance(v, NominalVariable) for v in scan.fgraph.inputs):
        yield f"the body of {scan} is not frozen"
    yield from _faults(scan.fgraph)


def _cond_faults(cond: Cond, node: Apply) -> Any:
    outs, n = cond.fgraph.outputs, cond.n_outs
    if not FLAG_TYPE.is_super(node.inputs[0].type):
        yield f"the condition of {cond} is {node.inputs[0].type}, not a bool scalar"
    yield from _mismatches(cond, "operand", cond.fgraph.inputs, node.inputs[1:])
    yield from _mismatches(cond, "output of the first branch", node.outputs, outs[:n])
    yield from _mismatches(cond, "output of the second branch", node.outputs, outs[n:])
    yield from _faults(cond.fgraph)


def _mismatches(op: Op, role: str, declared: Sequence[Variable], actual: Sequence[Variable]) -> Any:
    if len(declared) != len(actual):
        yield f"{op} has {len(declared)} {role}s, but {len(actual)} are given"
        return
    for k, (d, g) in enumerate(zip(declared, actual, strict=True)):
        if not d.type.is_super(g.type):
            yield f"{role} {k} of {op} is {g.type}, but its body declares {d.type}"
