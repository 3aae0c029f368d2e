"""Functions leave a loop whose states are numbers, for a backend that writes its own loops.

    scan(lambda s, r: g(s, exp(r * c)), s, x)   ->   scan(lambda s, e: g(s, e), s, exp(x * c))
    scan(lambda s, r: (g(s, r), log(s)), s, x)  ->   ss = scan(lambda s, r: (g(s, r), s), s, x); log(ss)

A function of one number, ``exp`` say, is a call of the C library in a step, 5 ns and more; of all rows it
is vector code, 0.5 to 1 ns. So functions of rows alone come before the loop, and what no state needs comes
after it where it has a function in it: a trace, or what a state adds up. Whatever else follows from rows or
states stays where it is: arithmetic is cheaper in the step than an array is. The loop of a derivative reads
the same array as that of the value, in place of computing the function again. Value and gradient of an
epidemic whose rate of contact is a sigmoid of the time take 0.57 of the time so, the likelihood of a GARCH
model, which adds up the logarithms of its states, 0.6 of the time.

Condition: that of `push_out`, `split_loops` and `sums_out`. The function is of a number, or of the few that
a small array has: that of a larger row is vector code in the step as well.

In the literature: loop fission, of a loop that can be vectorized from one that cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from loopax.ir import Scan
from loopax.ir.sizes import unconditional_dims_of
from loopax.lowering.analysis.open_lengths import KnownLengths
from loopax.lowering.bodies import map_bodies
from loopax.lowering.fission.functions_after import functions_after
from loopax.lowering.fission.push_out import before_the_states
from loopax.lowering.fission.row_wise_body import RowWiseBody, is_function
from loopax.lowering.open_loop import replace_outputs

# Of fewer no array is worth it. Nor is it of the steps that a loop took until it stopped, which are a few
# as a rule: gradients of 200 Newton iterations, each of some five steps, took 1.2 of the time.
_FEW_STEPS = 8


def functions_out(graph: FunctionGraph) -> None:
    """Run the pass on the bodies of ``graph``, and then on ``graph`` itself, in place."""
    _functions_out(graph, KnownLengths.at(graph))


def _functions_out(graph: FunctionGraph, known: KnownLengths) -> None:
    map_bodies(graph, partial(_functions_out, known=known.inside()))
    for take_out in (partial(before_the_states, chosen=_functions), functions_after):
        loops = [node for node in graph.toposort() if _may_have_some(node)]
        if not loops:
            return
        dims = unconditional_dims_of(graph)
        for node in loops:
            n = dims.value(node.inputs[0])
            if not known.covers(n) or (n.constant is not None and n.constant < _FEW_STEPS):
                continue
            if new := take_out(node, dims, known):
                replace_outputs(graph, new, "functions_out")


def _may_have_some(node: Apply) -> bool:
    op: Any = node.op
    if not isinstance(op, Scan) or op.stops or not op.n_states:
        return False
    return op.options.truncate_gradient == -1 and any(map(is_function, op.fgraph.apply_nodes))


def _functions(body: RowWiseBody, outputs: Sequence[Any]) -> list[Any]:
    """Of what follows from rows alone, the functions that come last before the rest of the body."""
    rest = [node for node in body.nodes if node not in body.rules]
    stack = [*(v for node in rest for v in node.inputs), *outputs]
    found: dict[Any, None] = {}
    seen: set[Any] = set()
    while stack:
        v = stack.pop()
        if v in seen or v not in body.dear:
            continue
        seen.add(v)
        if is_function(v.owner):
            found[v] = None
        else:
            stack += v.owner.inputs
    return list(found)
