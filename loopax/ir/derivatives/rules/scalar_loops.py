"""Derivatives of ``ScalarLoop``: the series inside PyTensor's derivatives of special functions.

An elementwise loop is differentiated in forward mode, along all inputs at once or along tangents: an
extended loop carries the derivatives of the states beside the states. It stops where the loop itself stops,
as in JAX's operations (`loopax.jax_backend.ops.scalar_loop`): the terms of a series and their derivatives
vanish together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import ScalarType, Switch, add, constant, switch
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.variable import TensorVariable

from loopax.facts.scalars import is_real
from loopax.ir.replace import replaced


def loop_slopes(op: ScalarLoop, inputs: Sequence[Variable]) -> dict[tuple[int, int], Variable]:
    """The derivatives of an elementwise loop, keyed by output and input position; 0 where there is none.

    Raises
    ------
    NotImplementedError
        An op in the loop has no derivative.
    """
    wrt = [k for k, v in enumerate(inputs) if k > 0 and is_real(v) and not _is_constant(v)]
    moving = {k: _moving_states(op, [k - 1]) for k in wrt}
    starts = [
        pt.constant(np.array(s == k - 1, op.inputs[s].type.dtype)) for k in wrt for s in moving[k]
    ]
    directions = [(moving[k], [k - 1], False) for k in wrt]
    _, outs = _run(op, inputs, directions, starts, [])
    return dict(zip([(s, k) for k in wrt for s in moving[k]], outs, strict=True))


def loop_tangents(
    op: ScalarLoop, inputs: Sequence[Variable], tangents: Mapping[int, Any]
) -> dict[int, Variable]:
    """The tangents of an elementwise loop's outputs, by position, from tangents of its inputs.

    An output without one has the tangent 0.

    The loop carries one more number for each state that has a tangent, however many inputs there are.

    Raises
    ------
    NotImplementedError
        An op in the loop has no derivative.
    """
    _, (out_tangents,) = values_and_tangents(op, inputs, [tangents])
    return out_tangents


def values_and_tangents(
    op: ScalarLoop, inputs: Sequence[Variable], directions: Sequence[Mapping[int, Any]]
) -> tuple[list[Variable], list[dict[int, Variable]]]:
    """The outputs of an elementwise loop, and its `loop_tangents` in each direction, by one loop.

    Raises
    ------
    NotImplementedError
        An op in the loop has no derivative.
    """
    n_states = len(op.outputs) - int(op.is_while)
    moving: list[_Direction] = []
    starts: list[Any] = []
    constants: list[Any] = []
    for tangents in directions:
        wrt = [k - 1 for k in sorted(tangents) if k > 0 and is_real(inputs[k])]
        typed = {k: t.astype(inputs[k].type.dtype) for k, t in tangents.items()}
        states = _moving_states(op, wrt)
        moving.append((states, wrt, True))
        starts += [
            typed.get(s + 1, pt.constant(np.array(0, op.inputs[s].type.dtype))) for s in states
        ]
        constants += [typed[k + 1] for k in wrt if k >= n_states]
    values, slopes = _run(op, inputs, moving, starts, constants)
    each = iter(slopes)
    return values, [{s: next(each) for s in states} for states, _, _ in moving]


# States that move, the inner inputs along which they do, and whether each of these has a tangent.
_Direction = tuple[Sequence[int], Sequence[int], bool]


def _run(
    op: ScalarLoop,
    inputs: Sequence[Variable],
    directions: Sequence[_Direction],
    starts: Sequence[TensorVariable],
    constants: Sequence[Variable],
) -> tuple[list[Any], list[Any]]:
    """The outputs of the loop, and the derivatives of the states after it, for each direction."""
    if not starts:
        return list(cast(Any, Elemwise(op)(*inputs, return_list=True))), []
    n_states, ndim = len(op.outputs) - int(op.is_while), inputs[0].type.ndim
    longer = _with_derivatives(op, directions)
    wide = [v if v.type.ndim == ndim else v.dimshuffle(["x"] * ndim) for v in starts]
    operands = [*inputs[1 : n_states + 1], *wide, *inputs[n_states + 1 :], *constants]
    # For operands of other dtypes PyTensor writes another loop, in 3.0 one that lacks some of its nodes.
    cast_operands = [
        pt.cast(v, inner.type.dtype) for v, inner in zip(operands, longer.inputs, strict=True)
    ]
    outs: Any = Elemwise(longer)(inputs[0], *cast_operands, return_list=True)
    states = [s for moving, _, _ in directions for s in moving]
    dtypes = [inputs[s + 1].type.dtype for s in states]
    slopes = [out.astype(t) for out, t in zip(outs[n_states:], dtypes, strict=False)]
    return [*outs[:n_states], *outs[n_states + len(slopes) :]], slopes


def _moving_states(op: ScalarLoop, wrt: Sequence[int]) -> list[int]:
    """The float states that depend on any of the inner inputs ``wrt``, after any number of steps."""
    graph: FunctionGraph = cast(Any, op.fgraph).unfreeze()
    n_states = len(op.outputs) - int(op.is_while)
    moving = {graph.inputs[k] for k in wrt}
    n_before = -1
    while len(moving) != n_before:
        n_before = len(moving)
        for node in graph.toposort():
            if any(x in moving for x in node.inputs):
                moving.update(y for y in node.outputs if is_real(y))
        moving |= {
            graph.inputs[s]
            for s in range(n_states)
            if graph.outputs[s] in moving and is_real(graph.inputs[s])
        }
    return [s for s in range(n_states) if graph.inputs[s] in moving]


def _with_derivatives(op: ScalarLoop, directions: Sequence[_Direction]) -> ScalarLoop:
    """Extend ``op`` by the derivatives of its states in each direction."""
    graph: FunctionGraph = cast(Any, op.fgraph).unfreeze()
    n_states = len(op.outputs) - int(op.is_while)
    inits, constants = graph.inputs[:n_states], graph.inputs[n_states:]
    updates, until = graph.outputs[:n_states], graph.outputs[n_states:]
    slopes = _slopes(graph)
    carried: list[Any] = []
    following: list[Any] = []
    constant_tangents: list[Any] = []
    for states, wrt, has_tangents in directions:
        tangents: dict[Variable, Any] = {graph.inputs[s]: graph.inputs[s].type() for s in states}
        carried += tangents.values()
        for k in wrt:
            if k >= n_states:
                v = graph.inputs[k]
                tangents[v] = v.type() if has_tangents else constant(1.0, v.type.dtype)
                constant_tangents += [tangents[v]] if has_tangents else []
        _push_forward(graph, slopes, tangents)
        following += [
            tangents.get(updates[s], constant(0.0)).astype(updates[s].type.dtype) for s in states
        ]
    return ScalarLoop(
        init=[*inits, *carried],
        update=[*updates, *following],
        constant=[*constants, *constant_tangents],
        until=until[0] if until else None,
        name=f"{op.name}_derivative",
    )


def _slopes(graph: FunctionGraph) -> dict[tuple[Apply, int], Any]:
    """The derivative of each node, which has one output, with respect to each float input."""
    slopes: dict[tuple[Apply, int], Any] = {}
    for node in graph.toposort():
        (y,) = node.outputs
        if is_real(y) and any(map(is_real, node.inputs)):
            every = _pulled_back_one(node)
            slopes |= {
                (node, k): slope
                for k, (x, slope) in enumerate(zip(node.inputs, every, strict=True))
                if is_real(x) and not isinstance(x, Constant)
            }
    return slopes


def _pulled_back_one(node: Apply) -> Sequence[Any]:
    """The cotangents of the inputs of a scalar op for a cotangent of 1.

    PyTensor's rule of a product leaves out the factors that *are* the input, for ``x * x`` both. So each
    input is first replaced by a separate variable. (PyTensor 3.0.7 and 3.3.8.)
    """
    (y,) = node.outputs
    one = constant(1.0, y.type.dtype)
    if len(set(node.inputs)) == len(node.inputs):
        return cast(Sequence[Any], node.op.pullback(node.inputs, node.outputs, [one]))
    places = [x.type() for x in node.inputs]
    apart = node.op.make_node(*places)
    slopes = node.op.pullback(places, apart.outputs, [one])
    originals = {**dict(zip(places, node.inputs, strict=True)), apart.outputs[0]: y}
    return list(replaced(slopes, originals))


def _push_forward(
    graph: FunctionGraph, slopes: dict[tuple[Apply, int], Any], tangents: dict[Variable, Any]
) -> None:
    """Propagate ``tangents`` to all variables that depend on an input with a tangent.

    A `Switch` selects between tangents, because 0 times the unselected one may be NaN.
    """
    for node in graph.toposort():
        if isinstance(node.op, Switch) and is_real(node.outputs[0]):
            condition, *choices = node.inputs
            if any(x in tangents for x in choices):
                dtype = node.outputs[0].type.dtype
                moved = [tangents.get(x, constant(np.array(0, dtype))) for x in choices]
                tangents[node.outputs[0]] = switch(condition, *moved)
            continue
        terms = []
        for k, x in enumerate(node.inputs):
            slope = slopes.get((node, k))
            if x in tangents and slope is not None and not isinstance(slope.type, DisconnectedType):
                if not isinstance(slope.type, ScalarType):
                    raise NotImplementedError(f"{node.op} has no derivative in its input {k}")
                terms.append(slope * tangents[x])
        if terms:
            tangents[node.outputs[0]] = add(*terms) if len(terms) > 1 else terms[0]


def _is_constant(v: Variable) -> bool:
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        (v,) = v.owner.inputs
    return isinstance(v, Constant)
