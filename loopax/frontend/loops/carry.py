"""The types of a carry: a fixpoint, by calling the step until it returns the types that it got.

A leaf starts with the type of its initial value. Where the step returns another type, the leaf takes
the join of the two, and the step is called again. A join is one of:

- a wider type of the same kind: int32 and int64, float32 and float64 (or complex); with a warning where
  the start had fewer digits (`widened_starts`);
- any type "above" a constant's whose values hold the constant exactly: PyTensor makes ``0`` an int8 and
  ``0.5`` a float32 because they fit, which is not the user's problem in a float64 loop;
- a static shape forgotten where it differs, dimension by dimension, at the same rank.

Everything else is a `LoopTypeError`. An integer *variable* never becomes a float: it may be an index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import DenseTensorType, TensorType
from pytensor.typed_list import append, insert

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops.leaves import CarryLeaf, as_variable, exact_in, is_weak
from loopax.frontend.loops.trees import Tree, flatten, leaf_names
from loopax.frontend.loops.widened_starts import collected_messages, warn_of_widened_starts

# A bound: one change for each dtype of PyTensor to which a leaf can rise.
_DTYPES = 14
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}


class Slot:
    """A leaf of a carry: one state of the loop, whose type may still rise.

    `Lagged` (in lags.py) is the other kind, a leaf that is a window of past values.
    """

    def __init__(self, path: str, x: Any) -> None:
        self.path = path
        # The smallest type, which yields to the type of any value that it is joined with; see `settle`.
        self.weak = is_weak(x)
        self.init: Any = as_variable(x, path)
        if self.weak:
            self.init = pt.as_tensor(x)
        self.type: Any = self.init.type

    def enter(self, count: Variable) -> None:
        """Create new dummies. ``count`` is the number of steps taken before this one."""
        self.states = [self.type(name=self.path)]
        self.view: Any = self.states[0]

    def inits(self) -> list[Any]:
        return [fitted(self.init, self.type)]

    def nexts(self, result: Variable) -> list[Any]:
        return [fitted(result, self.type)]

    def final(self, finals: Sequence[Variable], n_done: Variable) -> Any:
        """The loop's result for this leaf, from the final states."""
        return finals[0]

    def emitted(self, result: Variable) -> Variable:
        """The row of a step where the loop returns the carries of all steps."""
        return fitted(result, self.type)

    def all_rows(self, trace: Variable, reverse: bool) -> Any:
        """The carry before the first step and ``trace``, those after each, in the order of the rows."""
        (init,) = self.inits()
        if isinstance(self.type, DenseTensorType):
            return in_order(pt.shape_padleft(init), trace, reverse)
        return (
            append(trace, init) if reverse else insert(trace, pt.constant(0, dtype="int64"), init)
        )


def in_order(initial_rows: Variable, trace: Variable, reverse: bool) -> Any:
    """The rows before the first step and the ``trace`` of a loop, in the order of the rows."""
    return pt.concatenate([trace, initial_rows] if reverse else [initial_rows, trace])


class Traced(NamedTuple):
    """The result of a call of a step, and the dummies of that call."""

    i: Variable
    rows: list[Variable]
    row_views: list[Any]  # the rows in the form that the step reads
    carry: list[Variable]  # one leaf for each slot
    ys: list[Variable]
    y_names: list[str]
    ys_tree: Tree
    stop: Any


def settle(slots: Sequence[Any], trace: Callable[[Any], Traced], label: str) -> Traced:
    """Call ``trace`` until each slot has the type that the step returns for it.

    ``trace`` is given a function that makes the slots' dummies.

    Every call but the last two raises the type of a slot, and a type only rises: its dtype in the
    order of `_rank`, which has `_DTYPES` levels, a dimension of its shape from known to unknown,
    once, and a weak integer to int64, once. So the number of calls has the bound below; in practice
    it is two. The last call but one is for inner loops that were lenient because of types that had
    not settled.
    """
    bound = 3 + sum(_DTYPES + 1 + getattr(s.type, "ndim", 0) for s in slots)
    lenient = True
    for _ in range(bound):
        leniences: list[Any] = []

        def enter(
            count: Variable, leniences: list[Any] | None = leniences if lenient else None
        ) -> None:
            for slot in slots:
                slot.enter(count)
                if leniences is not None and may_rise(slot):
                    mark_unsettled(slot.states, leniences)

        with collected_messages() as messages:
            traced = trace(enter)
        changed, faults = [], []
        for slot, result in zip(slots, traced.carry, strict=True):
            try:
                joint_type = joined(slot, result, label)
            except LoopTypeError as error:
                # The error counts once all other slots have settled: the result may depend on them.
                faults.append(error)
            else:
                changed += [slot] * (slot.type != joint_type)
                slot.type = joint_type
        # A remaining weak integer gets the width of a Python int.
        changed = changed or [s for s in slots if s.weak and _widened(s)]
        if changed:
            continue
        if faults:
            raise faults[0]
        if leniences:
            lenient = False  # types have settled: inner loops must accept them now
            continue
        warn_of_widened_starts(slots, label, messages)
        return traced
    raise AssertionError(f"the carry of {label} does not settle: {[s.type for s in slots]}")


