"""Rules for integer scalars, by the op that computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.typed_list.basic import Length as ListLength

from loopax.facts.accesses import access_of
from loopax.facts.elementwise import function_of
from loopax.ir.sizes.analysis import Dims, is_integer
from loopax.ir.sizes.dim_expr import DimExpr, total
from loopax.ir.sizes.rules import arithmetic_rule, value_rule

# Shorter and unsigned integers wrap around where a length does not.
_WIDE = ("int64", "int32")


value_rule.register(ScalarFromTensor | TensorFromScalar | CheckAndRaise)(
    lambda op, dims, node: dims.value(node.inputs[0])
)
value_rule.register(Alloc)(lambda op, dims, node: _repeated(dims, node.inputs[0]))
value_rule.register(Shape_i)(lambda op, dims, node: dims.length(node.inputs[0], op.i))
value_rule.register(ListLength)(lambda op, dims, node: dims.length(node.inputs[0]))


@value_rule.register(DimShuffle)
def _only_element(op: DimShuffle, dims: Dims, node: Apply) -> DimExpr | None:
    x = node.inputs[0]
    return element(dims, x, 0) if x.type.ndim == 1 else None


@value_rule.register(Subtensor)
def _element_read(op: Subtensor, dims: Dims, node: Apply) -> DimExpr | None:
    access = access_of(node)
    if access.array.type.ndim != 1 or not access.is_row:
        return None
    k = dims.value(access.rows).constant
    return None if k is None else element(dims, access.array, k)


def element(dims: Dims, vector: Variable, k: int) -> DimExpr | None:
    if isinstance(vector, Constant):
        n = len(vector.data)
        return DimExpr(offset=int(vector.data[k])) if -n <= k < n else None
    node = dims.maker(vector)
    op: Any = None if node is None else node.op
    if isinstance(op, Shape):
        x = node.inputs[0]
        return dims.length(x, k) if 0 <= k < x.type.ndim else None
    if isinstance(op, MakeVector) and -len(node.inputs) <= k < len(node.inputs):
        return dims.value(node.inputs[k])
    if isinstance(op, Alloc) or (isinstance(op, DimShuffle) and op.new_order == ("x",)):
        return _repeated(dims, node.inputs[0])
    return None


def _repeated(dims: Dims, x: Variable) -> DimExpr | None:
    """The value of a scalar, or of a vector with static length 1."""
    if x.type.ndim == 0:
        return dims.value(x)
    return element(dims, x, 0) if x.type.shape == (1,) else None


# -- arithmetic --------------------------------------------------------------------------------------


@value_rule.register(Elemwise | ps.ScalarOp)
def _arithmetic(op: Op, dims: Dims, node: Apply) -> DimExpr | None:
    scalar_op = function_of(op)
    out, inputs = node.outputs[0], node.inputs
    integers = all(map(is_integer, inputs)) or isinstance(scalar_op, ps.Switch)
    value = arithmetic_rule(scalar_op, dims, inputs) if integers and is_integer(out) else None
    if value is None or (value.constant is None and out.type.dtype not in _WIDE):
        return None
    return value if value.constant is None or _holds_number(out, value.constant) else None


def _holds_number(v: Variable, k: int) -> bool:
    limits = np.iinfo(v.type.dtype)
    return bool(limits.min <= k <= limits.max)


arithmetic_rule.register(ps.Cast | ps.Identity)(lambda op, dims, inputs: dims.value(inputs[0]))
arithmetic_rule.register(ps.Second)(lambda op, dims, inputs: dims.value(inputs[1]))
arithmetic_rule.register(ps.Add)(lambda op, dims, inputs: total(map(dims.value, inputs)))
arithmetic_rule.register(ps.Sub)(
    lambda op, dims, inputs: dims.value(inputs[0]) - dims.value(inputs[1])
)
arithmetic_rule.register(ps.Neg)(lambda op, dims, inputs: -dims.value(inputs[0]))
arithmetic_rule.register(ps.ScalarMaximum | ps.ScalarMinimum)(
    lambda op, dims, inputs: dims.clipped(
        isinstance(op, ps.ScalarMaximum), *map(dims.value, inputs)
    )
)


@arithmetic_rule.register(ps.Mul)
def _product(op: Op, dims: Dims, inputs: Sequence[Variable]) -> DimExpr | None:
    product = DimExpr(offset=1)
    for factor in map(dims.value, inputs):
        if factor.constant is not None:
            product = product * factor.constant
        elif product.constant is not None:
            product = factor * product.constant
        else:
            return None
    return product


@arithmetic_rule.register(ps.Switch)
def _chosen(op: Op, dims: Dims, inputs: Sequence[Variable]) -> DimExpr | None:
    holds = None if inputs[0].type.ndim else _truth(dims, inputs[0])
    return None if holds is None else dims.value(inputs[1 if holds else 2])


def _truth(dims: Dims, condition: Variable) -> bool | None:
    """Whether a comparison holds in every run (True) or in none (False); None where it is not known."""
    if isinstance(condition, Constant):
        return bool(condition.data)
    node = dims.maker(condition)
    if node is None:
        return None
    op = function_of(node.op)
    inputs = node.inputs
    if isinstance(op, ps.Invert) and inputs[0].type.dtype == "bool":
        inner = _truth(dims, inputs[0])
        return None if inner is None else not inner
    if not isinstance(op, ps.LT | ps.LE | ps.GT | ps.GE) or not all(map(is_integer, inputs)):
        return None
    a, b = map(dims.value, inputs)
    if isinstance(op, ps.GT | ps.GE):
        a, b = b, a
    strict = isinstance(op, ps.LT | ps.GT)
    if dims.at_least(b - a, int(strict)):
        return True
    return False if dims.at_least(a - b, 1 - int(strict)) else None
