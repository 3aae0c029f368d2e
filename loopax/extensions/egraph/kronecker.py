"""Recognition and construction of Kronecker products, which programs write as outer products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import constant
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.extensions.egraph.op_table import OpTable
from loopax.facts.elementwise import is_elementwise

_ROWS, _COLUMNS = (0, "x", 1, "x"), ("x", 0, "x", 1)


def kron_of(node: Apply) -> tuple[Any, Any] | None:
    """The factors, of known lengths, of a node that is a Kronecker product; None for other nodes."""
    if not isinstance(node.op, Reshape) or node.outputs[0].type.ndim != 2:
        return None
    product = node.inputs[0].owner
    if not is_elementwise(product, ps.Mul) or len(product.inputs) != 2:
        return None
    factors: dict[Any, Any] = {}
    for v in product.inputs:
        if v.owner is not None and isinstance(v.owner.op, DimShuffle):
            factors[v.owner.op.new_order] = v.owner.inputs[0]
    if factors.keys() != {_ROWS, _COLUMNS}:
        return None
    a, b = factors[_ROWS], factors[_COLUMNS]
    lengths = a.type.shape, b.type.shape
    if any(n is None or n == 1 for shape in lengths for n in shape):
        return None
    has_its_shape = node.outputs[0].type.shape == tuple(np.prod(lengths, axis=0))
    return (a, b) if has_its_shape and a.type.dtype == b.type.dtype == "float64" else None


def kron(a: TensorVariable, b: TensorVariable) -> Variable:
    """Build the Kronecker product of two matrices of known lengths, in the form of programs."""
    shape = [n * m for n, m in zip(a.type.shape, b.type.shape, strict=True)]
    return (a.dimshuffle(*_ROWS) * b.dimshuffle(*_COLUMNS)).reshape(shape)


def facts_of(a: TensorVariable, b: TensorVariable, table: OpTable) -> list[str]:
    """Facts on the reshapes between a vector, of the product's rows or columns, and a matrix.

    ``(Matrix n m s k)``: the k-th access reshapes s to (n, m). ``(Vector n m s k)``: its inverse.
    """
    facts = []
    for n, m in dict.fromkeys(zip(a.type.shape, b.type.shape, strict=True)):
        for shape in ((n * m,), (n * m, 1)):
            text = f"(Sh{len(shape)} {' '.join(map(str, shape))})"
            for name, before, after in (("Matrix", shape, (n, m)), ("Vector", (n, m), shape)):
                kind = TensorType("float64", (None,) * len(before))
                k = table.number(Reshape(len(after)), (kind,), [constant(np.array(after))])
                source, target = (text, f"(Sh2 {n} {m})")[:: 1 if name == "Matrix" else -1]
                facts.append(f"({name} {n} {m} {text} {k})")
                facts.append(f"(set (read {k} {source}) {target}) (Total {k} {source})")
    return facts