def _widened(slot: Slot) -> bool:
    slot.weak = False
    rises = slot.type.dtype != "int64" and np.can_cast(slot.type.dtype, "int64", "safe")
    if rises and slot.type.dtype != "bool":
        slot.type = slot.type.clone(dtype="int64")
        return True
    return False


def carry_leaves(result: object, names: Sequence[str], tree: Tree, label: str) -> list[Variable]:
    """The leaves of the carry that a step returned, which must have the structure of the one it got."""
    leaves, result_tree = flatten(result)
    if result_tree != tree:
        expected_names, result_names = [*names], ["carry" + name for name in leaf_names(result)]
        lines = [f"  - {name} is missing" for name in expected_names if name not in result_names]
        lines += [
            f"  - {name} was not there" for name in result_names if name not in expected_names
        ]
        raise LoopTypeError(
            f"The step of {label} returns a carry of another structure than it received.\n"
            + "".join(f"{line}\n" for line in lines)
            + f"  in:  {_structure(tree)}\n  out: {_structure(result_tree)}\n"
            "A step returns (carry, y), or (carry, y, stop), and its carry must have the structure of "
            "the initial one, because the next step receives it. (A lag is one leaf: the step gets "
            "its past values and returns one new value.)"
        )
    return [as_variable(x, name) for x, name in zip(leaves, names, strict=True)]


def _structure(tree: Tree) -> str:
    boxes = "".join(f", {box}" for box in tree.boxes if box)
    return str(tree.treedef) + boxes


def joined(slot: CarryLeaf, result: Variable, label: str) -> Any:
    """The type that holds both the slot's values so far and ``result``, or a `LoopTypeError`."""
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
    if isinstance(initial, Constant):
        if _rank(result_dtype) > _rank(slot_dtype) and exact_in(initial, result_dtype):
            return result_dtype, ""
        if _rank(result_dtype) > _rank(slot_dtype):
            return "", (
                f"Its initial value, {_short(initial)}, is not exact in {result_dtype}. Start from a "
                f"value that is, for instance np.asarray({_short(initial)}, '{result_dtype}'), which "
                "rounds it."
            )
    if _rank(slot_dtype)[0] == 1 and _rank(result_dtype)[0] == 2 and is_unsettled(initial):
        return result_dtype, ""
    name = initial.name or "init"
    if _rank(slot_dtype)[0] == 1 and _rank(result_dtype)[0] == 2:
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
    """Whether the slot is an integer that may yet turn out to be a float."""
    dtype = getattr(slot.type, "dtype", "")
    if dtype not in pt.type.integer_dtypes:
        return False
    return isinstance(slot.init, Constant) or is_unsettled(slot.init)


def mark_unsettled(dummies: Sequence[Variable], leniences: list[Any]) -> None:
    """Mark the dtype of ``dummies`` as not known yet.

    An inner loop that starts from one, or a branch that returns one, must then not refuse it for
    being an integer; if it turns it into a float it records that in ``leniences``.
    """
    for v in dummies:
        v.tag.leniences = leniences


def is_unsettled(v: Variable) -> bool:
    """Whether ``v`` depends on a dummy whose dtype is not known yet, which records a lenience."""
    records = [x.tag.leniences for x in ancestors([v]) if hasattr(x.tag, "leniences")]
    for leniences in records:
        leniences.append(v)
    return bool(records)


def fitted(v: Variable, kind: Any) -> Any:
    """``v`` as a value of type ``kind``, which holds it by `joined`."""
    if isinstance(v.type, TensorType) and v.type.dtype != kind.dtype:
        if isinstance(v, Constant):
            return pt.constant(np.asarray(v.data).astype(kind.dtype), name=v.name)
        return pt.cast(v, kind.dtype)
    return v
