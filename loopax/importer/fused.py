"""Fused elementwise ops -> the ops that they consist of.

    Elemwise(Composite(f))(x, y)         ->  f, with an elementwise op for each of its scalar ops
    CAReduce(Composite(a + f(x)))(x)     ->  sum(f(x)), and likewise with products

FAST_RUN fuses the ops that it compiles. A fused op has no derivative, and no pass sees into it; native code
and XLA do their own fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.variable import TensorVariable

from loopax.facts.elementwise import is_elementwise
from loopax.importer.broadcasting import broadcast_with

_REDUCTIONS: dict[type, Any] = {ps.Add: Sum, ps.Mul: Prod}


def unfused(node: Apply) -> list[Any] | None:
    """The outputs of ``node`` by unfused ops; None if it is not a fused op."""
    op: Any = node.op
    if not isinstance(getattr(op, "scalar_op", None), Composite):
        return None
    if isinstance(op, CAReduce):
        return _reduction(node)
    if not is_elementwise(node):
        return None
    graph = op.scalar_op.fgraph
    opened = _elementwise(graph.inputs, graph.outputs, node.inputs)
    # An output has the broadcast shape of all inputs, even if it does not read them all.
    whole = [broadcast_with(x, node.inputs) for x in opened]
    return [_typed(x, v) for x, v in zip(whole, node.outputs, strict=True)]


def _elementwise(
    inputs: Sequence[Variable], outputs: Sequence[Variable], tensors: Sequence[Any]
) -> list[Any]:
    """Express the scalars ``outputs``, a function of the scalars ``inputs``, on ``tensors``."""
    env = {v: _widened(x, v.type.dtype) for v, x in zip(inputs, tensors, strict=True)}

    def read(v: Variable) -> Any:
        return pt.constant(v.data, dtype=v.type.dtype) if isinstance(v, Constant) else env[v]

    for node in toposort(outputs, blockers=inputs):
        op, at = node.op, [read(v) for v in node.inputs]
        if isinstance(op, Composite):
            new = _elementwise(op.fgraph.inputs, op.fgraph.outputs, at)
        else:
            new = Elemwise(op).make_node(*at).outputs
        env.update(zip(node.outputs, new, strict=True))
    return [read(v) for v in outputs]


def _widened(x: TensorVariable, dtype: str) -> Any:
    """Cast ``x`` to the dtype of the scalar that it replaces, unless it has a wider one."""
    is_narrower = x.type.dtype != dtype and ps.upcast(x.type.dtype, dtype) == dtype
    return x.astype(dtype) if is_narrower else x


def _typed(x: TensorVariable, out: Variable) -> Any:
    return out.type.filter_variable(x.astype(out.type.dtype))


def _reduction(node: Apply) -> list[Any] | None:
    """The reduction expressed in C as ``accumulator + f(element)``, in the dtype of the accumulator."""
    op: Any = node.op
    accumulator, element = op.scalar_op.fgraph.inputs
    last = op.scalar_op.fgraph.outputs[0].owner
    if isinstance(last.op, ps.Cast):
        last = last.inputs[0].owner
    terms = [v for v in last.inputs if v is not accumulator]
    if type(last.op) not in _REDUCTIONS or len(terms) != 1:
        return None
    (x,) = _elementwise([element], terms, node.inputs)
    out: Any = node.outputs[0]
    reduction = _REDUCTIONS[type(last.op)](op.axis, out.type.dtype, op.acc_dtype)
    return [_typed(reduction(x), out)]
