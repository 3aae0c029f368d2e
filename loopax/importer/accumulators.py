"""Cumulated sums and products of bools and small integers, in the integer that NumPy adds them in.

    cumsum(x: bool) - 1  ->  cast(cumsum(cast(x, int64)) - 1, int8)

PyTensor declares ``cumsum(x)`` to be of the type of ``x``, and computes ``numpy.cumsum``, which counts
bools in int64. What comes after is told the declared type and given the other: its Python and its NUMBA
mode go on with the int64, compiled C truncates. So that ``x[cumsum(x > 0) - 1]`` counts, the wide integer
goes on through what only moves elements; what computes with it gives the dtype that it declares. What
the program returns, and what an op with a body is given, has the declared dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import AdvancedSubtensor1, IfElse
from loopax.facts.elementwise import is_elementwise

_MOVES = (
    CumOp,
    DimShuffle,
    Join,
    Reshape,
    SortOp,
    SpecifyShape,
    Subtensor,
    AdvancedSubtensor,
    AdvancedSubtensor1,
    CheckAndRaise,
)
_TYPED = (HasInnerGraph, Blockwise, IfElse)


def widen_accumulators(graph: FunctionGraph) -> None:
    """Rewrite ``graph``, in place; its bodies are left to the caller."""
    nodes = graph.toposort()
    if not any(isinstance(node.op, CumOp) for node in nodes):
        return
    wide: dict[Variable, Any] = {}
    for node in nodes:
        inputs = [wide.get(v, v) for v in node.inputs]
        if isinstance(node.op, CumOp):
            inputs = [_widened(inputs[0])]
        elif is_elementwise(node):  # which makes floats of uint64 and a signed integer
            inputs = [
                v if v is x else x.astype("int64") for v, x in zip(node.inputs, inputs, strict=True)
            ]
        if inputs == node.inputs:
            continue
        new = None if _takes_declared(node) else _applied(node, inputs)
        if new is None:
            for k, (v, x) in enumerate(zip(node.inputs, inputs, strict=True)):
                if v is not x:
                    narrow = x.astype(v.type.dtype)
                    graph.change_node_input(node, k, narrow, import_missing=True)
        elif isinstance(node.op, _MOVES) and node.outputs[0].type.dtype in discrete_dtypes:
            wide.update(zip(node.outputs, new, strict=True))
        else:
            pairs = [
                (v, x if x.type.dtype == v.type.dtype else x.astype(v.type.dtype))
                for v, x in zip(node.outputs, new, strict=True)
            ]
            graph.replace_all(pairs, import_missing=True, reason="widen_accumulators")
    declared = {v: x.astype(v.type.dtype) for v, x in wide.items() if v in graph.outputs}
    graph.replace_all(list(declared.items()), import_missing=True, reason="widen_accumulators")


def _takes_declared(node: Apply) -> bool:
    if isinstance(node.op, CAReduce):  # NumPy's reductions are told in which dtype to work
        return node.outputs[0].type.dtype == node.inputs[0].type.dtype
    return isinstance(node.op, _TYPED)


def _widened(x: TensorVariable) -> Any:
    dtype = np.cumsum(np.zeros(1, x.type.dtype)).dtype
    return x if x.type.dtype == dtype else x.astype(dtype)


def _applied(node: Apply, inputs: list[Variable]) -> list[Any] | None:
    """The outputs of the same op on ``inputs``, where it takes them and gives arrays of the same rank."""
    try:
        outs: list[Any] = node.op.make_node(*inputs).outputs
    except (TypeError, ValueError, NotImplementedError, AssertionError):  # the last by typed lists
        return None
    alike = all(
        getattr(a.type, "ndim", None) == getattr(v.type, "ndim", None)
        for a, v in zip(outs, node.outputs, strict=True)
    )
    return outs if alike else None
