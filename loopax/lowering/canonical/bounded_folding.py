"""PyTensor's folding of constants, up to a size: ``outer([1, 2], [3, 4])`` -> a constant.

Condition: the results have at most `FREE` bytes, that is 16 MB.

Reason: PyTensor folds whatever follows from constants, however large. The outer product of two vectors of
3,000 numbers, 48 kB, was 69 MB in the program, of which copies are made. What is larger and yet worth it,
beside the constants that it follows from, `fold_constants` finds.
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
    """`constant_folding` of what is not large."""
    constants = [v.data for v in node.inputs if isinstance(v, Constant)]
    if len(constants) < len(node.inputs) or bytes_made(node, constants) > FREE:
        return None
    return constant_folding.transform(fgraph, node)


fold_small_constants = in2out(
    small_constant_folding, ignore_newtrees=True, name="fold_small_constants"
)
