"""Cotangents that are known to be zero outside of a support: where a ``switch`` takes its other branch.

    y = switch(c, f(x), 0)         x̄ = switch(c, ȳ f'(x), 0)         not  switch(c, ȳ, 0) f'(x)

Both are equal where ``f'(x)`` is finite. Where it is not, as for ``sqrt`` at 0, or where ``x`` is missing
data, 0 is right, and the second is NaN. So a cotangent propagates back through elementwise functions
unmasked, along with the tests of the later switches, and is set to zero outside of its support only where
it is added to something else or reaches another kind of op. Fewer switches are computed, too. In JAX's
operations, which JAX differentiates, `loopax.lowering.derivatives.guarded_branches` has this effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Structure, facts_of
from loopax.facts.elementwise import is_elementwise
from loopax.facts.scalars import is_real
from loopax.ir.derivatives.inner_gradients import is_connected
from loopax.ir.derivatives.rules.elementwise import summed
from loopax.ir.derivatives.supports import (
    EVERYWHERE,
    Support,
    adds_no_entries,
    all_or_nothing,
    as_number,
    broadcast_axes,
    of_branches,
    supports_of_inputs,
)
from loopax.ir.derivatives.unbounded_slopes import UnboundedSlopes
from loopax.ir.replace import replaced

# Maps a node's inputs and the cotangents of its outputs to the cotangents of its inputs.
Pull = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


class Supported(NamedTuple):
    """A cotangent: ``value`` inside its support and zero elsewhere, whatever ``value`` is there.

    ``is_dense`` says that ``value`` itself is zero outside of the support.
    """

    value: Any
    support: Support = EVERYWHERE
    is_dense: bool = False

    @property
    def dense(self) -> Any:
        """The cotangent as one variable, zero outside of the support."""
        return self.value if self.is_dense else self.support.masked(self.value)

    def kept(self, x: Any, slopes: UnboundedSlopes) -> Supported:
        """Drop the support of the cotangent of ``x`` if no later slope needs it."""
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
            return Supported(pt.switch(as_number(c), *pair), a.union(b))
        either = a.union(b)
        return Supported(self.dense + other.dense, either, is_dense=bool(either.tests))


def pull_back_supported(
    node: Apply, cotangents: Sequence[Supported | None], pull: Pull, slopes: UnboundedSlopes
) -> Any:
    """The cotangents of a node's inputs, with their supports; None if an output has no support.

    Parameters
    ----------
    node
        A node of the graph that ``slopes`` knows.
    cotangents
        The cotangents of its outputs; None for an output without one.
    pull
        The rule of its op.

    Returns
    -------
    A disconnected cotangent is as ``pull`` returns it.
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
    supports = supports_of_inputs(node, g.support)
    inputs, is_contraction = node.inputs, facts_of(node.op).structure is Structure.CONTRACTS
    # Each entry of a slope combines entries of all rows.
    if is_contraction and not is_bounded and not g.support.is_whole:
        inputs = [s.masked(v) if is_real(v) else v for v, s in zip(inputs, supports, strict=True)]
        is_bounded = True
    if adds_no_entries(node.op):  # what is masked later need not be masked now
        values, is_dense = pull(inputs, [g.value]), g.is_dense
    else:
        values, is_dense = pull(inputs, [g.dense]), is_bounded
    return _with_supports(values, supports, is_dense)


def _through_several(node: Apply, cotangents: Sequence[Supported | None], pull: Pull) -> Any:
    """Pull back through an op with several outputs, where any needed element needs all of every input."""
    arrived = [g for g in cotangents if g is not None]
    if not all(g.support.tests for g in arrived):
        return None
    values = pull(node.inputs, [None if g is None else g.dense for g in cotangents])
    return _with_supports(
        values, all_or_nothing(node, [g.support for g in arrived]), is_dense=False
    )


def _with_supports(values: Sequence[Any], supports: Sequence[Support], is_dense: bool) -> list[Any]:
    return [
        Supported(v, s, is_dense) if v is not None and isinstance(v.type, DenseTensorType) else v
        for v, s in zip(values, supports, strict=True)
    ]


def _through_switch(node: Apply, g: Supported, tells_of_gaps: bool) -> list[Any]:
    c, y = node.inputs[0], node.outputs[0].type
    supports = of_branches(node, g.support, tells_of_gaps)
    known: Any = np.unique(c.data.astype(bool)) if isinstance(c, Constant) else ()
    if len(known) == 1:  # the whole cotangent goes to one branch
        supports = [None, g.support if known[0] else None, None if known[0] else g.support]
    return [
        None
        if s is None or not is_real(v)
        else _summed(Supported(g.value, s, g.is_dense and s is g.support), v, y)
        for v, s in zip(node.inputs, supports, strict=True)
    ]


def _through_function(node: Apply, g: Supported, pull: Pull, is_dense: bool) -> list[Any]:
    """Pull back through an elementwise function, and sum the cotangents of inputs that are broadcast.

    The rule is applied to dummy inputs of the output's shape, which the actual ones then replace. A
    constant is kept: it has no cotangent, and a rule may need its value.
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
    """Sum the cotangent of ``x``, given at the broadcast type ``y``, to the shape of ``x``."""
    axes = broadcast_axes(x, y)
    if not axes:
        return g
    if all(g.value.type.broadcastable[k] for k in axes):  # the zeros of a constant function
        return Supported(g.value, g.support.projected(axes), g.is_dense)
    return Supported(summed(g.dense, x), g.support.projected(axes), is_dense=True)
