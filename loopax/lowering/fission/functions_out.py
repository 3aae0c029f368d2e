"""Functions leave a loop whose states are numbers, for a backend that writes its own loops.

    scan(lambda s, r: g(s, exp(r * c)), s, x)   ->   scan(lambda s, e: g(s, e), s, exp(x * c))
    scan(lambda s, r: (g(s, r), log(s)), s, x)  ->   ss = scan(lambda s, r: (g(s, r), s), s, x); log(ss)

A function of one number, such as ``exp``, is a call of the C library in a step, 5 ns and more; over all
rows it is vector code, 0.5 to 1 ns. So functions of rows alone move before the loop, and functions that
feed no state move after it: in a trace, or in a state that only adds up. Other computations of rows or
states stay: arithmetic in the step is cheaper than an array. The loop of a derivative reads the same array
as the loop of the value, instead of computing the function again. Value and gradient of an epidemic whose
contact rate is a sigmoid of the time take 0.57 of the time, the likelihood of a GARCH model, which adds up
the logarithms of its states, 0.6 of the time.

Condition: as in `push_out`, `split_loops` and `sums_out`. The function takes a number, or the few of a
small array: for a larger row it is vector code in the step as well.

In the literature: loop fission, of a loop that can be vectorized from one that cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk

from loopax.ir.sizes import Dims
from loopax.lowering.analysis.open_lengths import KnownLengths
from loopax.lowering.fission.functions_after import functions_after
from loopax.lowering.fission.push_out import before_the_states, rewrite_loops
from loopax.lowering.fission.row_wise_body import RowWiseBody, is_function
from loopax.lowering.fusion.fusion_plan import can_be_fused

# An array of fewer rows does not pay off. Neither does one for a loop that stops early, which usually takes
# few steps: gradients of 200 Newton iterations of some five steps each took 1.2 times as long.
_FEW_STEPS = 8


def functions_out(graph: FunctionGraph) -> None:
    """Run the pass on the bodies of ``graph``, and then on ``graph`` itself, in place."""
    for take_out in (partial(before_the_states, chosen=_functions), functions_after):
        rewrite_loops(graph, partial(_if_worth_it, take_out=take_out), "functions_out")


def _if_worth_it(
    node: Apply,
    dims: Dims,
    known: KnownLengths,
    take_out: Callable[[Apply, Dims, KnownLengths], dict[Any, Any]],
) -> dict[Any, Any]:
    op: Any = node.op
    if not can_be_fused(op) or not op.n_states or not any(map(is_function, op.fgraph.apply_nodes)):
        return {}
    n = dims.value(node.inputs[0])
    if not known.covers(n) or (n.constant is not None and n.constant < _FEW_STEPS):
        return {}
    return take_out(node, dims, known)


def _functions(body: RowWiseBody, outputs: Sequence[Variable]) -> list[Any]:
    """The outermost functions of rows alone, as the rest of the body reads them."""
    others = [node for node in body.nodes if node not in body.row_wise]
    read = [*outputs, *(v for node in others for v in node.inputs)]

    def dear_inputs(v: Variable) -> list[Any]:
        inputs = [] if is_function(v.owner) else v.owner.inputs
        return [u for u in inputs if u in body.dear]

    dear = walk([v for v in read if v in body.dear], dear_inputs)
    return [v for v in dear if is_function(v.owner)]
