"""Derivatives of ``ScalarLoop``: the series inside PyTensor's derivatives of special functions.

A loop of one element is differentiated forwards, along all inputs at once: a longer loop carries the
derivatives of the states beside them. It stops where the loop itself stops, as in JAX's operations
(`loopax.jax_backend.ops.scalar_loop`): the terms of a series and their derivatives vanish together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import ScalarType, add, constant
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import DimShuffle, Elemwise


def loop_slopes(op: ScalarLoop, inputs: Sequence[Variable]) -> dict[tuple[int, int], Variable]:
    """The derivatives of an elementwise loop, by the positions of an output and an input; 0 where none is.

    Raises
    ------
    NotImplementedError
        An op in the loop has no derivative.
    """
    n_states = len(op.outputs) - int(op.is_while)
    wrt = [k for k, v in enumerate(inputs) if k > 0 and _is_float(v) and not _is_constant(v)]
    states = [k for k in range(n_states) if _is_float(op.inputs[k])]
    if not wrt or not states:
        return {}
    loop = Elemwise(_with_derivatives(op, states, [k - 1 for k in wrt]))
    starts = [
        pt.constant(np.array(s == k - 1, op.inputs[s].type.dtype)) for k in wrt for s in states
    ]
    starts = [s.dimshuffle(["x"] * inputs[0].type.ndim) for s in starts]
    outs: Any = loop(*inputs[: n_states + 1], *starts, *inputs[n_states + 1 :], return_list=True)
    derivatives = outs[n_states : n_states + len(starts)]
    positions = [(s, k) for k in wrt for s in states]
    return dict(zip(positions, derivatives, strict=True))


def _with_derivatives(op: ScalarLoop, states: Sequence[int], wrt: Sequence[int]) -> ScalarLoop:
    """``op`` with more states: the derivatives of ``states`` along each of its inner inputs ``wrt``."""
    graph: FunctionGraph = cast(Any, op.fgraph).unfreeze()
    n_states = len(op.outputs) - int(op.is_while)
    inits, constants = graph.inputs[:n_states], graph.inputs[n_states:]
    updates, until = graph.outputs[:n_states], graph.outputs[n_states:]
    carried = [graph.inputs[s].type() for _ in wrt for s in states]
    slopes = _slopes(graph)
    following: list[Any] = []
    for j, k in enumerate(wrt):
        along = carried[j * len(states) : (j + 1) * len(states)]
        tangents: dict[Variable, Any] = {
            graph.inputs[s]: t for s, t in zip(states, along, strict=True)
        }
        if k >= n_states:
            tangents[graph.inputs[k]] = constant(1.0, graph.inputs[k].type.dtype)
        _push_forward(graph, slopes, tangents)
        following += [
            tangents.get(updates[s], constant(0.0)).astype(updates[s].type.dtype) for s in states
        ]
    return ScalarLoop(
        init=[*inits, *carried],
        update=[*updates, *following],
        constant=constants,
        until=until[0] if until else None,
        name=f"{op.name}_derivative",
    )


def _slopes(graph: FunctionGraph) -> dict[tuple[Apply, int], Any]:
    """The derivative of each node, of one output, in each of its inputs that is a float."""
    slopes: dict[tuple[Apply, int], Any] = {}
    for node in graph.toposort():
        (y,) = node.outputs
        if _is_float(y) and any(map(_is_float, node.inputs)):
            one = constant(1.0, y.type.dtype)
            every = node.op.pullback(node.inputs, node.outputs, [one])
            slopes |= {
                (node, k): slope
                for k, (x, slope) in enumerate(zip(node.inputs, every, strict=True))
                if _is_float(x) and not isinstance(x, Constant)
            }
    return slopes


def _push_forward(
    graph: FunctionGraph, slopes: dict[tuple[Apply, int], Any], tangents: dict[Variable, Any]
) -> None:
    """Add to ``tangents`` those of all that moves with the inputs that have one."""
    for node in graph.toposort():
        terms = []
        for k, x in enumerate(node.inputs):
            slope = slopes.get((node, k))
            if x in tangents and slope is not None:
                if not isinstance(slope.type, ScalarType):
                    raise NotImplementedError(f"{node.op} has no derivative in its input {k}")
                terms.append(slope * tangents[x])
        if terms:
            tangents[node.outputs[0]] = add(*terms) if len(terms) > 1 else terms[0]


def _is_float(v: Variable) -> bool:
    return bool(v.type.dtype.startswith("float"))


def _is_constant(v: Variable) -> bool:
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        (v,) = v.owner.inputs
    return isinstance(v, Constant)
