"""Records of elementwise ops: their functions of numbers, and the properties that follow for arrays."""

from __future__ import annotations

from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise

from loopax.facts.families import elementwise_op
from loopax.facts.record import Errors, Groups, OpFacts, Structure, Work, register
from loopax.facts.scalars import is_dear, is_float, linear_groups, scalar_facts, zero_groups


def scalar_op_of(op: object) -> Any:
    """The function that ``op`` applies to each element; None if it is not an elementwise op.

    >>> import pytensor.scalar as ps, pytensor.tensor as pt
    >>> scalar_op_of(pt.exp) == ps.exp
    True
    """
    return op.scalar_op if isinstance(op, Elemwise) else None


def function_of(op: Op) -> Any:
    """The scalar function that ``op`` is, or applies to each element; None if it is neither."""
    return op if isinstance(op, ps.ScalarOp) else scalar_op_of(op)


def is_elementwise(node: Apply | None, *scalar_ops: type) -> bool:
    """Whether ``node``, which may be None, computes one of ``scalar_ops`` for each element.

    Without ``scalar_ops``: whether it computes any function for each element.

    >>> import pytensor.scalar as ps, pytensor.tensor as pt
    >>> is_elementwise((pt.dvector() + 1).owner, ps.Add, ps.Sub)
    True
    """
    if node is None or not isinstance(node.op, Elemwise):
        return False
    return not scalar_ops or isinstance(node.op.scalar_op, scalar_ops)


def uncast(v: Variable) -> Variable:
    """The variable beneath casts of ``v`` and its conversions between numbers and 0-d arrays.

    >>> import pytensor.tensor as pt
    >>> i = pt.iscalar("i")
    >>> uncast(pt.cast(i, "int64")) is i
    True
    """
    while v.owner is not None and (
        isinstance(v.owner.op, ScalarFromTensor | TensorFromScalar)
        or isinstance(function_of(v.owner.op), ps.Cast)
    ):
        v = v.owner.inputs[0]
    return v


def is_dear_function(op: Op) -> bool:
    """Whether ``op`` is an elementwise function that costs more per entry than a write and a read."""
    scalar_op = scalar_op_of(op)
    return scalar_op is not None and is_dear(scalar_op)


# -- the records -------------------------------------------------------------------------------------


def _has_value(op: Op, node: Apply) -> bool:
    """Whether the scalar ``op`` has a value for all numbers of the types of ``node``.

    A `Composite` may divide Python's own numbers, which may raise: the answer is False.
    """
    facts = scalar_facts(op)
    return facts is not None and facts.is_total(node)


def _errors(node: Apply) -> Errors:
    shape = Errors.NONE if _agree(node) else Errors.SHAPE
    return shape if _has_value(scalar_op_of(node.op), node) else shape | Errors.VALUE


def _agree(node: Apply) -> bool:
    """Whether the shapes of the inputs are known to match."""
    for lengths in zip(*(v.type.shape for v in node.inputs), strict=True):
        others = [n for n in lengths if n != 1]
        if len(others) > 1 and (None in others or len(set(others)) > 1):
            variables = [v for v, n in zip(node.inputs, lengths, strict=True) if n != 1]
            if len(set(variables)) > 1:
                return False
    return True


def _linear(node: Apply) -> Groups:
    return (
        linear_groups(scalar_op_of(node.op), len(node.inputs)) if is_float(node.outputs[0]) else ()
    )


def _zero(node: Apply) -> Groups:
    return zero_groups(scalar_op_of(node.op), len(node.inputs)) if is_float(node.outputs[0]) else ()


def _reads(node: Apply) -> Any:
    return node.inputs[1:] if is_elementwise(node, ps.Second) else node.inputs


def _errors_of_numbers(node: Apply) -> Errors:
    """The errors of scalar ops: none for integer arithmetic, as in indices, any for all others."""
    is_exact = isinstance(node.op, ps.Add | ps.Sub | ps.Mul | ps.Neg | ps.Cast) and all(
        str(getattr(v.type, "dtype", "")).startswith(("int", "uint")) for v in node.inputs
    )
    return Errors.NONE if is_exact and _has_value(node.op, node) else Errors.VALUE


register(Elemwise, elementwise_op(_errors, _linear, zero=_zero, reads=_reads))
register(
    ps.ScalarOp,
    OpFacts(structure=Structure.ELEMENTWISE, work=Work.ENTRY, errors=_errors_of_numbers),
)
