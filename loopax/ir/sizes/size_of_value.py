"""The `Size` that an integer scalar is, by the op that made it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.typed_list import length as list_length

from loopax.ir.sizes.size import Size, total
from loopax.ir.sizes.size_questions import SizeQuestions

# Shorter integers, and those that are never below zero, wrap around where a length does not.
_WIDE = ("int64", "int32")


def value_of(sizes: SizeQuestions, v: Any) -> Size | None:
    if isinstance(v, Constant):
        return Size(offset=int(v.data)) if _is_discrete(v) else None
    if v.owner is None:
        return None
    op: Any = v.owner.op
    inputs = v.owner.inputs
    if isinstance(op, ScalarFromTensor | TensorFromScalar | CheckAndRaise):
        return sizes.of(inputs[0])
    if isinstance(op, Shape_i):
        return sizes.length(inputs[0], op.i)
    if op == list_length:
        return sizes.length(inputs[0])
    if isinstance(op, DimShuffle) and inputs[0].type.ndim == 1:
        return element(sizes, inputs[0], 0)
    if isinstance(op, Subtensor):
        index = indices_from_subtensor(inputs[1:], op.idx_list)
        if len(index) == 1 and inputs[0].type.ndim == 1 and not isinstance(index[0], slice):
            k = sizes.of(index[0]).constant
            return None if k is None else element(sizes, inputs[0], k)
        return None
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else op
    if not isinstance(scalar_op, ps.ScalarOp) or not is_integer(v):
        return None
    found = _arithmetic(sizes, scalar_op, inputs)
    if found is None or (found.constant is None and v.type.dtype not in _WIDE):
        return None
    return found if found.constant is None or _takes(v.type.dtype, found.constant) else None


def element(sizes: SizeQuestions, vector: Any, k: int) -> Size | None:
    """Element ``k`` of a vector of sizes."""
    if isinstance(vector, Constant):
        return (
            Size(offset=int(vector.data[k])) if -len(vector.data) <= k < len(vector.data) else None
        )
    op: Any = None if vector.owner is None else vector.owner.op
    if isinstance(op, Shape):
        x = vector.owner.inputs[0]
        return sizes.length(x, k) if 0 <= k < x.type.ndim else None
    if isinstance(op, MakeVector) and -len(vector.owner.inputs) <= k < len(vector.owner.inputs):
        return sizes.of(vector.owner.inputs[k])
    return None


def _arithmetic(sizes: SizeQuestions, op: Any, inputs: Any) -> Size | None:
    """What comes out of ``op`` where it does not wrap around."""
    if not all(map(is_integer, inputs)) and not isinstance(op, ps.Switch):
        return None
    if isinstance(op, ps.Cast | ps.Identity):
        return sizes.of(inputs[0])
    if isinstance(op, ps.Add):
        return total(sizes.of(x) for x in inputs)
    if isinstance(op, ps.Sub):
        return sizes.of(inputs[0]) - sizes.of(inputs[1])
    if isinstance(op, ps.Neg):
        return -sizes.of(inputs[0])
    if isinstance(op, ps.Mul):
        return _product([sizes.of(x) for x in inputs])
    if isinstance(op, ps.ScalarMaximum | ps.ScalarMinimum):
        return sizes.clipped(isinstance(op, ps.ScalarMaximum), *map(sizes.of, inputs))
    if isinstance(op, ps.Second):
        return sizes.of(inputs[1])
    if isinstance(op, ps.Switch) and not inputs[0].type.ndim:
        holds = _holds(sizes, inputs[0])
        return None if holds is None else sizes.of(inputs[1 if holds else 2])
    return None


def _product(factors: list[Size]) -> Size | None:
    total = Size(offset=1)
    for f in factors:
        if f.constant is not None:
            total = total * f.constant
        elif total.constant is not None:
            total = f * total.constant
        else:
            return None
    return total


def _holds(sizes: SizeQuestions, condition: Any) -> bool | None:
    """Whether a comparison holds in every run (True), in none (False), or nobody knows."""
    if isinstance(condition, Constant):
        return bool(condition.data)
    if condition.owner is None:
        return None
    op: Any = condition.owner.op
    op = op.scalar_op if isinstance(op, Elemwise) else op
    inputs = condition.owner.inputs
    if isinstance(op, ps.Invert) and inputs[0].type.dtype == "bool":
        inner = _holds(sizes, inputs[0])
        return None if inner is None else not inner
    if not isinstance(op, ps.LT | ps.LE | ps.GT | ps.GE) or not all(map(is_integer, inputs)):
        return None
    a, b = map(sizes.of, inputs)
    if isinstance(op, ps.GT | ps.GE):
        a, b = b, a
    strict = isinstance(op, ps.LT | ps.GT)
    if sizes.at_least(b - a, int(strict)):
        return True
    return False if sizes.at_least(a - b, 1 - int(strict)) else None


def is_integer(v: Any) -> bool:
    return str(getattr(v.type, "dtype", "")).startswith(("int", "uint"))


def _is_discrete(v: Any) -> bool:
    return is_integer(v) or v.type.dtype == "bool"


def _takes(dtype: str, k: int) -> bool:
    return bool(np.iinfo(dtype).min <= k <= np.iinfo(dtype).max)
