"""PyTensor's constant folding, up to a size: ``outer([1, 2], [3, 4])`` -> a constant.

Condition: the results have at most `FREE` bytes, that is 16 MB.

Reason: PyTensor folds everything that depends on constants alone, however large. The outer product of two
vectors of 3,000 numbers, 48 kB, was 69 MB in the program, which is copied several times. `fold_constants`
finds larger results that are worth it, given the size of the constants they are computed from.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.tensor.rewriting.basic import constant_folding

from loopax.lowering.redundancy.fold_constants import FREE, bytes_made


@node_rewriter(None)
def small_constant_folding(fgraph: FunctionGraph, node: Apply) -> Any:
    """PyTensor's `constant_folding`, for small results only."""
    constants = [v.data for v in node.inputs if isinstance(v, Constant)]
    if len(constants) < len(node.inputs) or bytes_made(node, constants) > FREE:
        return None
    return constant_folding.transform(fgraph, node)


fold_small_constants = in2out(
    small_constant_folding, ignore_newtrees=True, name="fold_small_constants"
)
