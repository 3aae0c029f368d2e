"""Conversion of a program of double precision to single precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.scalar.basic import Cast
from pytensor.tensor.basic import ARange, Eye
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.facts.elementwise import is_elementwise
from loopax.ir.ops.inner_graph_op import InnerGraphOp

_WIDE = {"float64": "float32", "complex128": "complex64"}


def narrowed(graph: AbstractFunctionGraph) -> FunctionGraph:
    """Copy ``graph`` with float32 in place of float64, in constants and steps of loops too."""
    new: dict[Variable, Any] = {v: _type(v)(name=v.name) for v in graph.inputs}
    for node in graph.toposort():
        inputs = [new.get(v) if v in new else _constant(v) for v in node.inputs]
        for old, v in zip(node.outputs, _applied(node, inputs), strict=True):
            new[old] = _fitted(v, old)
    outputs = [new[v] if v in new else _constant(v) for v in graph.outputs]
    return FunctionGraph([new[v] for v in graph.inputs], outputs, clone=False)


def _type(v: Variable) -> Any:
    dtype = getattr(v.type, "dtype", "")
    return v.type.clone(dtype=_WIDE[dtype]) if dtype in _WIDE else v.type


def _constant(v: Variable) -> Any:
    if isinstance(v, Constant) and isinstance(v.type, TensorType) and v.type.dtype in _WIDE:
        return pt.constant(v.data.astype(_WIDE[v.type.dtype]))
    return v


def _fitted(v: TensorVariable, old: Variable) -> Any:
    """Cast ``v`` to the narrow type that replaces the type of ``old``."""
    narrow_type = _type(old)
    if narrow_type is old.type and getattr(v.type, "dtype", None) == getattr(
        old.type, "dtype", None
    ):
        return v
    return v if v.type.dtype == narrow_type.dtype else v.astype(narrow_type.dtype)


def _applied(node: Apply, inputs: Sequence[Any]) -> Sequence[Any]:
    op: Any = node.op
    if isinstance(op, InnerGraphOp):
        new: Any = op.with_graph(narrowed(op.written or op.fgraph))
        return list(new.make_node(*inputs).outputs)
    if is_elementwise(node, Cast):
        dtype = _WIDE.get(node.outputs[0].type.dtype, node.outputs[0].type.dtype)
        return [inputs[0].astype(dtype)]
    if isinstance(op, ARange | Eye) and op.dtype in _WIDE:
        props = {name: getattr(op, name) for name in op.__props__}
        maker: Any = type(op)(**{**props, "dtype": _WIDE[op.dtype]})
        return list(maker.make_node(*inputs).outputs)
    return node.clone_with_new_inputs(list(inputs), strict=False).outputs
