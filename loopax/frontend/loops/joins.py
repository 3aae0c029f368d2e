"""The join of two types of a leaf: the type that holds the values of both types.

A join is one of:

- a wider type of the same kind: int32 and int64, float32 and float64 (or complex); with a warning where
  the start had fewer digits (`widened_starts`);
- any type "above" a constant's whose values hold the constant exactly: PyTensor makes ``0`` an int8 and
  ``0.5`` a float32 because they fit, which is not the user's problem in a float64 loop;
- a static shape forgotten where it differs, dimension by dimension, at the same rank.

Everything else is a `LoopTypeError`. An integer *variable* never becomes a float: it may be an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops.leaves import CarryLeaf, exact_in

_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}


def joined(slot: CarryLeaf, result: Variable, label: str) -> Any:
    """The type that holds the slot's values so far and ``result``, or raise a `LoopTypeError`."""
    slot_type, result_type = slot.type, result.type
    if slot_type == result_type or slot_type.is_super(result_type):
        return slot_type
    reason = f"Start from a value of type {result_type}, or return one of type {slot_type}."
    if isinstance(slot_type, TensorType) and isinstance(result_type, TensorType):
        if slot_type.ndim != result_type.ndim:
            reason = (
                f"The rank is {slot_type.ndim} going in and {result_type.ndim} coming out, and no rule "
                "says where to add an axis. Start from an array of the result's shape, for example "
                "pt.zeros(shape), or return a value that has the rank of the initial one."
            )
        else:
            dtype, reason = _joined_dtype(slot, result)
            if dtype:
                shape = [
                    a if a == b else None
                    for a, b in zip(slot_type.shape, result_type.shape, strict=True)
                ]
                return slot_type.clone(dtype=dtype, shape=tuple(shape))
    elif result_type.is_super(slot_type):
        return result_type
    raise LoopTypeError(
        f"{label} changes the type of its carry: {slot.path} is {slot_type} going into the step and "
        f"{result_type} coming out of it.\n  in:  {_described(slot.init)}\n  out: "
        f"{_described(result)}\n{reason}"
    )


def _described(v: Variable) -> str:
    if isinstance(v, Constant) and isinstance(v.type, TensorType):
        return f"the constant {_short(v)} of type {v.type}"
    return describe(v)


def _short(v: Constant) -> str:
    return np.array2string(np.asarray(v.data), threshold=4, edgeitems=1).replace("\n", "")


def _rank(dtype: str) -> tuple[int, int, bool]:
    """The rank of a dtype in the order in which dtypes rise."""
    d = np.dtype(dtype)
    return _KINDS[d.kind], d.itemsize, d.kind == "u"


def _joined_dtype(slot: CarryLeaf, result: Variable) -> tuple[str, str]:
    """The dtype that holds both, or ``""`` and the reason why there is none."""
    slot_dtype, result_dtype = slot.type.dtype, result.type.dtype
    initial: Any = slot.init
    if slot_dtype == result_dtype:
        return slot_dtype, ""
    if isinstance(result, Constant) and exact_in(result, slot_dtype):
        return slot_dtype, ""
    if (common := join_of_kind(slot_dtype, result_dtype)) is not None:
        return common, ""
    if isinstance(initial, Constant) and _rank(result_dtype) > _rank(slot_dtype):
        if exact_in(initial, result_dtype):
            return result_dtype, ""
        return "", (
            f"Its initial value, {_short(initial)}, is not exact in {result_dtype}. Start from a "
            f"value that is, for instance np.asarray({_short(initial)}, '{result_dtype}'), which "
            "rounds it."
        )
    name = initial.name or "init"
    if _rank(slot_dtype)[0] == 1 and _rank(result_dtype)[0] == 2:
        if is_unsettled(initial):
            return result_dtype, ""
        return "", (
            "An integer variable is not made a float unasked: start from a float, "
            f"{name}.astype('{result_dtype}'), or return an integer, result.astype('{slot_dtype}')."
        )
    return (
        "",
        f"Start from {name}.astype('{result_dtype}'), or return result.astype('{slot_dtype}').",
    )


def join_of_kind(a: str, b: str) -> str | None:
    """The dtype of the same kind (bool; integers; floats and complex) that holds both exactly."""
    common = np.promote_types(a, b).name
    is_same_kind = _rank(a)[0] == _rank(b)[0] == _rank(common)[0]
    return common if is_same_kind else None


def may_rise(slot: CarryLeaf) -> bool:
    """Whether the slot is an integer that may still become a float."""
    dtype = getattr(slot.type, "dtype", "")
    if dtype not in pt.type.integer_dtypes:
        return False
    return isinstance(slot.init, Constant) or is_unsettled(slot.init)


def mark_unsettled(dummies: Sequence[Variable], leniences: list[Any]) -> None:
    """Mark the dtype of ``dummies`` as not yet known.

    An inner loop that starts from one, or a branch that returns one, must then accept it although it is an
    integer; if it converts it to a float it records that in ``leniences``.
    """
    for v in dummies:
        v.tag.leniences = leniences


def is_unsettled(v: Variable) -> bool:
    """Whether ``v`` depends on a dummy of unknown dtype; if so, record a lenience."""
    records = [x.tag.leniences for x in ancestors([v]) if hasattr(x.tag, "leniences")]
    for leniences in records:
        leniences.append(v)
    return bool(records)


def fitted(v: Variable, kind: Any) -> Any:
    """Convert ``v`` to the type ``kind``, which holds it by `joined`."""
    if isinstance(v.type, TensorType) and v.type.dtype != kind.dtype:
        if isinstance(v, Constant):
            return pt.constant(np.asarray(v.data).astype(kind.dtype), name=v.name)
        return pt.cast(v, kind.dtype)
    return v
