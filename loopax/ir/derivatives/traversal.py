"""Pullback and pushforward of a graph, node by node: each op by its own rule, or by one of loopax.

PyTensor's `grad` and `pushforward` are not used, for three reasons. They use only the ops' own rules,
some of which are wrong (`loopax.ir.derivatives.rules`). They take a known gradient of a variable for
the whole gradient, and lose contributions through other outputs. And their placeholder for a missing
derivative makes some ops drop the other derivatives: here `_cotangents` and `_tangents` choose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytensor.scalar as ps
from pytensor.configdefaults import config
from pytensor.gradient import NullTypeGradError, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.traversal import toposort
from pytensor.graph.utils import MethodNotDefined
from pytensor.sparse import sp_ones_like

from loopax.facts.elementwise import is_elementwise
from loopax.ir.derivatives.inner_gradients import (
    as_derivative_of,
    is_connected,
    is_float,
    is_list_of_floats,
    is_null,
    is_sparse,
    unknown_through_list,
    zeros_for,
)
from loopax.ir.derivatives.rules.complex_numbers import as_cotangent_of, pullback_with_conjugates
from loopax.ir.derivatives.rules.registry import pushforward_of
from loopax.ir.derivatives.sparse_types import converted
from loopax.ir.derivatives.supported import Supported, pull_back_supported
from loopax.ir.derivatives.unbounded_slopes import UnboundedSlopes
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.sequences import with_items

# Exceptions of ops without a pushforward: Argmax, though an integer, raises a ValueError, Elemwise a
# TypeError where a derivative is unknown, and MethodNotDefined where the scalar op has no pullback.
_NO_PUSHFORWARD = NotImplementedError, TypeError, ValueError, MethodNotDefined


def pull_back(
    inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """The cotangents of ``inputs``, roots of a graph, in their types; None for a root without one.

    Parameters
    ----------
    cotangents
        The cotangents of ``outputs``; None or disconnected where there is none.

    Returns
    -------
    An unknown cotangent has a `NullType`.
    """
    sums: dict[Any, Supported] = {}
    for out, g in zip(outputs, cotangents, strict=True):
        if is_connected(g) and is_float(out):
            _add(sums, out, Supported(converted(g, out)))
    roots = set(inputs)
    nodes = list(toposort(outputs, blockers=list(inputs))) if sums else []
    moving = moving_variables(inputs, nodes)
    has_switch = any(is_elementwise(node, ps.Switch) for node in nodes)
    slopes = UnboundedSlopes(inputs, nodes, moving) if has_switch else None
    for node in reversed(nodes):
        out_cotangents = [None if y in roots else sums.pop(y, None) for y in node.outputs]
        if any(g is not None for g in out_cotangents) and any(x in moving for x in node.inputs):
            in_cotangents = _pull_back_node(node, out_cotangents, slopes)
            for x, g in zip(node.inputs, in_cotangents, strict=True):
                if x in moving and g is not None:
                    _add(sums, x, g if slopes is None else g.kept(x, slopes))
    return [as_derivative_of(v, _dense(sums.get(v))) if is_float(v) else None for v in inputs]


def push_forward(
    inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Variable | None]
) -> list[Any]:
    """The tangents of ``outputs``; None without one, and for outputs that are not floats.

    Parameters
    ----------
    tangents
        The tangents of ``inputs``, roots of a graph; None or disconnected where there is none.

    Raises
    ------
    NotImplementedError, pytensor.gradient.NullTypeGradError
        An op on the way to one of the outputs has no derivative.
    """
    moving = {v: t for v, t in zip(inputs, tangents, strict=True) if is_connected(t)}
    roots = set(moving)
    for node in toposort(outputs, blockers=[*moving]):
        if any(x in moving for x in node.inputs):
            out_tangents = _push_forward_node(node, [moving.get(x) for x in node.inputs])
            for y, t in zip(node.outputs, out_tangents, strict=True):
                if is_list_of_floats(y):
                    source = next(x for x in node.inputs if x in moving)
                    moving[y] = unknown_through_list(node.op, node.inputs, source)
                elif is_float(y) and y not in roots and (is_connected(t) or is_null(t)):
                    moving[y] = t if is_null(t) else as_derivative_of(y, t)
    out_tangents = [moving.get(v) for v in outputs]
    for t in out_tangents:
        if is_null(t):
            raise NullTypeGradError(t.type.why_null)
    return out_tangents


def _add(sums: dict[Any, Supported], x: Variable, g: Supported) -> None:
    """Add ``g`` to the cotangent of ``x``. One unknown term makes the sum unknown."""
    if not is_null(g.value) and hasattr(g.value.type, "dtype"):
        g = g._replace(value=as_cotangent_of(x, g.value))
    current = sums.get(x)
    if current is None or is_null(g.value):
        sums[x] = g
    elif not is_null(current.value):
        sums[x] = current.plus(g)


def _dense(g: Supported | None) -> Any:
    """A cotangent as one variable; None where there is none."""
    return None if g is None else g.dense


def moving_variables(inputs: Sequence[Variable], nodes: Sequence[Apply]) -> set[Any]:
    """The floats that depend on a float input, and the typed lists, whose cotangents are unknown."""
    moving = {v for v in inputs if is_float(v)}
    for node in nodes:
        if any(x in moving for x in node.inputs):
            moving.update(y for y in node.outputs if is_float(y) or is_list_of_floats(y))
    return moving


# -- one node ----------------------------------------------------------------------------------------


def _pull_back_node(
    node: Apply, out_cotangents: Sequence[Supported | None], slopes: UnboundedSlopes | None
) -> list[Supported | None]:
    """The cotangents of a node's inputs: null for an unknown one, None for a missing one.

    ``slopes`` is None in a graph without a ``switch``, in which every cotangent is dense.
    """

    def pull(inputs: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        return pullback_with_conjugates(node.op, inputs, node.outputs, _cotangents(cotangents))

    in_cotangents: Sequence[Any] | None = None
    is_known = not any(g is not None and is_null(g.value) for g in out_cotangents)
    if slopes is not None and is_known:
        in_cotangents = pull_back_supported(node, out_cotangents, pull, slopes)
    if in_cotangents is None:
        in_cotangents = _pull_back_dense(node, [_dense(g) for g in out_cotangents])
    return [
        g if isinstance(g, Supported) else Supported(g) if is_connected(g) or is_null(g) else None
        for g in in_cotangents
    ]


def _pull_back_dense(node: Apply, out_cotangents: Sequence[Variable | None]) -> list[Any]:
    """The cotangents of a node's inputs; None, disconnected or null where there is none."""
    nulls = [k for k, g in enumerate(out_cotangents) if is_null(g)]
    cotangents = [None if is_null(g) else g for g in out_cotangents]
    in_cotangents: list[Any] = [None] * len(node.inputs)
    if any(g is not None for g in cotangents):
        in_cotangents = list(
            pullback_with_conjugates(node.op, node.inputs, node.outputs, _cotangents(cotangents))
        )
    if nulls:
        pattern = _pattern(node)
        for k, row in enumerate(pattern):
            unknown = [out_cotangents[j] for j in nulls if row[j]]
            in_cotangents[k] = unknown[0] if unknown else in_cotangents[k]
    return in_cotangents


