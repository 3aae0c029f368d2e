"""The types of a carry: a fixpoint, found by calling the step until it returns the types that it got.

A leaf starts with the type of its initial value. Where the step returns another type, the leaf takes
the join of the two (`joined`), and the step is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import append, insert

from loopax.base.errors import LoopTypeError
from loopax.frontend.loops.joins import fitted, joined, mark_unsettled, may_rise
from loopax.frontend.loops.leaves import as_variable, is_weak
from loopax.frontend.loops.trees import Tree, flatten, leaf_names
from loopax.frontend.loops.widened_starts import collected_messages, warn_of_widened_starts

# A bound: a leaf changes its dtype at most once for each dtype of PyTensor.
_DTYPES = 14


class Slot:
    """A leaf of a carry: one state of the loop, whose type may still rise.

    `Lagged` (in lags.py) is the other kind, a leaf that is a window of past values.
    """

    def __init__(self, path: str, x: Any) -> None:
        self.path = path
        # A weak type, which yields to the type of any value that it is joined with; see `settle`.
        self.weak = is_weak(x)
        self.init: Any = as_variable(x, path)
        if self.weak:
            self.init = pt.as_tensor(x)
        self.type: Any = self.init.type

    def enter(self, count: Variable) -> None:
        """Create new dummies; ``count`` is the number of steps before this one."""
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
        """The row of a step, if the loop returns the carries of all steps."""
        return fitted(result, self.type)

    def all_rows(self, trace: Variable, reverse: bool) -> Any:
        """The carry before the first step and ``trace``, the later ones, in the order of the rows."""
        (init,) = self.inits()
        if isinstance(self.type, DenseTensorType):
            return in_order(pt.shape_padleft(init), trace, reverse)
        return (
            append(trace, init) if reverse else insert(trace, pt.constant(0, dtype="int64"), init)
        )


def in_order(initial_rows: Variable, trace: Variable, reverse: bool) -> Any:
    """Join the rows before the first step and the ``trace`` of a loop, in the order of the rows."""
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

    ``trace`` is called with a function that makes the slots' dummies.

    Every call but the last two raises the type of a slot, and a type only rises: its dtype in the order of
    `joins._rank`, which has `_DTYPES` levels; a dimension of its shape once, from known to unknown; and a
    weak integer once, to int64. So the number of calls has the bound below; in practice it is two. The
    second to last call is for inner loops that were lenient because types had not settled.
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
    """The leaves of the carry that a step returned, whose structure must equal the initial one's."""
    leaves, result_tree = flatten(result)
    if result_tree != tree:
        expected_names, result_names = [*names], ["carry" + name for name in leaf_names(result)]
        lines = [f"  - {name} is missing" for name in expected_names if name not in result_names]
        lines += [
            f"  - {name} was not there" for name in result_names if name not in expected_names
        ]
        returns = (
            "A step returns (carry, y), or (carry, y, stop), and its carry must have"
            if label.partition(" ")[0] == "scan"
            else "It returns the next carry alone, which must have"
        )
        raise LoopTypeError(
            f"The step of {label} returns a carry of another structure than it received.\n"
            + "".join(f"{line}\n" for line in lines)
            + f"  in:  {_structure(tree)}\n  out: {_structure(result_tree)}\n"
            f"{returns} the structure of the initial one, because the next step receives it. (A lag is "
            "one leaf: the step gets its past values and returns one new value.)"
        )
    return [as_variable(x, name) for x, name in zip(leaves, names, strict=True)]


def _structure(tree: Tree) -> str:
    boxes = "".join(f", {box}" for box in tree.boxes if box)
    return str(tree.treedef) + boxes
