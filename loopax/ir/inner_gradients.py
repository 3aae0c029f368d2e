"""Derivatives of an inner graph, by PyTensor's own rules, with two of its traps avoided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor
from pytensor.configdefaults import config
from pytensor.gradient import DisconnectedType, disconnected_type, pushforward
from pytensor.graph.basic import Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.op import io_connection_pattern
from pytensor.graph.replace import clone_replace

_FLOATS = ("float16", "float32", "float64", "complex64", "complex128")


def is_float(v: Any) -> bool:
    """Whether ``v`` can have a derivative: a tensor of floats."""
    return getattr(v.type, "dtype", "") in _FLOATS and hasattr(v.type, "ndim")


def is_connected(cotangent: Any) -> bool:
    """Whether a cotangent, or tangent, says anything."""
    return cotangent is not None and not isinstance(cotangent.type, DisconnectedType | NullType)


def is_null(cotangent: Any) -> bool:
    """Whether PyTensor could not say what a cotangent is."""
    return cotangent is not None and isinstance(cotangent.type, NullType)


def pull_back(
    inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """The cotangents of ``inputs``, roots of a graph; None where none arrives.

    ``cotangents`` are those of ``outputs``, None or disconnected where there is none. A result may
    have a `NullType`.
    """
    # Each output is copied: PyTensor *replaces* the gradient of a variable it is told the gradient
    # of, so that where one output feeds another, what comes through the other would be lost.
    known = {out.copy(): g for out, g in zip(outputs, cotangents, strict=True) if is_connected(g)}
    wrt = [v for v in inputs if is_float(v)]
    if not known or not wrt:
        return [None for _ in inputs]
    arrived: Any = pytensor.grad(
        None,
        wrt,
        known_grads=known,
        disconnected_inputs="ignore",
        return_disconnected="none",
        null_gradients="return",
    )
    found = iter(arrived)
    given = [next(found) if is_float(v) else None for v in inputs]
    return [_as(v, g) for v, g in zip(inputs, given, strict=True)]


def push_forward(
    inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """The tangents of ``outputs``; None where none arrives, and for what is no float.

    ``tangents`` are those of ``inputs``, roots of a graph, None where there is none.
    """
    pairs = [(v, t) for v, t in zip(inputs, tangents, strict=True) if is_connected(t)]
    reached = _reached([v for v, _ in pairs], outputs)
    wanted = [k for k, v in enumerate(outputs) if reached[k] and is_float(v)]
    result: list[Any] = [None for _ in outputs]
    if not wanted:
        return result
    # An output that is an input is copied: PyTensor looks for the node that made it.
    copies = [outputs[k].copy() for k in wanted]
    wrt, given = [v for v, _ in pairs], [t for _, t in pairs]
    found: Any
    ignore: Any = {"disconnected_outputs": "ignore", "return_disconnected": "none"}
    try:
        found = pushforward(copies, wrt, given, **ignore, use_op_pushforward=True)
    except NotImplementedError:  # an op on the way has a pullback only
        found = pushforward(copies, wrt, given, **ignore)
    for k, t in zip(wanted, found, strict=True):
        result[k] = _as(outputs[k], t)
    return result


def through(
    build: Callable[[list[Any]], Sequence[Variable]],
    inputs: Sequence[Variable],
    cotangents: Sequence[Any],
) -> list[Any]:
    """`pull_back` through the graph that ``build`` makes of ``inputs``, which need not be roots."""
    roots = _roots(inputs)
    found = pull_back(roots, build(list(roots)), cotangents)
    return _placed(found, roots, inputs)


def forward_through(
    build: Callable[[list[Any]], Sequence[Variable]],
    inputs: Sequence[Variable],
    tangents: Sequence[Any],
) -> list[Any]:
    """`push_forward` through the graph that ``build`` makes of ``inputs``, which need not be roots."""
    roots = _roots(inputs)
    found = push_forward(roots, build(list(roots)), tangents)
    return _placed(found, roots, inputs)


def connections(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[list[bool]]:
    """``[input][output]``: whether a derivative can go from one to the other."""
    pattern = io_connection_pattern(list(inputs), list(outputs))
    tensors = [hasattr(out.type, "ndim") for out in outputs]
    return [
        [hasattr(v.type, "ndim") and bool(p) and t for p, t in zip(row, tensors, strict=True)]
        for v, row in zip(inputs, pattern, strict=True)
    ]


def _reached(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[bool]:
    if not inputs:
        return [False for _ in outputs]
    return [any(column) for column in zip(*connections(inputs, outputs), strict=True)]


def _roots(inputs: Sequence[Any]) -> list[Any]:
    """A root for each input that can have a derivative: one may have been computed from another.

    The others stay: what they were computed from tells, for instance, the bound of a number of steps.
    """
    return [v.type() if is_float(v) else v for v in inputs]


def _placed(found: list[Any], roots: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    made = [g for g in found if g is not None]
    replace = dict(zip(roots, inputs, strict=True))
    new = iter(clone_replace(made, replace=replace, rebuild_strict=False) if made else [])
    return [None if g is None else next(new) for g in found]


def _as(v: Any, g: Any) -> Any:
    """A derivative with the type of what it belongs to."""
    if g is None or isinstance(g.type, NullType):
        return g
    if isinstance(g.type, DisconnectedType):
        return None
    return v.type.filter_variable(g.astype(v.type.dtype))


def zeros_for(v: Any) -> Any:
    """A derivative of ``v`` that is zero."""
    return v.type.filter_variable(v.zeros_like())


def finished(
    op: Any, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any], found: Any
) -> list[Any]:
    """What a pullback returns: disconnected just where ``op.connection_pattern`` says so.

    PyTensor checks that the two agree. An input that is connected, but that no cotangent arrives
    at (an integer, a step that lost it on the way), has zeros. One that is connected to an output
    of which nobody knows the cotangent has none either.
    """
    pattern = op.connection_pattern(outputs[0].owner)
    result = []
    for x, g, row in zip(inputs, found, pattern, strict=True):
        unknown = [d for c, d in zip(row, cotangents, strict=True) if c and is_null(d)]
        if unknown:
            result.append(unknown[0])
        elif not any(c and is_connected(d) for c, d in zip(row, cotangents, strict=True)):
            result.append(disconnected_type())
        elif g is not None:
            result.append(g)
        else:
            result.append(x.zeros_like(dtype=x.type.dtype if is_float(x) else config.floatX))
    return result