def _push_forward_node(node: Apply, tangents: Sequence[Variable | None]) -> Sequence[Any]:
    """The tangents of a node's outputs; null where one depends on an unknown tangent."""
    nulls = [k for k, t in enumerate(tangents) if is_null(t)]
    known = with_items(tangents, nulls, [None] * len(nulls))
    out_tangents: list[Any] = [None] * len(node.outputs)
    if any(map(is_float, node.outputs)) and any(t is not None for t in known):
        out_tangents = list(_push_forward_known(node, known))
    return _with_unknown(node, out_tangents, {k: tangents[k] for k in nulls})


def _push_forward_known(node: Apply, tangents: Sequence[Variable | None]) -> Sequence[Any]:
    """The tangents of a node's outputs, by its pushforward, or else by the pullback of its pullback."""
    try:
        return pushforward_of(node.op, node.inputs, node.outputs, _tangents(node, tangents))
    except _NO_PUSHFORWARD:
        return _by_two_pullbacks(node, tangents)


def _with_unknown(node: Apply, out_tangents: list[Any], nulls: Mapping[int, Any]) -> list[Any]:
    """Make ``out_tangents`` null for outputs that depend on an input in ``nulls``, by position."""
    pattern = _pattern(node) if nulls else []
    for k, null in nulls.items():
        places = [j for j, depends in enumerate(pattern[k]) if depends]
        out_tangents = with_items(out_tangents, places, [null] * len(places))
    return out_tangents


