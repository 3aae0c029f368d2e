"""Exponentials of a matrix that a loop adds a vector to, as products of few exponentials.

    scan(lambda a: log(sum(exp(a[:, None] + c - m))) + m)     where m = max(a[:, None] + c)
    ->  e = exp(c - max(c));  scan(lambda a: log(dot(exp(a - max(a)), e) * exp(d)) + m)
        where d = max(a) + max(c) - m

The exponential of a sum is a product of three factors: of the terms that no step changes, whose
exponentials leave the loop, of the terms that vary along the axes of the maximum, and of the terms that
do not. For ``n`` states of a hidden Markov model these are ``2 n`` exponentials in place of ``n ** 2``.

Accuracy, with `f` for `_FARTHEST`: the greatest exponent along the axes of ``m`` is 0, so a sum of the
exponentials is at least 1. The first two factors are at most 1, and ``d``, the distance of the maximum from
the maxima of the parts, is at least 0 up to rounding. Where ``d < f``, the product underflows only for
exponentials below ``exp(-408)``, or ``exp(-47)`` in float32, on which no such sum depends. Other
readers, such as the weights of a gradient, may depend on these; there the exponents of both factors have to
be above ``-f``, so that nothing underflows, or below ``-4 f``, so that the exponential is 0 in any form.
Otherwise, and for NaN, a branch computes the exponentials as they were.

Condition: the exponent is ``y - max(y)``, ``y`` has a term that no step changes, and there are at least
`_LEAST` exponentials, or fewer than `_MOST_CALLS` of which `_LEAST_SAVED` are saved. With 12 states the
step of a hidden Markov model took 143 ns instead of 220, with 16 190 instead of 346 and with 48 300
instead of 1,870; with 4 to 8, vector code computes all exponentials in the time of the branch, and with 3,
where each is a call of the C library, it took 48 instead of 62. With 3 states a gradient whose weights
read the exponentials too took 1.1x as long, and keeps them.

In the literature: the forward algorithm with scaling (Rabiner 1989), chosen in each step; loop-invariant
code motion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.math import Sum

from loopax.facts.elementwise import is_elementwise
from loopax.facts.families import normalized
from loopax.ir import Cond, Scan
from loopax.ir.ops.greatest import greatest
from loopax.ir.replace import replaced
from loopax.lowering.analysis.shifted_terms import own_maxima, terms_of
from loopax.lowering.bodies import except_rare, map_bodies
from loopax.lowering.open_loop import OpenLoop, replace_outputs

_LEAST = 80  # exponentials of a matrix
# Those of a small matrix of known size are calls of the C library: of 3 by 3 states 9, and as factors 6.
_MOST_CALLS, _LEAST_SAVED = 12, 3
# Less than half of the exponent at which `exp` underflows.
_FARTHEST = {"float32": 40.0, "float64": 300.0}


def factor_exponentials(graph: FunctionGraph) -> None:
    """Run the pass on the loops of ``graph``, in place, and on the loops in their bodies."""
    map_bodies(graph, factor_exponentials, except_rare(graph))
    for node in graph.toposort():
        op: Any = node.op
        if (
            isinstance(op, Scan)
            and op.options.truncate_gradient < 0  # nothing leaves such a loop
            and any(map(_is_exponential, op.fgraph.apply_nodes))
            and (new := _factored(node))
        ):
            replace_outputs(graph, new, "factor_exponentials")


def _is_exponential(node: Apply) -> bool:
    v: Any = node.outputs[0]
    return is_elementwise(node, ps.Exp) and v.type.ndim > 1 and v.type.dtype in _FARTHEST


def _factored(node: Apply) -> dict[Any, Any]:
    """Map the outputs of the loop ``node`` to outputs of a loop with fewer exponentials; empty if none."""
    loop = OpenLoop.of(node)
    original = outputs = loop.outputs()
    consts = [c.inner for c in loop.consts]
    # It terminates: each round removes a reader of an exponential, and those of its factors do not qualify.
    while (change := _first_change(outputs, consts)) is not None:
        outputs = replaced(outputs, dict([change]))
    if outputs is original:
        return {}
    loop.set_outputs(outputs)
    return loop.close()


def _first_change(outputs: Sequence[Any], consts: Sequence[Variable]) -> tuple[Any, Any] | None:
    """A value of the step that reads an exponential, and what replaces it; None if no value does."""
    nodes = list(toposort(outputs))
    fixed = {*consts}
    for node in nodes:
        if all(isinstance(v, Constant) or v in fixed for v in node.inputs):
            fixed.update(node.outputs)
    for node in filter(_is_exponential, nodes):
        factors = _factors(node.inputs[0], fixed)
        if factors is not None and (factors.are_many or _is_summed_alone(node, outputs, nodes)):
            reader = min(factors.readers(node.outputs[0], nodes), key=_Reader.rank)
            return reader.value, factors.replacement(reader)
    return None


def _is_summed_alone(power: Apply, outputs: Sequence[Any], nodes: Sequence[Apply]) -> bool:
    """Whether only sums read the exponentials; another reader would have a branch of its own."""
    readers = [node for node in nodes if power.outputs[0] in node.inputs]
    return power.outputs[0] not in outputs and all(isinstance(n.op, Sum) for n in readers)


def _factors(x: Any, fixed: set[Variable]) -> _Factors | None:
    """The factors of ``exp(x)``; None if there are none, or too few elements to gain from them."""
    axes = next(own_maxima(x), None)
    if axes is None:
        return None
    groups: tuple[dict[Any, float], ...] = {}, {}, {}
    for v, c in terms_of(x).items():
        if v.type.dtype != x.type.dtype:
            return None
        is_fixed = v in fixed or isinstance(v, Constant)
        groups[0 if is_fixed else 1 if axes & _varying(v) else 2][v] = c
    constant, inner, outer = groups
    wide, narrow = (set().union(*map(_varying, group)) for group in (constant, inner))
    # Along another axis than those of the maximum, the second factor must be the same.
    if not inner or not outer or not (wide - axes) - narrow or not axes & wide:
        return None
    if None not in x.type.shape and not _is_faster(
        x.type.shape, narrow, set().union(*map(_varying, outer))
    ):
        return None
    return _Factors(x, axes, constant, inner, outer)


def _is_faster(shape: Sequence[int], *axes: set[int]) -> bool:
    """Whether factors that vary along ``axes`` are faster than exponentials of ``shape``."""
    n = math.prod(shape)
    n_saved = n - sum(math.prod(shape[k] for k in some) for some in axes)
    return n >= _LEAST or (n < _MOST_CALLS and n_saved >= _LEAST_SAVED)


def _varying(v: Any) -> set[int]:
    return {k for k, n in enumerate(v.type.shape) if n != 1}


def _total(terms: dict[Any, float], dtype: str) -> Any:
    scaled = [v if c == 1 else v * np.asarray(c, dtype) for v, c in terms.items()]
    return scaled[0] if len(scaled) == 1 else pt.add(*scaled)


class _Reader(NamedTuple):
    """A sum along ``axes`` of the exponentials times ``weights``, or the product itself."""

    value: Any
    weights: tuple[Any, ...] = ()
    axes: tuple[int, ...] = ()

    def rank(self) -> int:
        """The order of replacement: the weights of a reader may depend on an earlier one."""
        return int(bool(self.weights)) if self.axes else 2 + (not self.weights)


class _Factors:
    """The factors of the exponential of ``x``.

    Parameters
    ----------
    axes
        The axes of the maximum that ``x`` contains.
    constant, inner, outer
        The terms of ``x``, each with a factor: those that no step changes, those that vary along ``axes``,
        and the others.
    """

    def __init__(
        self,
        x: Any,
        axes: set[int],
        constant: dict[Any, float],
        inner: dict[Any, float],
        outer: dict[Any, float],
    ) -> None:
        self.x, self.axes, self.dtype = x, axes, x.type.dtype
        n = None if None in x.type.shape else math.prod(x.type.shape)
        self.are_many = n is None or n >= _LEAST
        self.terms = [v for v in {**constant, **inner, **outer} if not isinstance(v, Constant)]
        total, moving = (_total(group, self.dtype) for group in (constant, inner))
        along = tuple(sorted(axes))
        peak, top = greatest(total, along), greatest(moving, along)
        # A column of -inf has the exponentials 0, whatever is subtracted from it.
        is_nothing = pt.eq(peak, np.asarray(-np.inf, self.dtype))
        constants = total - pt.switch(is_nothing, np.zeros((), self.dtype), peak)
        self.fixed, self.moving = pt.exp(constants), pt.exp(moving - top)
        others = _total(outer, self.dtype)
        # Of nothing the distance is 0, or NaN where another part is not finite.
        zero = (top - top) + (others - others)
        self.distance = pt.switch(is_nothing, zero, pt.add(top, peak, others))
        self.farthest = np.asarray(_FARTHEST[self.dtype], self.dtype)
        self.are_close = pt.all(pt.abs(self.distance) < self.farthest)
        if None in x.type.shape:
            self.are_close &= pt.prod(self.fixed.shape) >= _LEAST
        self.are_precise = self.are_close & self._keeps(constants) & self._keeps(moving - top)

    def _keeps(self, exponents: Any) -> Any:
        """Whether no exponential of ``exponents``, times another one, is lost by underflow."""
        return pt.all((exponents > -self.farthest) | (exponents < -4 * self.farthest))

    def readers(self, power: Variable, nodes: Sequence[Apply]) -> list[_Reader]:
        """The exponentials ``power`` and the values of ``nodes`` that are computed from their factors."""
        products = [_Reader(power)]
        for node in nodes:
            weights = tuple(v for v in node.inputs if v is not power)
            if (
                len(weights) == len(node.inputs) - 1
                and is_elementwise(node, ps.Mul)
                and all(v.type.dtype == self.dtype and not self.axes & _varying(v) for v in weights)
            ):
                products.append(_Reader(node.outputs[0], weights))
        sums = [
            _Reader(node.outputs[0], product.weights, axes)
            for product in products
            for node in nodes
            if product.value in node.inputs and (axes := self._axes_of_sum(node))
        ]
        return [*products, *sums]

    def _axes_of_sum(self, node: Apply) -> tuple[int, ...]:
        """The axes of a sum that is one of factors: along those of the maximum, or only along others."""
        if not isinstance(node.op, Sum) or node.outputs[0].type.dtype != self.dtype:
            return ()
        axes = normalized(node.op.axis, self.x.type.ndim)
        is_for_all = self.axes == {*axes} or not {*axes} & (self.axes | _varying(self.moving))
        return axes if is_for_all else ()

    def replacement(self, reader: _Reader) -> Any:
        """Compute the value of ``reader`` from the factors, or as it was where the maxima are far apart."""
        operands = [self.moving, self.fixed, self.distance, *reader.weights, *self.terms]
        inner = {v: v.type() for v in operands}
        moving, fixed, distance = (inner[v] for v in operands[:3])
        weights, axes = [inner[v] for v in reader.weights], reader.axes
        is_sum = self.axes == {*axes}
        # In this order: weights may overflow with the last factor alone, which is as large as exp(f).
        value = moving * fixed
        for factor in [pt.exp(distance), *weights] if not is_sum else []:
            value = value * factor
        if axes:
            value = pt.sum(value, axis=axes)
        for factor in [pt.exp(distance), *weights] if is_sum else []:
            value = value * pt.squeeze(factor, axis=axes)
        old = reader.value
        otherwise = replaced([old], {v: inner[v] for v in [*reader.weights, *self.terms]})
        cond = Cond.from_branches(
            [*inner.values()], [old.type.filter_variable(value)], otherwise, "of close maxima"
        )
        return cond.bind(self.are_close if is_sum else self.are_precise, [*inner])[0]
