"""The pushforward of `Scan`: the loop, with a tangent beside each state.

    (s', y) = f(i, x, s, c)     and     (t', u) = pushforward of f at (x, s, c), of (dx, t, dc)

Forward mode stores nothing, so it also applies to loops without a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from loopax.ir.derivatives.expand import expansion, halves
from loopax.ir.derivatives.inner_gradients import (
    at_inputs,
    closure,
    connections,
    is_connected,
    is_float,
)
from loopax.ir.derivatives.traversal import push_forward
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.sequences import with_items


def pushforward(
    scan: ScanGrammar,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> list[Any]:
    """The tangents of ``outputs``; disconnected for an output that no tangent reaches."""
    if scan.options.truncate_gradient >= 0:
        out_tangents = _truncated(scan, inputs, outputs, tangents)
    else:
        out_tangents = _pushed(scan, scan.split_inputs(inputs), scan.split_inputs(tangents))
    return [disconnected_type() if t is None else t for t in out_tangents]


def _truncated(
    scan: ScanGrammar,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> list[Any]:
    if scan.stops:
        expand: Any = expansion(scan, inputs)
        return at_inputs(
            push_forward,
            lambda operands: expand(scan.split_inputs(operands)).flat(),
            inputs,
            tangents,
        )
    outs = scan.split_outputs(
        at_inputs(
            push_forward,
            lambda operands: halves(scan, scan.split_inputs(operands))[1].flat(),
            inputs,
            tangents,
        )
    )
    # The rows of steps that are cut off have zero tangents. PyTensor's Join would drop the others.
    traces = [
        None if t is None else _with_zero_rows(y, t, scan.options.reverse)
        for y, t in zip(scan.split_outputs(outputs).traces, outs.traces, strict=True)
    ]
    return [*outs.finals, *traces]


def _with_zero_rows(y: TensorVariable, t: TensorVariable, reverse: bool) -> Any:
    n = t.shape[0]
    zeros = pt.zeros_like(y[n:] if reverse else y[: y.shape[0] - n])
    return y.type.filter_variable(pt.concatenate([t, zeros] if reverse else [zeros, t]))


def _pushed(scan: ScanGrammar, args: ScanArgs, in_tangents: ScanArgs) -> list[Any]:
    body = scan.unfrozen()
    inner, outs = scan.split_body_inputs(body.inputs), scan.split_body_outputs(body.outputs)
    moving = _moving(scan, in_tangents, body)
    # Inside: a tangent, of the same type, for each input that has one.
    dots: dict[Any, Any] = {inner.states[k]: inner.states[k].type() for k in moving}
    for group, tangents in (
        (inner.rows, in_tangents.sequences),
        (inner.consts, in_tangents.consts),
    ):
        for v, t in zip(group, tangents, strict=True):
            if is_connected(t) and is_float(v):
                dots[v] = v.type()

    def inside(group: Sequence[Variable]) -> list[Any]:
        return [dots[v] for v in group if v in dots]

    def outside(
        group: Sequence[Variable], xs: Sequence[Variable], ts: Sequence[Variable]
    ) -> list[Any]:
        return [_as(x, t) for v, x, t in zip(group, xs, ts, strict=True) if v in dots]

    out_dots = push_forward(
        body.inputs, [*outs.states, *outs.ys], [dots.get(v) for v in body.inputs]
    )
    d_states, d_ys = out_dots[: scan.n_states], out_dots[scan.n_states :]
    next_dots = [
        pt.zeros_like(inner.states[k]) if d_states[k] is None else d_states[k] for k in moving
    ]
    from_ys = [k for k, d in enumerate(d_ys) if d is not None]

    loop = scan.from_body(
        BodyArgs(
            inner.i,
            [*inner.rows, *inside(inner.rows)],
            [*inner.states, *inside(inner.states)],
            [*inner.consts, *inside(inner.consts)],
        ),
        BodyOuts([*outs.states, *next_dots], [*outs.ys, *(d_ys[k] for k in from_ys)], outs.stop),
        scan.options._replace(name=f"pushforward of {scan.options.name or 'loop'}"),
    )
    bound = loop.bind(
        ScanArgs(
            args.n_steps,
            [*args.sequences, *outside(inner.rows, args.sequences, in_tangents.sequences)],
            [*args.states, *(_start(args.states[k], in_tangents.states[k]) for k in moving)],
            [*args.consts, *outside(inner.consts, args.consts, in_tangents.consts)],
        )
    )
    results = loop.split_outputs(bound)
    finals = with_items([None] * scan.n_states, moving, results.finals[scan.n_states :])
    traces = with_items([None] * scan.n_ys, from_ys, results.traces[scan.n_ys :])
    return [*finals, *traces, *([None, None] if scan.stops else [])]


def _moving(scan: ScanGrammar, in_tangents: ScanArgs, body: FunctionGraph) -> list[int]:
    """The states that get a tangent, after any number of steps."""
    pattern = connections(body.inputs, body.outputs)
    first_state = 1 + scan.n_seqs
    floats = [k for k, v in enumerate(scan.args.states) if is_float(v)]
    fed = [
        j
        for j, t in enumerate(
            [None, *in_tangents.sequences, *[None] * scan.n_states, *in_tangents.consts]
        )
        if is_connected(t)
    ]

    def is_fed(k: int, moving: set[int]) -> bool:
        return any(pattern[j][k] for j in [*fed, *(first_state + m for m in moving)])

    return closure({k for k in floats if is_connected(in_tangents.states[k])}, floats, is_fed)


def _start(state: TensorVariable, tangent: Variable) -> Any:
    return _as(state, tangent) if is_connected(tangent) else state.zeros_like()


def _as(x: Variable, tangent: Any) -> Any:
    return x.type.filter_variable(tangent.astype(x.type.dtype))