def _by_two_pullbacks(node: Apply, tangents: Sequence[Variable | None]) -> list[Any]:
    """The pushforward of a node as the transpose of its pullback, which is linear in the cotangents.

    The pullback is taken at cotangents with values, since it may read their shapes.
    """
    positions = [k for k, y in enumerate(node.outputs) if is_float(y)]
    outputs: list[Any] = [node.outputs[k] for k in positions]
    # A sparse matrix of zeros has no entries, and no cotangent could arrive at one.
    cotangents = [sp_ones_like(y) if is_sparse(y) else y.zeros_like() for y in outputs]
    nothing = [None] * len(node.outputs)
    out_cotangents = with_items(nothing, positions, cotangents)
    in_cotangents = _pull_back_dense(node, out_cotangents)
    moving = [k for k, t in enumerate(tangents) if t is not None]
    nulls = {
        k: NullType(f"{node.op} has no derivative: {in_cotangents[k].type.why_null}")()
        for k in moving
        if is_null(in_cotangents[k])
    }
    moving = [k for k in moving if is_connected(in_cotangents[k])]
    out_tangents = pull_back(
        cotangents, [in_cotangents[k] for k in moving], [tangents[k] for k in moving]
    )
    return _with_unknown(node, with_items(nothing, positions, out_tangents), nulls)


# -- missing derivatives -----------------------------------------------------------------------------


def _cotangents(out_cotangents: Sequence[Variable | None]) -> list[Any]:
    """The cotangents to pass to a rule, with ``DisconnectedType`` for missing ones.

    Zeros would be correct, but ops leave out the terms of a disconnected output, which may be 0/0: in
    the derivative of eigenvectors, where eigenvalues are equal.
    """
    return [disconnected_type() if g is None else g for g in out_cotangents]


def _tangents(node: Apply, tangents: Sequence[Variable | None]) -> list[Any]:
    """The tangents to pass to a rule, with zeros for missing ones of inputs that enter the outputs.

    Join, MakeVector and writes drop all tangents if any is missing, even one of an integer. Elemwise and
    the ops of the IR leave out disconnected ones.
    """
    if is_elementwise(node) or isinstance(node.op, InnerGraphOp):
        return [disconnected_type() if t is None else t for t in tangents]
    dtype = next(y.type.dtype for y in node.outputs if is_float(y))
    enters = [any(row) for row in _pattern(node)]
    return [
        as_derivative_of(x, t)
        if t is not None
        else _zeros(x, dtype)
        if is_entering and hasattr(x.type, "ndim")
        else disconnected_type()
        for x, t, is_entering in zip(node.inputs, tangents, enters, strict=True)
    ]


def _zeros(x: Any, dtype: str) -> Any:
    """The zero tangent of ``x``; for an integer or bool it has the output's float dtype."""
    return zeros_for(x) if is_float(x) else x.zeros_like(dtype=dtype or config.floatX)


def _pattern(node: Apply) -> list[list[bool]]:
    """``[input][output]``: whether a derivative can go from one to the other."""
    pattern = getattr(node.op, "connection_pattern", None)
    if pattern is None:
        return [[True] * len(node.outputs) for _ in node.inputs]
    rows: list[list[bool]] = pattern(node)
    return rows
