"""``Grad``, ``Pullback``, ``Pushforward``, ``Jacobian``: lazy derivatives, not taken yet.

`loopax.ir.derivatives.lazy_grammar` has their inputs, outputs and meaning. The Hessian is the Jacobian of
a function whose body is a `Grad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.variable import TensorVariable

from loopax.facts.linearity import is_affine
from loopax.ir.derivatives.graph_derivatives import gradients, jacobian, pulled_back, pushed_forward
from loopax.ir.derivatives.inner_gradients import (
    is_connected,
    is_float,
    pytensor_cotangents,
    zeros_for,
)
from loopax.ir.derivatives.lazy_grammar import DerivativeGrammar


class Derivative(DerivativeGrammar):
    """A derivative of the graph ``body``.

    Parameters
    ----------
    body
        The function.
    wrt
        The positions of the inputs to differentiate with respect to: tensors of floats.
    name
        For printing.
    """

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[is_float(x) and is_float(y) for y in node.outputs] for x in node.inputs]

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """The cotangents, by a lazy pullback of the derivative itself, which never builds a Hessian."""
        roots, wrt, outs = self._applied(inputs)
        seeds = [_seed(y, g) for y, g in zip(outputs, cotangents, strict=True)]
        products = Pullback.of(roots, inputs, wrt, outs, seeds, self.name)[len(outs) :]
        remaining = iter(products)
        in_cotangents = [next(remaining) if is_float(x) else None for x in inputs]
        return pytensor_cotangents(self, inputs, outputs, cotangents, in_cotangents)

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> list[Any]:
        roots, wrt, outs = self._applied(inputs)
        seeds = [_seed(x, t) for x, t in zip(inputs, tangents, strict=True) if is_float(x)]
        return Pushforward.of(roots, inputs, wrt, outs, seeds, self.name)[len(outs) :]

    def _applied(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Apply this op at fresh roots; return the roots, the float ones among them, and the outputs."""
        roots = [x.type() for x in inputs]
        return roots, [v for v in roots if is_float(v)], self.make_node(*roots).outputs


def _seed(v: TensorVariable, g: Any) -> Any:
    """The tangent or cotangent ``g`` of ``v``; zeros if it is disconnected, or ``v`` is not a float."""
    if is_connected(g) and is_float(v):
        return v.type.filter_variable(g.astype(v.type.dtype))
    return zeros_for(v)


class Grad(Derivative):
    """The value of a float scalar, and its gradient with respect to some inputs.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.ir import Grad
    >>> x, y = pt.dscalar("x"), pt.dscalar("y")
    >>> value, slope = Grad.of([x], [y], [x], [x**3])
    >>> value.eval({y: 2.0}), slope.eval({y: 2.0})
    (array(8.), array(12.))
    """

    def derivatives(
        self, wrt: Sequence[Variable], outputs: Sequence[TensorVariable], seeds: Sequence[Variable]
    ) -> list[Any]:
        return gradients(wrt, outputs)

    @cached_property
    def is_constant(self) -> bool:
        """Whether the gradient is the same at all points, because the function is affine."""
        return is_affine([self.fgraph.inputs[k] for k in self.wrt], self.fgraph.outputs)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        pattern = super().connection_pattern(node)
        for k in self.wrt if self.is_constant else ():
            pattern[k][1:] = [False] * len(self.wrt)
        return pattern

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Variable], cotangents: Sequence[Any]
    ) -> list[Any]:
        """The cotangents, by a pushforward of the full gradient, since the Hessian is symmetric."""
        roots = [x.type() for x in inputs]
        floats = [k for k, x in enumerate(inputs) if is_float(x)]
        full_gradient = self.with_wrt(floats)
        slopes = full_gradient.make_node(*roots).outputs[1:]
        total: list[Any] = [None] * len(floats)
        by_value, *by_slopes = cotangents
        if is_connected(by_value):
            value_slopes = full_gradient.make_node(*inputs).outputs[1:]
            total = [by_value.astype(g.type.dtype) * g for g in value_slopes]
        if any(map(is_connected, by_slopes)):
            seeds = [_seed(inputs[k], g) for k, g in zip(self.wrt, by_slopes, strict=True)]
            wrt = [roots[k] for k in self.wrt]
            products = Pushforward.of(roots, inputs, wrt, slopes, seeds, self.name)[len(slopes) :]
            total = [t if g is None else g + t for g, t in zip(total, products, strict=True)]
        by_position = dict(zip(floats, total, strict=True))
        in_cotangents = [by_position.get(k) for k in range(len(inputs))]
        return pytensor_cotangents(self, inputs, outputs, cotangents, in_cotangents)


class Pullback(Derivative):
    """The outputs, and the transposed Jacobian times a cotangent for each output."""

    def _seeded(self) -> list[Any]:
        return list(self.fgraph.outputs)

    def derivatives(
        self, wrt: Sequence[Variable], outputs: Sequence[TensorVariable], seeds: Sequence[Variable]
    ) -> list[Any]:
        return pulled_back(wrt, outputs, seeds)


class Pushforward(Derivative):
    """The outputs, and the Jacobian times a tangent for each of ``wrt``."""

    def _seeded(self) -> list[Any]:
        return [self.fgraph.inputs[k] for k in self.wrt]

    def _derived(self) -> list[Any]:
        return [(v,) for v in self.fgraph.outputs]

    def derivatives(
        self,
        wrt: Sequence[TensorVariable],
        outputs: Sequence[TensorVariable],
        seeds: Sequence[Variable],
    ) -> list[Any]:
        return pushed_forward(wrt, outputs, seeds)


class Jacobian(Derivative):
    """The outputs, and a block for each output and each of ``wrt``."""

    def _derived(self) -> list[Any]:
        return [(y, self.fgraph.inputs[k]) for y in self.fgraph.outputs for k in self.wrt]

    def derivatives(
        self,
        wrt: Sequence[TensorVariable],
        outputs: Sequence[TensorVariable],
        seeds: Sequence[Variable],
    ) -> list[Any]:
        # The Jacobian of a gradient is square, and a pushforward is cheaper than a pullback.
        forward = all(v.owner and isinstance(v.owner.op, Grad) for v in self.fgraph.outputs)
        return [block for row in jacobian(wrt, outputs, forward or None) for block in row]
