"""Derive every function in its stable form, however its derivative is requested.

log(sum(exp(x)))'  is  (m + log(sum(exp(x - m))))',  m = max(x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.ir.derivatives.graph_derivatives import NO_PUSHFORWARD as NO_DERIVATIVE
from loopax.lowering.canonical.stabilize import stabilize_function

T = TypeVar("T")


def of_stable_form(
    inputs: Sequence[Variable], outputs: Sequence[Variable], derive: Callable[[FunctionGraph], T]
) -> T:
    """Apply ``derive`` to a copy of a graph in its stable form; ``derive`` may change its argument.

    Where a rewrite has introduced an op without a derivative, ``derive`` gets the original graph.
    """
    stable = FunctionGraph(list(inputs), list(outputs), clone=True)
    stabilize_function(stable)
    try:
        return derive(stable)
    except NO_DERIVATIVE:  # of a node that a rewrite introduced; otherwise it is raised again
        return derive(FunctionGraph(list(inputs), list(outputs), clone=True))
