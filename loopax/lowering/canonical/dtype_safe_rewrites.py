"""Rewrites of PyTensor's canonicalize that fail for one dtype, without that dtype.

    -x     ->  -1 * x      not where x is unsigned: its dtype has no -1
    1 / x  ->  x ** -1.0   not in float16: the result would be float32

Reason: PyTensor leaves the graph as it was, which is right, and prints a traceback, which frightens whoever
wrote ``-x``. In these dtypes no other rewrite waits for the form on the right. (PyTensor 3.0.7 and 3.3.7
fail alike.) They stand in PyTensor's database with a tag that only `stabilize` asks for.
"""

from __future__ import annotations

from typing import Any

from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import neg, reciprocal
from pytensor.tensor.rewriting.math import local_neg_to_mul, local_reciprocal_canon
from pytensor.tensor.type import uint_dtypes

DTYPE_SAFE = "loopax_dtype_safe"


@node_rewriter([neg])
def neg_to_mul(fgraph: FunctionGraph, node: Apply) -> Any:
    """``-x -> -1 * x`` of a number that has a sign."""
    unsigned = node.inputs[0].type.dtype in uint_dtypes
    return None if unsigned else local_neg_to_mul.transform(fgraph, node)


@node_rewriter([reciprocal])
def reciprocal_to_power(fgraph: FunctionGraph, node: Apply) -> Any:
    """``1 / x -> x ** -1.0`` where that has the dtype of ``1 / x``."""
    half = node.outputs[0].type.dtype == "float16"
    return None if half else local_reciprocal_canon.transform(fgraph, node)


# What each of them stands in the place of, by the name in PyTensor's database.
REPLACED = {"local_neg_to_mul": neg_to_mul, "local_reciprocal_canon": reciprocal_to_power}


def register_dtype_safe_rewrites() -> None:
    """Add them to PyTensor's canonicalize, once."""
    canonicalize: Any = optdb["canonicalize"]
    for name, rewrite in REPLACED.items():
        if (ours := f"loopax_{name}") not in canonicalize:
            canonicalize.register(ours, rewrite, DTYPE_SAFE, use_db_name_as_tag=False)
