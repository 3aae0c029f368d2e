"""JAX's derivatives of functions with a kink and of checks.

At such points PyTensor and JAX choose different elements of the subdifferential: for ``maximum(x, y)`` at
``x == y`` 1 for ``x``, or one half for each; for ``abs(x)`` at 0 it is 0, or 1; for ``max(x)`` with equal
elements 1 for each, or 1 shared among them. Native code must not change ``jax.grad``. So these
ops are replaced by equal ones with JAX's derivatives (the JVP rules of ``max_p``, ``min_p``, ``abs_p`` and
``reduce_max_p`` in `jax.lax`) before a graph is differentiated, and restored afterwards.

A check is applied to its derivatives too, or a program that reads only these would run without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.null_type import NullType
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Abs, Maximum, Minimum, ScalarVariable
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Max, Min
from pytensor.tensor.variable import TensorVariable

from loopax.lowering.bodies import replace_nodes


def with_jax_kinks(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> FunctionGraph:
    """Copy a graph, bodies of loops included, with JAX's derivatives."""
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    _exchange(graph, _JAX_FORMS)
    return graph


def with_own_kinks(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> FunctionGraph:
    """Copy a derivative of a graph `with_jax_kinks` back to PyTensor's own ops."""
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    _exchange(graph, _OWN_FORMS)
    return graph


def _exchange(graph: FunctionGraph, forms: dict[type, Any]) -> None:
    """Replace each op that has a counterpart in ``forms``, in place."""
    replace_nodes(
        graph,
        lambda op: _exchanged(op, forms) is not None,
        lambda node: _exchanged(node.op, forms)(*node.inputs),
        "kinks",
    )


# -- the ops -----------------------------------------------------------------------------------------


class _HalvesAtTies:
    """The extremum of two numbers, which gets the cotangent; equal numbers get one half each."""

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        (x, y), (z,), (g,) = inputs, outputs, cotangents

        def share(mine: ScalarVariable, other: ScalarVariable) -> Any:
            if mine.type not in ps.float_types:
                return mine.zeros_like(dtype="float64")
            chosen_share = ps.switch(ps.eq(other, z), _number(0.5, g), _number(1.0, g))
            return g * ps.switch(ps.eq(mine, z), chosen_share, _number(0.0, g))

        return [share(x, y), share(y, x)]


class _JaxMaximum(_HalvesAtTies, Maximum):
    pass


class _JaxMinimum(_HalvesAtTies, Minimum):
    pass


class _JaxAbs(Abs):
    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> Any:
        (x,), (g,) = inputs, cotangents
        if x.type not in ps.float_types:
            return super().pullback(inputs, outputs, cotangents)
        return [ps.switch(ps.ge(x, _number(0.0, x)), g, -g)]


def _number(value: float, like: Variable) -> Any:
    return ps.constant(value, dtype=like.type.dtype)


class _SharedAmongEqual:
    """A reduction to an extremum that shares its cotangent among all elements equal to it."""

    axis: Any

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> Any:
        (x,), (g,) = inputs, cotangents
        return [pt.expand_dims(g, self._axes(x)) * self._shares(x, outputs[0])]

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> Any:
        (x,), (t,) = inputs, tangents
        if isinstance(t.type, DisconnectedType):
            return [disconnected_type()]
        return [(t * self._shares(x, outputs[0])).sum(axis=self._axes(x))]

    def _axes(self, x: TensorVariable) -> tuple[int, ...]:
        return tuple(range(x.type.ndim)) if self.axis is None else tuple(self.axis)

    def _shares(self, x: TensorVariable, y: TensorVariable) -> Any:
        axes = self._axes(x)
        chosen = pt.eq(x, pt.expand_dims(y, axes)).astype(x.type.dtype)
        return chosen / chosen.sum(axis=axes, keepdims=True)


class _JaxMax(_SharedAmongEqual, Max):
    pass


class _JaxMin(_SharedAmongEqual, Min):
    pass


class _CheckedThrough(CheckAndRaise):
    """The check ``own``, applied to its derivatives as well."""

    __props__ = ("own",)  # type: ignore[assignment]  # PyTensor's type of it is that of its own two

    def __init__(self, own: CheckAndRaise) -> None:
        self.own = own
        super().__init__(own.exc_type, own.msg)

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> Any:
        value_cotangent, *condition_cotangents = super().pullback(inputs, outputs, cotangents)
        return [self._checked(value_cotangent, inputs), *condition_cotangents]

    def pushforward(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Any]
    ) -> Any:
        return [self._checked(tangents[0], inputs)]

    def _checked(self, derivative: Variable, inputs: Sequence[Variable]) -> Any:
        is_one = not isinstance(derivative.type, DisconnectedType | NullType)
        return self(derivative, *inputs[1:]) if is_one else derivative


# Each class with the class of JAX's derivative, and the reverse.
_JAX_FORMS: dict[type, Any] = {
    Maximum: _JaxMaximum,
    Minimum: _JaxMinimum,
    Abs: _JaxAbs,
    Max: _JaxMax,
    Min: _JaxMin,
}
_OWN_FORMS: dict[type, Any] = {v: k for k, v in _JAX_FORMS.items()}


def _exchanged(op: Op, forms: dict[type, Any]) -> Any:
    """The counterpart of ``op``; None where it has none."""
    if isinstance(op, _CheckedThrough):
        return op.own if forms is _OWN_FORMS else None
    if isinstance(op, CheckAndRaise):
        return _CheckedThrough(op) if forms is _JAX_FORMS else None
    if isinstance(op, Elemwise):
        scalar: Any = op.scalar_op
        if type(scalar) in forms:
            same_outputs = getattr(scalar, "output_types_preference", None)
            return Elemwise(forms[type(scalar)](same_outputs, scalar.name))
    elif type(op) in forms:
        options = {k: getattr(op, k) for k in ("axis", "initial") if hasattr(op, k)}
        return forms[type(op)](**options)
    return None
