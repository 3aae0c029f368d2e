"""Pullback and pushforward of a graph, node by node: each op by its own rule, or by one of ours.

PyTensor's `grad` and `pushforward` are not used, for three reasons. They know only the ops' own rules, some
of which are wrong (`loopax.ir.derivatives.rules`). They take a gradient that they are told for all there is
of a variable, so that what comes through another output is lost. And what they hand to an op for a missing
derivative makes some ops drop the others: `_cotangents` and `_tangents` decide here what an op is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.configdefaults import config
from pytensor.gradient import NullTypeGradError, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import toposort
from pytensor.sparse import sp_ones_like
from pytensor.tensor.elemwise import Elemwise

from loopax.ir.derivatives.inner_gradients import (
    is_connected,
    is_float,
    is_list_of_floats,
    is_null,
    is_sparse,
    of_type,
    zeros_for,
)
from loopax.ir.derivatives.rules.registry import pullback_of, pushforward_of
from loopax.ir.ops.inner_graph_op import InnerGraphOp

# What an op raises that has no pushforward: Argmax, an integer all the same, a ValueError; Elemwise a
# TypeError where a derivative is unknown.
_NO_PUSHFORWARD = NotImplementedError, TypeError, ValueError


def pull_back(
    inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """The cotangents of ``inputs``, roots of a graph, of their types; None where none arrives.

    Parameters
    ----------
    cotangents
        One for each of ``outputs``; None or disconnected where there is none.

    Returns
    -------
    A cotangent that nobody knows has a `NullType`.
    """
    sums: dict[Any, Any] = {}
    for out, g in zip(outputs, cotangents, strict=True):
        if is_connected(g) and is_float(out):
            _add(sums, out, g)
    roots = set(inputs)
    nodes = list(toposort(outputs, blockers=list(inputs))) if sums else []
    moving = _moving(inputs, nodes)
    for node in reversed(nodes):
        arrived = [None if y in roots else sums.pop(y, None) for y in node.outputs]
        if any(g is not None for g in arrived) and any(x in moving for x in node.inputs):
            for x, g in zip(node.inputs, _pulled_through(node, arrived), strict=True):
                if x in moving and (is_connected(g) or is_null(g)):
                    _add(sums, x, g)
    return [of_type(v, sums.get(v)) if is_float(v) else None for v in inputs]


def push_forward(
    inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """The tangents of ``outputs``; None where none arrives, and for what is no float.

    Parameters
    ----------
    tangents
        One for each of ``inputs``, roots of a graph; None or disconnected where there is none.

    Raises
    ------
    NotImplementedError, pytensor.gradient.NullTypeGradError
        An op on the way has no derivative.
    """
    moving = {v: t for v, t in zip(inputs, tangents, strict=True) if is_connected(t)}
    roots = set(moving)
    for node in toposort(outputs, blockers=[*moving]):
        if any(x in moving for x in node.inputs):
            pushed = _pushed_through(node, [moving.get(x) for x in node.inputs])
            for y, t in zip(node.outputs, pushed, strict=True):
                if is_connected(t) and is_float(y) and y not in roots:
                    moving[y] = of_type(y, t)
    return [moving.get(v) for v in outputs]


def _add(sums: dict[Any, Any], x: Any, g: Any) -> None:
    """Add a part to the cotangent of ``x``. One part that is not known makes the sum unknown."""
    if not is_null(g) and getattr(g.type, "dtype", "") != x.type.dtype:
        g = g.astype(x.type.dtype)
    before = sums.get(x)
    sums[x] = g if before is None or is_null(g) else before if is_null(before) else before + g


def _moving(inputs: Sequence[Any], nodes: Sequence[Apply]) -> set[Any]:
    """The floats that depend on a float among ``inputs``, and the lists, whose cotangents are unknown."""
    moving = {v for v in inputs if is_float(v)}
    for node in nodes:
        if any(x in moving for x in node.inputs):
            moving.update(y for y in node.outputs if is_float(y) or is_list_of_floats(y))
    return moving


# -- one node ----------------------------------------------------------------------------------------


def _pulled_through(node: Apply, arrived: Sequence[Any]) -> list[Any]:
    """The cotangents of a node's inputs; None, disconnected or null where there is none."""
    nulls = [k for k, g in enumerate(arrived) if is_null(g)]
    known = [None if is_null(g) else g for g in arrived]
    pulled: list[Any] = [None] * len(node.inputs)
    if any(g is not None for g in known):
        pulled = list(pullback_of(node.op, node.inputs, node.outputs, _cotangents(known)))
    if nulls:
        pattern = _pattern(node)
        for k, row in enumerate(pattern):
            unknown = [arrived[j] for j in nulls if row[j]]
            pulled[k] = unknown[0] if unknown else pulled[k]
    return pulled


