"""Helpers of graph derivatives: which variables have one, and how a missing one is represented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.configdefaults import config
from pytensor.gradient import DisconnectedType, disconnected_type, grad_not_implemented
from pytensor.graph.basic import Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.op import Op, io_connection_pattern
from pytensor.sparse.type import SparseTensorType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import describe
from loopax.ir.derivatives.sparse_types import converted
from loopax.ir.replace import replaced

_FLOATS = ("float16", "float32", "float64", "complex64", "complex128")


def is_float(v: Variable) -> bool:
    """Whether ``v`` can have a derivative: a tensor of floats."""
    return getattr(v.type, "dtype", "") in _FLOATS and hasattr(v.type, "ndim")


def is_sparse(v: Variable) -> bool:
    return isinstance(v.type, SparseTensorType)


def is_list_of_floats(v: Variable) -> bool:
    """Whether ``v`` is a typed list of floats, for which PyTensor has no rules."""
    element = v.type
    while isinstance(element, TypedListType):
        element = element.ttype
    return element is not v.type and getattr(element, "dtype", "") in _FLOATS


def is_connected(cotangent: Variable | None) -> bool:
    """Whether a cotangent, or tangent, is known and connected."""
    return cotangent is not None and not isinstance(cotangent.type, DisconnectedType | NullType)


def is_null(cotangent: Variable | None) -> bool:
    """Whether a cotangent is PyTensor's null: unknown."""
    return cotangent is not None and isinstance(cotangent.type, NullType)


def at_inputs(
    derive: Callable[..., list[Any]],
    build: Callable[[list[Any]], Sequence[Variable]],
    inputs: Sequence[Variable],
    seeds: Sequence[Variable],
) -> list[Any]:
    """`pull_back` or `push_forward` through ``build(inputs)``, where inputs need not be roots.

    Each input that can have a derivative is replaced by a root, since one may depend on another. The
    others stay: their ancestors determine, for instance, the bound of a number of steps.
    """
    roots = [v.type() if is_float(v) else v for v in inputs]
    derivatives = derive(roots, build(list(roots)), seeds)
    results = iter(
        replaced([g for g in derivatives if g is not None], dict(zip(roots, inputs, strict=True)))
    )
    return [None if g is None else next(results) for g in derivatives]


def connections(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[list[bool]]:
    """``[input][output]``: whether a derivative can go from one to the other."""
    pattern = io_connection_pattern(list(inputs), list(outputs))
    carriers = [_carries(out) for out in outputs]
    return [
        [_carries(v) and bool(p) and c for p, c in zip(row, carriers, strict=True)]
        for v, row in zip(inputs, pattern, strict=True)
    ]


def _carries(v: Variable) -> bool:
    return hasattr(v.type, "ndim") or is_list_of_floats(v)


def closure(
    members: set[int], candidates: Sequence[int], joins: Callable[[int, set[int]], bool]
) -> list[int]:
    """The closure of ``members``, adding ``candidates`` that join them, in any number of rounds."""
    while True:  # terminates: the set only grows
        added = {k for k in candidates if joins(k, members)} - members
        if not added:
            return sorted(members)
        members = members | added


def as_derivative_of(v: Variable, g: Any) -> Any:
    """Convert ``g``, a derivative of ``v``, to the type of ``v``.

    Raises `NotImplementedError` if it is complex, and ``v`` is real: PyTensor has no forward mode
    through such an op.
    """
    if g is None or isinstance(g.type, NullType):
        return g
    if isinstance(g.type, DisconnectedType):
        return None
    if g.type.dtype.startswith("complex") and not v.type.dtype.startswith("complex"):
        raise NotImplementedError(
            f"PyTensor has no derivative of {describe(v)}, real numbers made of complex ones. JAX has "
            'one: differentiate the function that jaxify(..., loops="xla") returns.'
        )
    g = converted(g, v)
    return v.type.filter_variable(g if g.type.dtype == v.type.dtype else g.astype(v.type.dtype))


def zeros_for(v: Any) -> Any:
    return v.type.filter_variable(v.zeros_like())


def unknown_through_list(op: Op, inputs: Sequence[Variable], v: Variable) -> Any:
    """The unknown cotangent of a typed list, or of a value behind one: PyTensor has no rule."""
    return grad_not_implemented(
        op,
        list(inputs).index(v),
        v,
        "Typed lists have no gradient in PyTensor. Stack the rows, pt.stack(rows), or differentiate what "
        "jaxify makes of the program: jax.grad(jaxify(...)).",
    )


def pytensor_cotangents(
    op: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    cotangents: Sequence[Variable],
    in_cotangents: Sequence[Variable | None],
) -> list[Any]:
    """The results of a pullback, disconnected exactly where ``op.connection_pattern`` says so.

    PyTensor checks that the two agree. A connected input that gets no cotangent (an integer, or one lost in
    a step) gets zeros. An input that is connected to an output with an unknown cotangent has an unknown
    one.
    """
    pattern = op.connection_pattern(outputs[0].owner)
    result = []
    for x, g, row in zip(inputs, in_cotangents, pattern, strict=True):
        unknown = [d for c, d in zip(row, cotangents, strict=True) if c and is_null(d)]
        if unknown:
            result.append(unknown[0])
        elif not any(c and is_connected(d) for c, d in zip(row, cotangents, strict=True)):
            result.append(disconnected_type())
        elif g is not None:
            result.append(g)
        elif is_list_of_floats(x):
            result.append(unknown_through_list(op, inputs, x))
        else:
            result.append(x.zeros_like(dtype=x.type.dtype if is_float(x) else config.floatX))
    return result
