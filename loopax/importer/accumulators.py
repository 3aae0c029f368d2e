"""Cumulative sums and products of bools and small integers, in the wide integer that NumPy uses.

    cumsum(x: bool) - 1  ->  cast(cumsum(cast(x, int64)) - 1, int8)

PyTensor declares ``cumsum(x)`` to be of the type of ``x``, but computes ``numpy.cumsum``, which counts
bools in int64. So the declared and the actual type of later operands differ: PyTensor's Python and NUMBA
modes continue with the int64, compiled C truncates. To make ``x[cumsum(x > 0) - 1]`` count, the wide
integer is propagated through ops that only move elements; ops that compute with it return the dtype that
they declare. Outputs of the program, and operands of ops with a body, have the declared dtype.
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
        elif is_elementwise(node):  # which would convert uint64 and a signed integer to float
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
    if isinstance(node.op, CAReduce):  # NumPy's reductions are given the dtype of the accumulator
        return node.outputs[0].type.dtype == node.inputs[0].type.dtype
    return isinstance(node.op, _TYPED)


def _widened(x: TensorVariable) -> Any:
    dtype = np.cumsum(np.zeros(1, x.type.dtype)).dtype
    return x if x.type.dtype == dtype else x.astype(dtype)


def _applied(node: Apply, inputs: list[Variable]) -> list[Any] | None:
    """Apply the op of ``node`` to ``inputs``, if it accepts them and keeps the ranks; else None."""
    try:
        outs: list[Any] = node.op.make_node(*inputs).outputs
    except (TypeError, ValueError, NotImplementedError, AssertionError):  # the last by typed lists
        return None
    alike = all(
        getattr(a.type, "ndim", None) == getattr(v.type, "ndim", None)
        for a, v in zip(outs, node.outputs, strict=True)
    )
    return outs if alike else None
