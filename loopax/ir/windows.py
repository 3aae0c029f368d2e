"""A sliding window of rows, carried through a loop: the form of taps and MIT-MOT buffers.

Step ``t`` of a legacy loop sees rows ``t + 0 .. t + C`` of a buffer: ``C`` carried ones and one that
enters (an incoming row, or the row that the step computes). Then the window moves by one: row 0
leaves, and rows 1 to ``C`` are carried on.

    carried     row 0  row 1  ...  row C-1
    enters                                  row C
    next        row 1  row 2  ...  row C        and row 0 leaves

Two representations share one interface. `Registers` holds each row in its own state: no indexing, and
XLA or Numba choose where to keep the rows; each step moves ``C`` rows. `Ring` holds one state of
``C`` rows and moves none, at the cost of an indexed read per tap: row ``j`` of step ``t`` lies in
slot ``(t + j) mod C``, so the row that enters, ``(t + C) mod C``, takes the slot of the row that leaves,
``t mod C``.

In a loop with a truncated gradient no value carried through the truncated steps has a derivative. But an
initial row that was only moved there is not a step's result: the last steps may look back to an initial row
itself, and its derivative counts, as in `pytensor.scan`. `Anchored` reads these rows from a constant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import set_subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

WIDEST_REGISTERS = 8  # moving all of 12 rows of 100 floats costs XLA 3 times the ring's write


class SlidingWindow(ABC):
    """The ``size`` carried rows, as states of the body with their initial values ``inits``."""

    size: int
    row_type: Any
    i: Any
    inits: list[Any]
    states: list[Any]

    @abstractmethod
    def read(self, j: int) -> Variable:
        """Row ``j`` of the carried rows, ``0 <= j < size``, inside the body."""

    @abstractmethod
    def move(self, new_rows: dict[int, Any]) -> list[Any]:
        """The next states, from the rows that this step wrote; row ``size`` must be among them."""

    @abstractmethod
    def rows_after(self, finals: Sequence[Any], n_steps: Variable | int) -> list[Any]:
        """The carried rows after the last step, one by one and in order, from the final states."""

    def rows_together(self, finals: Sequence[Variable], n_steps: Variable) -> Variable:
        """The carried rows after the last step as one tensor."""
        return pt.stack(self.rows_after(finals, n_steps))


class Registers(SlidingWindow):
    def __init__(self, rows: TensorVariable, size: int, row_type: Type, i: Variable) -> None:
        self.size, self.row_type, self.i = size, row_type, i
        row = _unexpanded(rows) if size == 1 else None
        self.inits = [rows[j] for j in range(size)] if row is None else [row]
        self.states = [row_type() for _ in range(size)]

    def read(self, j: int) -> Variable:
        return self.states[j]

    def move(self, new_rows: dict[int, Any]) -> list[Any]:
        return [
            new_rows.get(j, self.states[j] if j < self.size else None)
            for j in range(1, self.size + 1)
        ]

    def rows_after(self, finals: Sequence[Variable], n_steps: Variable | int) -> list[Any]:
        return list(finals)


class Ring(SlidingWindow):
    def __init__(self, rows: Variable, size: int, row_type: TensorType, i: Variable) -> None:
        self.size, self.row_type, self.i = size, row_type, i
        self.inits = [rows]
        self.states = [row_type.clone(shape=(size, *row_type.shape))()]

    def _slot(self, j: int) -> Any:
        return (self.i + j) % self.size

    def read(self, j: int) -> Variable:
        return self.states[0][self._slot(j)]

    def move(self, new_rows: dict[int, Any]) -> list[Any]:
        ring = self.states[0]
        for j, value in new_rows.items():
            if j > 0:  # row 0 leaves
                ring = set_subtensor(ring[self._slot(j)], value)
        return [ring]

    def rows_after(self, finals: Sequence[TensorVariable], n_steps: TensorVariable) -> list[Any]:
        return [finals[0][(n_steps + j) % self.size] for j in range(self.size)]

    def rows_together(self, finals: Sequence[TensorVariable], n_steps: Variable) -> Variable:
        # A gather: its shape does not depend on the value of n_steps, which may not be known.
        return finals[0][(n_steps + pt.arange(self.size)) % self.size]


class Anchored(SlidingWindow):
    """A window that reads its initial rows from ``start``, the step's constant for ``rows``.

    Row ``j`` of step ``t`` is an initial one where ``t + j < size``.
    """

    def __init__(self, moving: SlidingWindow, rows: TensorVariable, start: TensorVariable) -> None:
        self.moving, self.rows, self.start = moving, rows, start
        self.size, self.row_type, self.i = moving.size, moving.row_type, moving.i
        self.inits, self.states = moving.inits, moving.states

    def _anchored(
        self, n_steps: TensorVariable, j: int, rows: TensorVariable, row: Variable
    ) -> Any:
        position = n_steps + j
        chosen = pt.switch(position < self.size, rows[pt.minimum(position, self.size - 1)], row)
        return self.row_type.filter_variable(chosen)

    def read(self, j: int) -> Variable:
        return self._anchored(self.i, j, self.start, self.moving.read(j))

    def move(self, new_rows: dict[int, Any]) -> list[Any]:
        return self.moving.move(new_rows)

    def rows_after(self, finals: Sequence[Variable], n_steps: TensorVariable) -> list[Any]:
        rows = self.moving.rows_after(finals, n_steps)
        return [self._anchored(n_steps, j, self.rows, row) for j, row in enumerate(rows)]


def sliding_window(
    rows: TensorVariable,
    size: int,
    row_type: TensorType,
    i: Variable,
    start: TensorVariable | None = None,
) -> SlidingWindow:
    """Build a window in the representation that suits ``size``.

    ``start`` is the step's constant for ``rows``, in a loop with a truncated gradient.
    """
    kind = Registers if size <= WIDEST_REGISTERS else Ring
    rows = pt.as_tensor(rows)
    w = kind(rows, size, row_type, i)
    return w if start is None else Anchored(w, rows, start)


def may_be_cut(size: int, row_type: TensorType, truncate_gradient: int) -> bool:
    """Whether a step with a derivative may read an initial row that steps without one have moved."""
    return truncate_gradient >= 0 and size > 1 and row_type.dtype.startswith(("float", "complex"))


def _unexpanded(rows: Variable) -> Any:
    """``x`` where ``rows`` is ``x[None]``, else None."""
    if rows.owner is not None and isinstance(rows.owner.op, DimShuffle):
        x = rows.owner.inputs[0]
        if tuple(rows.owner.op.new_order) == ("x", *range(x.type.ndim)):
            return x
    return None
