"""The values of a program to check: states and rows of loops, and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from loopax.lowering.canonical.if_else_to_cond import has_if_else, if_else_to_cond
from loopax.lowering.canonical.sink_readers import sink_readers
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from loopax.lowering.finiteness.passing import may_be_infinite
from loopax.lowering.open_loop import OpenLoop
from loopax.lowering.redundancy.remove_unused import remove_unused


def prepare(graph: FunctionGraph) -> None:
    """Bring ``graph`` to the form whose loops are checked, in place.

    Derivatives become graphs and conditionals become ops that run one branch; whatever no output needs is
    removed: it is not computed, and so not checked.
    """
    take_derivatives(graph)
    if has_if_else(graph):
        sink_readers(graph)
        if_else_to_cond(graph)
    remove_unused(graph)


def values_of(graph: FunctionGraph, loop: OpenLoop) -> dict[Variable, tuple[str, int]]:
    """Map the values of each step of ``loop`` to their kind and number.

    The values are all states, and the rows whose trace ``graph`` reads.
    """
    names: dict[Variable, tuple[str, int]] = {}
    before = {s.inner for s in loop.states}
    for k, s in enumerate(loop.states):
        if s.next not in before:  # else a state of the step before, which was named there
            names.setdefault(s.next, ("state", k))
    for k, y in enumerate(loop.ys):
        if graph.clients.get(y.trace) and y.inner not in before:
            names.setdefault(y.inner, ("trace", k))
    return {v: kind for v, kind in names.items() if may_be_infinite(v)}


def is_infinite(x: TensorVariable) -> Any:
    """Which entries of ``x`` are nan or infinite."""
    return pt.invert(pt.lt(abs(x), np.asarray(np.inf, "float32")))


def any_infinite(x: Any) -> Any:
    """Whether an entry of ``x`` is nan or infinite."""
    bad = is_infinite(x)
    return bad.any() if x.type.ndim else bad
