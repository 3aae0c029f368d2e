"""The derivative of a function is that of its stable form, by whichever road it is taken.

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
    """``derive`` of the stable form of a graph, which stays as it is; ``derive`` may change what it gets.

    Where a rewrite has written an op without a derivative, it is ``derive`` of the graph as it stands.
    """
    stable = FunctionGraph(list(inputs), list(outputs), clone=True)
    stabilize_function(stable)
    try:
        return derive(stable)
    except NO_DERIVATIVE:  # of what a rewrite has written; else it is raised once more
        return derive(FunctionGraph(list(inputs), list(outputs), clone=True))
