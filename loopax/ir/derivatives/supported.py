"""Cotangents that are known to be zero outside of a support: where a ``switch`` takes its other branch.

    y = switch(c, f(x), 0)         x̄ = switch(c, ȳ f'(x), 0)         not  switch(c, ȳ, 0) f'(x)

Both are equal where ``f'(x)`` is finite. Where it is not, as of ``sqrt`` at 0, or where ``x`` is a gap in
data, 0 is right, and the second is NaN. So a cotangent travels back through elementwise functions as it
is, with the tests of the switches behind it, and is set to zero outside of its support where it is added
to something else or leaves these functions. Fewer switches are computed, too. In JAX's operations, which
JAX differentiates, `loopax.lowering.derivatives.guarded_branches` has this effect.
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
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Structure, facts_of
from loopax.facts.axes import axes_along_input, unshuffled
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

    Several tests are one, and that of the last ``switch``. A test with one element tells of all elements.
    ``has_gaps`` is whether they may say where data are missing.
    """

    tests: tuple[tuple[Any, bool], ...] = ()
    has_gaps: bool = False

    @classmethod
    def of_test(cls, test: Any, has_gaps: bool) -> Support:
        return cls(((test, True),), has_gaps)

    @property
    def is_whole(self) -> bool:
        """Whether all elements are in it, or none."""
        return all(_has_one_element(c) for c, _ in self.tests)

    @cached_property
    def test(self) -> Any:
        """Whether an element is in the support."""
        tests = ((_broadcasting(c), is_true) for c, is_true in self.tests)
        return reduce(pt.and_, (c if is_true else pt.invert(c) for c, is_true in tests))

    def within(self, c: Any, is_true: bool, tells_of_gaps: bool) -> Support:
        """The part of it where ``c``, a condition of a ``switch``, is true, or false."""
        c = unshuffled(c) if _has_one_element(c) else c
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
            return pt.switch(_broadcasting(c), *((g, zero) if is_true else (zero, g)))
        return pt.switch(self.test, g, zero)

    def union(self, other: Support) -> Support:
        """The elements that are in either."""
        a, b = self.tests, other.tests
        has_gaps = self.has_gaps or other.has_gaps
        if a == b[: len(a)] or b == a[: len(b)]:
            return Support(min(a, b, key=len), has_gaps)
        if self.is_complement(other):
            return Support(a[:-1], has_gaps)
        return Support.of_test(pt.or_(self.test, other.test), has_gaps)

    def is_complement(self, other: Support) -> bool:
        """Whether the two are all that some tests leave, and differ in the value of a last one."""
        a, b = self.tests, other.tests
        return bool(a and b) and a[:-1] == b[:-1] and a[-1] == (b[-1][0], not b[-1][1])

    def projected(self, axes: Sequence[int]) -> Support:
        """The positions along the other axes at which any element is in it; ``axes`` have length 1 then."""
        parts = [c for c, _ in self.tests if not _has_one_element(c)]
        if all(c.type.broadcastable[k] for c in parts for k in axes):
            return self
        return Support.of_test(self.test.any(axis=tuple(axes), keepdims=True), self.has_gaps)


EVERYWHERE = Support()


def _has_one_element(c: Any) -> bool:
    return all(c.type.broadcastable)


def _broadcasting(c: Any) -> Any:
    """A test that broadcasts to arrays of every rank that it may be for."""
    return c.dimshuffle() if c.type.ndim and _has_one_element(c) else c


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
        a, b = self.support, other.support
        if a.tests == b.tests:
            is_dense = self.is_dense and other.is_dense
            return Supported(self.value + other.value, a.union(b), is_dense)
        if a.is_complement(b):
            ((c, is_true),) = a.tests[-1:]
            pair = (self.value, other.value) if is_true else (other.value, self.value)
            return Supported(pt.switch(_broadcasting(c), *pair), a.union(b))
        either = a.union(b)
        return Supported(self.dense + other.dense, either, is_dense=bool(either.tests))


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
    supports = supports_of_inputs(node, g.support, pull)
    inputs, is_contraction = node.inputs, facts_of(node.op).structure is Structure.CONTRACTS
    # Each entry of a slope is read by entries of all rows.
    if is_contraction and not is_bounded and not g.support.is_whole:
        inputs = [s.masked(v) if is_real(v) else v for v, s in zip(inputs, supports, strict=True)]
        is_bounded = True
    if isinstance(node.op, _NOT_ADDED_UP):  # what is masked later need not be masked now
        values, is_dense = pull(inputs, [g.value]), g.is_dense
    else:
        values, is_dense = pull(inputs, [g.dense]), is_bounded
    return _with_supports(values, supports, is_dense)


