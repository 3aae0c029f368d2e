"""Supports: the elements at which a cotangent may be nonzero, given by the tests of switches.

A ``switch`` passes its cotangent to the branch that it takes. From there, an op passes it to the elements
of its inputs on which the elements in the support depend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import SpecifyShape

from loopax.facts import Structure, facts_of
from loopax.facts.axes import axes_along_input, unshuffled
from loopax.facts.families import ndim_of
from loopax.facts.record import UNKNOWN
from loopax.facts.scalars import is_float
from loopax.ir.derivatives.inner_gradients import is_connected
from loopax.ir.derivatives.rules.complex_numbers import pullback_with_conjugates

_NOT_ADDED_UP = DimShuffle, Sum, CheckAndRaise, SpecifyShape


def adds_no_entries(op: Op) -> bool:
    """Whether the pullback of ``op``, which is linear, adds up no entries of a cotangent."""
    return isinstance(op, _NOT_ADDED_UP) and facts_of(op) is not UNKNOWN


def is_move(node: Apply) -> bool:
    """Whether ``node`` moves entries or sums some of them, so that its pullback shows which it reads."""
    op = node.op
    if adds_no_entries(op):
        return False
    is_running_sum = isinstance(op, CumOp) and op.mode == "add"
    return is_running_sum or facts_of(op).structure is Structure.MOVES


@dataclass(frozen=True)
class Support:
    """The elements of an array at which all ``tests``, bools that broadcast to it, have these values.

    At most two tests are kept: the last ``switch``, and all others combined. A test with one element holds
    for all elements. ``has_gaps`` says that a test may show where data are missing.
    """

    tests: tuple[tuple[Any, bool], ...] = ()
    has_gaps: bool = False

    @classmethod
    def of_test(cls, test: Any, has_gaps: bool) -> Support:
        return cls(((test, True),), has_gaps)

    @property
    def is_whole(self) -> bool:
        """Whether the support is all elements or none, because each test has one element."""
        return all(_has_one_element(c) for c, _ in self.tests)

    @cached_property
    def test(self) -> Any:
        """Whether an element is in the support."""
        tests = ((as_number(c), is_true) for c, is_true in self.tests)
        return reduce(pt.and_, (c if is_true else pt.invert(c) for c, is_true in tests))

    def within(self, c: Any, is_true: bool, tells_of_gaps: bool) -> Support:
        """The part of the support where ``c``, a condition of a ``switch``, is true, or false."""
        c = unshuffled(c) if _has_one_element(c) else c
        test = (c if c.type.dtype == "bool" else pt.neq(c, 0)), is_true
        if test in self.tests:
            return self
        others = self.tests if len(self.tests) < 2 else ((self.test, True),)
        return Support((*others, test), self.has_gaps or tells_of_gaps)

    def masked(self, g: Any) -> Any:
        """Set ``g`` to zero outside of the support."""
        if not self.tests:
            return g
        zero = pt.zeros((), dtype=g.type.dtype)
        if len(self.tests) == 1:
            ((c, is_true),) = self.tests
            return pt.switch(as_number(c), *((g, zero) if is_true else (zero, g)))
        return pt.switch(self.test, g, zero)

    def union(self, other: Support) -> Support:
        """The elements that are in either support."""
        a, b = self.tests, other.tests
        has_gaps = self.has_gaps or other.has_gaps
        if a == b[: len(a)] or b == a[: len(b)]:
            return Support(min(a, b, key=len), has_gaps)
        if self.is_complement(other):
            return Support(a[:-1], has_gaps)
        return Support.of_test(pt.or_(self.test, other.test), has_gaps)

    def is_complement(self, other: Support) -> bool:
        """Whether the supports differ only in the value of the last test, which is opposite in the two."""
        a, b = self.tests, other.tests
        return bool(a and b) and a[:-1] == b[:-1] and a[-1] == (b[-1][0], not b[-1][1])

    def projected(self, axes: Sequence[int]) -> Support:
        """Project along ``axes``, which become 1: a position is in if any element along them is."""
        parts = [c for c, _ in self.tests if not _has_one_element(c)]
        if all(c.type.broadcastable[k] for c in parts for k in axes):
            return self
        return Support.of_test(self.test.any(axis=tuple(axes), keepdims=True), self.has_gaps)


EVERYWHERE = Support()


def _has_one_element(c: Any) -> bool:
    return all(c.type.broadcastable)


def as_number(c: Any) -> Any:
    """Drop the axes of a test with one element, so that it broadcasts to any rank."""
    return c.dimshuffle() if c.type.ndim and _has_one_element(c) else c


def supports_of_inputs(node: Apply, support: Support) -> list[Support]:
    """Map the support of the cotangent of a node's one output to supports for its inputs.

    ``node`` is not elementwise.
    """
    if not is_move(node):
        if support.is_whole:
            return [support] * len(node.inputs)
        return [_of_input(node, k, support) for k in range(len(node.inputs))]
    y: Any = node.outputs[0]
    count = pt.second(y, support.test.astype(y.type.dtype))
    return [
        Support.of_test(pt.gt(n, 0), support.has_gaps) if is_connected(n) else EVERYWHERE
        for n in pullback_with_conjugates(node.op, node.inputs, node.outputs, [count])
    ]


def all_or_nothing(node: Apply, supports: Sequence[Support]) -> list[Support]:
    """Supports for the inputs of a node, if any element of an output needs all elements of the inputs.

    An entry of a batch is needed only by elements of that entry.
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


def of_branches(node: Apply, support: Support, tells_of_gaps: bool) -> list[Support | None]:
    """Supports for the inputs of a ``switch``; None where there is no cotangent."""
    c, *branches = node.inputs
    return [
        None,
        *(
            support.within(c, is_true, tells_of_gaps) if is_float(v) else None
            for v, is_true in zip(branches, (True, False), strict=True)
        ),
    ]


def broadcast_axes(x: Any, y: Any) -> list[int]:
    """The axes along which ``x``, an operand of an elementwise op, is broadcast to the type ``y``."""
    return [k for k, (n, m) in enumerate(zip(x.type.shape, y.shape, strict=True)) if n == 1 != m]


def _of_input(node: Apply, k: int, support: Support) -> Support:
    """Map the support of the output's cotangent to a support for input ``k``.

    A position along an axis is in if any entry of the output that depends on it is.
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
