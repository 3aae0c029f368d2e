"""The sequences of a loop: their slices, the number of steps, and the rows of a step.

A typed list of tensors is captured whole and indexed in the step; everything else is sliced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable
from pytensor.typed_list import length as list_length
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops.lags import Lead
from loopax.frontend.loops.leaves import as_variable
from loopax.frontend.loops.trees import flatten, leaf_names
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.ops.checked import Checked


class Rows:
    """``xs``, flat: each leaf is one sequence, a lead is one for each of its offsets."""

    def __init__(self, xs: object, label: str) -> None:
        leaves, self.tree = flatten(xs)
        names = [f"xs{name}" for name in leaf_names(xs)]
        self.leaves = [_Leaf(n, x, label) for n, x in zip(names, leaves, strict=True)]
        self.label = label

    def steps(self, length: TensorLike | None) -> Any:
        """The number of steps, an int where it is known, else an int64 scalar.

        Raises `LoopTypeError` if there is neither ``length`` nor a sequence, or two known lengths
        differ. Other lengths are checked when the loop runs.
        """
        static_lengths = [
            (leaf.name, leaf.steps) for leaf in self.leaves if isinstance(leaf.steps, int)
        ]
        if length is not None:
            length = _as_length(length, self.label)
            if isinstance(length, int):
                static_lengths = [("length", length), *static_lengths]
        elif not self.leaves:
            raise LoopTypeError(
                f"{self.label} has neither xs nor length, so the number of steps is unknown. Pass xs, "
                "sequences with a leading axis, or length, a number of steps."
            )
        if len({n for _, n in static_lengths}) > 1:
            lines = [f"  - {name}: {n}" for name, n in static_lengths]
            lines += [
                f"  - {leaf.name}: {describe(leaf.x)}"
                for leaf in self.leaves
                if isinstance(leaf.x, Variable) and leaf.marked
            ]
            raise LoopTypeError(
                f"{self.label} is given different numbers of steps:\n" + "\n".join(lines) + "\n"
                "All sequences must have one row for each step: slice the longer ones, xs[:n]. (A lead "
                "needs as many extra rows as it looks ahead.)"
            )
        if length is not None:
            return length
        return static_lengths[0][1] if static_lengths else self.leaves[0].steps

    def checked(self, n_steps: Any) -> Any:
        """Check at run time that indexed lists have ``n_steps`` rows; return the checked number."""
        for leaf in self.leaves:
            if leaf.indexed and leaf.steps is not n_steps:
                message = (
                    f"{leaf.name} of {self.label} must have one row for each step of the loop."
                )
                n_steps = Checked(AssertionError, message)(n_steps, pt.eq(n_steps, leaf.steps))
        return n_steps

    def with_unread_checked(self, n_steps: Any, unread: Sequence[bool]) -> Any:
        """Check at run time that sequences that no step reads have ``n_steps`` rows.

        An unread sequence is removed from the loop, and the loop's own check with it.
        """
        named = [(leaf.name, x) for leaf in self.leaves for x in leaf.sequences()]
        for (name, x), skipped in zip(named, unread, strict=True):
            is_static = (
                isinstance(n_steps, Constant) and getattr(x.type, "shape", (None,))[0] is not None
            )
            if not skipped or is_static:
                continue
            rows = list_length(x) if isinstance(x.type, TypedListType) else x.shape[0]
            message = (
                f"{self.label} takes one row of each sequence at each step, but {name} does not have as "
                "many rows as there are steps."
            )
            n_steps = Checked(ValueError, message)(n_steps, pt.eq(n_steps, rows))
        return n_steps

    def sequences(self) -> list[Any]:
        return [s for leaf in self.leaves for s in leaf.sequences()]

    def dummies(self) -> list[Variable]:
        return [t(name=leaf.name) for leaf in self.leaves for t in leaf.row_types()]

    def as_indices(self, dummies: Sequence[Variable], i: TensorVariable) -> list[Any]:
        """Express ``dummies`` as step ``i`` reads them: a row of a tensor is an index into it.

        So a derivative in the step goes through the row to the variables that the sequence depends
        on.
        """
        views = [
            leaf.x[i + k if k else i] if isinstance(leaf.x.type, TensorType) else None
            for leaf in self.leaves
            for k in leaf.offsets
            if not leaf.indexed
        ]
        for row, dummy in zip(views, dummies, strict=True):
            if row is not None:
                row.name = dummy.name
        return [d if row is None else row for row, d in zip(views, dummies, strict=True)]

    def build(self, rows: Sequence[Variable], i: TensorVariable) -> Any:
        """Build the argument of step ``i`` from ``rows`` and the rows of indexed lists."""
        remaining = iter(rows)
        arguments: list[Any] = []
        for leaf in self.leaves:
            if leaf.indexed:
                rows = tuple(leaf.x[i + k if k else i] for k in leaf.offsets)
            else:
                rows = tuple(next(remaining) for _ in leaf.offsets)
            arguments.append(rows if leaf.marked else rows[0])
        return self.tree.build(arguments)


class _Leaf:
    def __init__(self, name: str, x: object, label: str) -> None:
        self.name, self.marked = name, isinstance(x, Lead)
        self.offsets = x.offsets if isinstance(x, Lead) else (0,)
        sequence: Any = as_variable(x.xs if isinstance(x, Lead) else x, name)
        self.x = sequence
        is_list = isinstance(self.x.type, TypedListType)
        # Tensors in a list may have different shapes, and cannot be stacked to a sequence.
        self.indexed = is_list and isinstance(self.x.type.ttype, TensorType)
        if not is_list and not (isinstance(self.x.type, TensorType) and self.x.type.ndim):
            raise LoopTypeError(
                f"{name} is {describe(self.x)}, but {label} takes one row of it at each step, so it "
                "must be a tensor with a leading axis, or a typed list. (A Python list is a tree of "
                "sequences: np.array(...) of it is one sequence. If every step needs the whole value, "
                "use it in the step: loopax captures it automatically.)"
            )
        n = None if is_list else self.x.type.shape[0]
        ahead = max(self.offsets)
        if n is not None:
            self.steps: Any = max(n - ahead, 0)
        else:
            rows: Any = list_length(self.x) if is_list else self.x.shape[0]
            self.steps = pt.maximum(rows - ahead, 0) if ahead else rows

    def row_types(self) -> list[Any]:
        if self.indexed:
            return []
        t = self.x.type
        row = t.ttype if isinstance(t, TypedListType) else t.clone(shape=t.shape[1:])
        return [row for _ in self.offsets]

    def sequences(self) -> list[Any]:
        if self.indexed:
            return []
        ahead = max(self.offsets)
        return [
            self.x[k : k - ahead] if k < ahead else self.x[k:] if k else self.x
            for k in self.offsets
        ]


def _as_length(length: TensorLike, label: str) -> Any:
    if isinstance(length, np.ndarray) and length.ndim == 0:
        length = length[()]
    if isinstance(length, Variable):
        t = length.type
        if isinstance(t, TensorType) and t.ndim == 0 and t.dtype in pt.type.integer_dtypes:
            return INDEX_TYPE.filter_variable(pt.cast(length, "int64"))
    elif isinstance(length, int | np.integer) and not isinstance(length, bool) and length >= 0:
        return int(length)
    description = describe(length) if isinstance(length, Variable) else repr(length)
    raise LoopTypeError(
        f"length of {label} must be an integer from 0 on, or an integer scalar variable, got "
        f"{description}."
    )