def supports_of_inputs(node: Apply, support: Support, pull: Pull) -> list[Support]:
    """The supports of the cotangents of a node's inputs from that of its one output.

    Parameters
    ----------
    node
        A node that is not elementwise.
    pull
        The rule of its op.
    """
    if not is_move(node):
        if support.is_whole:
            return [support] * len(node.inputs)
        return [_of_input(node, k, support) for k in range(len(node.inputs))]
    y: Any = node.outputs[0]
    count = pt.second(y, support.test.astype(y.type.dtype))
    return [
        Support.of_test(pt.gt(n, 0), support.has_gaps) if is_connected(n) else EVERYWHERE
        for n in pull(node.inputs, [count])
    ]


def _through_several(node: Apply, cotangents: Sequence[Supported | None], pull: Pull) -> Any:
    """Through an op of several outputs: where nothing of any is needed, nothing of an input is."""
    arrived = [g for g in cotangents if g is not None]
    if not all(g.support.tests for g in arrived):
        return None
    values = pull(node.inputs, [None if g is None else g.dense for g in cotangents])
    return _with_supports(
        values, all_or_nothing(node, [g.support for g in arrived]), is_dense=False
    )


def all_or_nothing(node: Apply, supports: Sequence[Support]) -> list[Support]:
    """The supports of the cotangents of a node's inputs, all of which any element of an output needs.

    An entry of a batch is needed by the elements of that entry alone.
    """
    op = node.op
    batch = list(range(op.batch_ndim(node))) if isinstance(op, Blockwise) else []

    def of_entries(support: Support) -> Support:
        if support.is_whole:
            return support
        own = tuple(range(len(batch), support.test.type.ndim))
        return Support.of_test(support.test.any(axis=own), support.has_gaps)

    entries = reduce(Support.union, map(of_entries, supports))
    if entries.is_whole:
        return [entries] * len(node.inputs)
    results = []
    for x in node.inputs:
        shared = [k for k in batch if x.type.broadcastable[k]]
        order = [*batch, *["x"] * (ndim_of(x) - len(batch))]
        test = entries.projected(shared).test.dimshuffle(order)
        results.append(Support.of_test(test, entries.has_gaps))
    return results


def _with_supports(values: Sequence[Any], supports: Sequence[Support], is_dense: bool) -> list[Any]:
    return [
        Supported(v, s, is_dense) if v is not None and isinstance(v.type, DenseTensorType) else v
        for v, s in zip(values, supports, strict=True)
    ]


def of_branches(node: Apply, support: Support, tells_of_gaps: bool) -> list[Support | None]:
    """The supports of the cotangents of the inputs of a ``switch``; None where there is no cotangent."""
    c, *branches = node.inputs
    return [
        None,
        *(
            support.within(c, is_true, tells_of_gaps) if is_real(v) else None
            for v, is_true in zip(branches, (True, False), strict=True)
        ),
    ]


def _through_switch(node: Apply, g: Supported, tells_of_gaps: bool) -> list[Any]:
    c, y = node.inputs[0], node.outputs[0].type
    supports = of_branches(node, g.support, tells_of_gaps)
    known: Any = np.unique(c.data.astype(bool)) if isinstance(c, Constant) else ()
    if len(known) == 1:  # one branch has the whole cotangent
        supports = [None, g.support if known[0] else None, None if known[0] else g.support]
    return [
        None
        if s is None or not is_real(v)
        else _summed(Supported(g.value, s, g.is_dense and s is g.support), v, y)
        for v, s in zip(node.inputs, supports, strict=True)
    ]


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


def broadcast_axes(x: Any, y: Any) -> list[int]:
    """The axes along which ``x``, an operand of an elementwise op, is broadcast to the type ``y``."""
    return [k for k, (n, m) in enumerate(zip(x.type.shape, y.shape, strict=True)) if n == 1 != m]


def _summed(g: Supported, x: Any, y: Any) -> Supported:
    """The cotangent of ``x`` from one that it has where it is broadcast to the type ``y``."""
    axes = broadcast_axes(x, y)
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
    tests = tuple(
        (c if _has_one_element(c) else c.dimshuffle(order), is_true)
        for c, is_true in projected.tests
    )
    return Support(tests, support.has_gaps)
