"""Cotangents that are known to be zero outside of a support: where a ``switch`` takes its other branch.

    y = switch(c, f(x), 0)         x̄ = switch(c, ȳ f'(x), 0)         not  switch(c, ȳ, 0) f'(x)

Both are equal where ``f'(x)`` is finite. Where it is not, as of ``sqrt`` at 0, or where ``x`` is a gap in
data, 0 is right, and the second is NaN. So a cotangent travels back through elementwise functions as it
is, with the tests of the switches behind it, and is set to zero outside of its support where it is added
to something else or leaves these functions. Fewer switches are computed, too. In JAX's operations, which
JAX differentiates, `loopax.jax_backend.ops.guard` has this effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Structure, facts_of
from loopax.facts.axes import axes_along_input
from loopax.facts.elementwise import is_elementwise
from loopax.facts.families import ndim_of
from loopax.facts.scalars import is_real
from loopax.ir.derivatives.inner_gradients import is_connected
from loopax.ir.derivatives.rules.elementwise import summed
from loopax.ir.derivatives.unbounded_slopes import UnboundedSlopes
from loopax.ir.replace import replaced

# The cotangents of a node's inputs from those of its outputs.
Pull = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]

# Linear ops whose pullback adds up no entries of a cotangent.
_NOT_ADDED_UP = DimShuffle, Sum, CheckAndRaise, SpecifyShape


def is_move(node: Apply) -> bool:
    """Whether ``node`` moves entries, or adds some of them up: its pullback tells which ones it reads."""
    op = node.op
    if isinstance(op, _NOT_ADDED_UP):
        return False
    is_running_sum = isinstance(op, CumOp) and op.mode == "add"
    return is_running_sum or facts_of(op).structure is Structure.MOVES


@dataclass(frozen=True)
class Support:
    """The elements of an array at which all ``tests``, bools that broadcast to it, have these values.

    Several tests are one, and that of the last ``switch``. ``has_gaps`` is whether they may say where data
    are missing.
    """

    tests: tuple[tuple[Any, bool], ...] = ()
    has_gaps: bool = False

    @classmethod
    def of_test(cls, test: Any, has_gaps: bool) -> Support:
        return cls(((test, True),), has_gaps)

    @cached_property
    def test(self) -> Any:
        """Whether an element is in the support."""
        return reduce(pt.and_, (c if is_true else pt.invert(c) for c, is_true in self.tests))

    def within(self, c: Any, is_true: bool, tells_of_gaps: bool) -> Support:
        """The part of it where ``c``, a condition of a ``switch``, is true, or false."""
        test = (c if c.type.dtype == "bool" else pt.neq(c, 0)), is_true
        if test in self.tests:
            return self
        others = self.tests if len(self.tests) < 2 else ((self.test, True),)
        return Support((*others, test), self.has_gaps or tells_of_gaps)

    def masked(self, g: Any) -> Any:
        """``g``, with zeros outside of the support."""
        if not self.tests:
            return g
        zero = pt.zeros((), dtype=g.type.dtype)
        if len(self.tests) == 1:
            ((c, is_true),) = self.tests
            return pt.switch(c, g, zero) if is_true else pt.switch(c, zero, g)
        return pt.switch(self.test, g, zero)

    def projected(self, axes: Sequence[int]) -> Support:
        """The positions along the other axes at which any element is in it; ``axes`` have length 1 then."""
        if all(c.type.broadcastable[k] for c, _ in self.tests for k in axes):
            return self
        return Support.of_test(self.test.any(axis=tuple(axes), keepdims=True), self.has_gaps)


EVERYWHERE = Support()


class Supported(NamedTuple):
    """A cotangent: ``value`` in its support, and zero elsewhere, whatever ``value`` is there.

    ``is_dense`` is whether ``value`` is zero there as well.
    """

    value: Any
    support: Support = EVERYWHERE
    is_dense: bool = False

    @property
    def dense(self) -> Any:
        """It as one variable."""
        return self.value if self.is_dense else self.support.masked(self.value)

    def kept(self, x: Any, slopes: UnboundedSlopes) -> Supported:
        """It as a cotangent of ``x``, without a support that nobody needs."""
        is_needed = not self.is_dense or slopes.are_behind(x, self.support.has_gaps)
        return self if is_needed else Supported(self.value)

    def plus(self, other: Supported) -> Supported:
        """The sum of two cotangents of a variable."""
        a, b = self.support.tests, other.support.tests
        has_gaps = self.support.has_gaps or other.support.has_gaps
        if a == b:
            is_dense = self.is_dense and other.is_dense
            return Supported(self.value + other.value, self.support, is_dense)
        if a and b and a[:-1] == b[:-1] and a[-1] == (b[-1][0], not b[-1][1]):
            pair = (self.value, other.value) if a[-1][1] else (other.value, self.value)
            return Supported(pt.switch(a[-1][0], *pair), Support(a[:-1], has_gaps))
        total = self.dense + other.dense
        if not a or not b:
            return Supported(total)
        either = pt.or_(self.support.test, other.support.test)
        return Supported(total, Support.of_test(either, has_gaps), is_dense=True)


def pull_back_supported(
    node: Apply, cotangents: Sequence[Supported | None], pull: Pull, slopes: UnboundedSlopes
) -> Any:
    """The cotangents of a node's inputs, with their supports; None where one of its outputs has none.

    Parameters
    ----------
    node
        A node of the graph that ``slopes`` knows.
    cotangents
        Those of its outputs; None where none arrives.
    pull
        The rule of its op.

    Returns
    -------
    One that is not connected is as ``pull`` returns it.
    """
    y = node.outputs[0]
    (g, *others) = cotangents
    if others or g is None:
        return _through_several(node, cotangents, pull)
    if not is_real(y) or not isinstance(y.type, DenseTensorType):
        return None
    if is_elementwise(node, ps.Switch):
        return _through_switch(node, g, slopes.tells_of_gaps(node.inputs[0]))
    if not g.support.tests:
        return None
    is_bounded = not (slopes.reads_values if g.support.has_gaps else slopes.is_singular)(node)
    if is_elementwise(node):
        return _through_function(node, g, pull, g.is_dense and is_bounded)
    if is_move(node):
        count = pt.second(y, g.support.test.astype(y.type.dtype))
        supports = [
            Support.of_test(pt.gt(n, 0), g.support.has_gaps) if is_connected(n) else EVERYWHERE
            for n in pull(node.inputs, [count])
        ]
    else:
        supports = [_of_input(node, k, g.support) for k in range(len(node.inputs))]
    inputs, is_contraction = node.inputs, facts_of(node.op).structure is Structure.CONTRACTS
    if is_contraction and not is_bounded:  # each entry of a slope is read by entries of all rows
        inputs = [s.masked(v) if is_real(v) else v for v, s in zip(inputs, supports, strict=True)]
        is_bounded = True
    if isinstance(node.op, _NOT_ADDED_UP):  # what is masked later need not be masked now
        values, is_dense = pull(inputs, [g.value]), g.is_dense
    else:
        values, is_dense = pull(inputs, [g.dense]), is_bounded
    return _with_supports(values, supports, is_dense)


def _through_several(node: Apply, cotangents: Sequence[Supported | None], pull: Pull) -> Any:
    """Through an op of several outputs: where nothing of any is needed, nothing of an input is."""
    arrived = [g for g in cotangents if g is not None]
    if not all(g.support.tests for g in arrived):
        return None
    is_needed = reduce(pt.or_, (g.support.test.any() for g in arrived))
    has_gaps = any(g.support.has_gaps for g in arrived)
    values = pull(node.inputs, [None if g is None else g.dense for g in cotangents])
    tests = [is_needed.dimshuffle(["x"] * ndim_of(x)) for x in node.inputs]
    return _with_supports(values, [Support.of_test(c, has_gaps) for c in tests], is_dense=False)


def _with_supports(values: Sequence[Any], supports: Sequence[Support], is_dense: bool) -> list[Any]:
    return [
        Supported(v, s, is_dense) if v is not None and isinstance(v.type, DenseTensorType) else v
        for v, s in zip(values, supports, strict=True)
    ]


def _through_switch(node: Apply, g: Supported, tells_of_gaps: bool) -> list[Any]:
    c, *branches = node.inputs
    known: Any = np.unique(c.data.astype(bool)) if isinstance(c, Constant) else ()
    results: list[Any] = [None]
    for v, is_true in zip(branches, (True, False), strict=True):
        if not is_real(v) or (len(known) == 1 and known[0] != is_true):
            results.append(None)
        else:
            part = g.support if len(known) == 1 else g.support.within(c, is_true, tells_of_gaps)
            share = Supported(g.value, part, g.is_dense and part is g.support)
            results.append(_summed(share, v, node.outputs[0].type))
    return results


def _through_function(node: Apply, g: Supported, pull: Pull, is_dense: bool) -> list[Any]:
    """Through an elementwise function: the cotangents before they are summed where inputs are broadcast.

    So the rule is applied to inputs of the output's shape, which the real ones replace. A constant has no
    cotangent, and a rule may want to know its value.
    """
    y = node.outputs[0].type
    whole = [
        y.clone(dtype=v.type.dtype)()
        if is_real(v) and not isinstance(v, Constant) and v.type.broadcastable != y.broadcastable
        else v
        for v in node.inputs
    ]
    results = list(pull(whole, [g.value]))
    places = [k for k, h in enumerate(results) if is_connected(h)]
    own = replaced(
        [results[k] for k in places],
        dict(zip(whole, node.inputs, strict=True)),
        roots=[g.value, *node.inputs, *node.outputs],
    )
    for k, value in zip(places, own, strict=True):
        results[k] = _summed(Supported(value, g.support, is_dense), node.inputs[k], y)
    return results


def _summed(g: Supported, x: Any, y: Any) -> Supported:
    """The cotangent of ``x`` from one that it has where it is broadcast to the type ``y``."""
    axes = [k for k, (n, m) in enumerate(zip(x.type.shape, y.shape, strict=True)) if n == 1 != m]
    if not axes:
        return g
    if all(g.value.type.broadcastable[k] for k in axes):  # the zeros of a function that is constant
        return Supported(g.value, g.support.projected(axes), g.is_dense)
    return Supported(summed(g.dense, x), g.support.projected(axes), is_dense=True)


def _of_input(node: Apply, k: int, support: Support) -> Support:
    """The support of the cotangent of input ``k`` from that of the output's.

    A position of an axis is in it if any entry of the output that follows from it is.
    """
    x: Any = node.inputs[k]
    kept = axes_along_input(node, k)
    dropped = [n for n in range(node.outputs[0].type.ndim) if n not in kept]
    places = {axis: n for n, axis in kept.items()}
    order = [places.get(n, "x") for n in range(ndim_of(x))]
    projected = support.projected(dropped)
    tests = tuple((c.dimshuffle(order), is_true) for c, is_true in projected.tests)
    return Support(tests, support.has_gaps)