def _pushed_through(node: Apply, tangents: Sequence[Any]) -> Sequence[Any]:
    """The tangents of a node's outputs, by its pushforward, or else by the pullback of its pullback."""
    if not any(map(is_float, node.outputs)):
        return [None] * len(node.outputs)
    try:
        return pushforward_of(node.op, node.inputs, node.outputs, _tangents(node, tangents))
    except _NO_PUSHFORWARD:
        return _by_two_pullbacks(node, tangents)


def _by_two_pullbacks(node: Apply, tangents: Sequence[Any]) -> list[Any]:
    """The pullback is linear in the cotangents, and its transpose is the pushforward.

    It is taken at cotangents that have values: a pullback may ask them for their shapes.
    """
    places = [k for k, y in enumerate(node.outputs) if is_float(y)]
    outputs: list[Any] = [node.outputs[k] for k in places]
    # Zeros of a sparse matrix have no entry, and none could arrive where they are.
    cotangents = [sp_ones_like(y) if is_sparse(y) else y.zeros_like() for y in outputs]
    arrived: list[Any] = [None] * len(node.outputs)
    for k, g in zip(places, cotangents, strict=True):
        arrived[k] = g
    pulled = _pulled_through(node, arrived)
    moving = [k for k, t in enumerate(tangents) if t is not None]
    for k in moving:
        if is_null(pulled[k]):
            raise NullTypeGradError(f"{node.op} has no derivative: {pulled[k].type.why_null}")
    moving = [k for k in moving if is_connected(pulled[k])]
    pushed = pull_back(cotangents, [pulled[k] for k in moving], [tangents[k] for k in moving])
    result: list[Any] = [None] * len(node.outputs)
    for k, t in zip(places, pushed, strict=True):
        result[k] = t
    return result


# -- what is missing ---------------------------------------------------------------------------------


def _cotangents(arrived: Sequence[Any]) -> list[Any]:
    """What a pullback is given: ``DisconnectedType`` for a cotangent that is missing.

    Zeros would say the same, but ops leave out the terms of a disconnected output, which may be 0/0: those
    of eigenvectors where eigenvalues are equal.
    """
    return [disconnected_type() if g is None else g for g in arrived]


def _tangents(node: Apply, tangents: Sequence[Any]) -> list[Any]:
    """What a pushforward is given: zeros for a tangent that is missing of what goes into the outputs.

    Join, MakeVector and the writes drop the tangents that they have where one is missing, that of an
    integer too. Elemwise and the ops of the IR leave out what is disconnected.
    """
    if isinstance(node.op, Elemwise | InnerGraphOp):
        return [disconnected_type() if t is None else t for t in tangents]
    dtype = next(y.type.dtype for y in node.outputs if is_float(y))
    enters = [any(row) for row in _pattern(node)]
    return [
        of_type(x, t)
        if t is not None
        else _zeros(x, dtype)
        if is_entering and hasattr(x.type, "ndim")
        else disconnected_type()
        for x, t, is_entering in zip(node.inputs, tangents, enters, strict=True)
    ]


def _zeros(x: Any, dtype: str) -> Any:
    """The tangent of ``x`` that is zero: of an integer or bool in the floats of the output."""
    return zeros_for(x) if is_float(x) else x.zeros_like(dtype=dtype or config.floatX)


def _pattern(node: Apply) -> list[list[bool]]:
    """``[input][output]``: whether a derivative can go from one to the other."""
    pattern = getattr(node.op, "connection_pattern", None)
    if pattern is None:
        return [[True] * len(node.outputs) for _ in node.inputs]
    rows: list[list[bool]] = pattern(node)
    return rows
