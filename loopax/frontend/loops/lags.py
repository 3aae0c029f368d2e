"""Lags and leads: several past values of a carry, or several rows ahead in a sequence.

``lag(x0, [1, 12])`` in the carry is one leaf. ``x0`` holds the last ``max(lags)`` values in order;
the step gets a tuple of the selected ones and returns one new value. The values are a `SlidingWindow`
(`loopax.ir.windows`): few of them are states in a shift register, more are rows of a ring buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor import TensorLike
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.frontend.loops.carry import in_order
from loopax.frontend.loops.joins import fitted
from loopax.frontend.loops.leaves import as_variable
from loopax.ir.ops.checked import Checked
from loopax.ir.windows import may_be_cut, sliding_window


class Lag:
    """The result of `lag`: a leaf of ``init``."""

    def __init__(self, x0: object, lags: tuple[int, ...]) -> None:
        self.x0, self.lags = x0, lags

    def __repr__(self) -> str:
        return f"lag({self.x0}, {list(self.lags)})"


class Lead:
    """The result of `lead`: a leaf of ``xs``."""

    def __init__(self, xs: object, offsets: tuple[int, ...]) -> None:
        self.xs, self.offsets = xs, offsets

    def __repr__(self) -> str:
        return f"lead({self.xs}, {list(self.offsets)})"


def lag(x0: TensorLike, lags: Sequence[int]) -> Any:
    """Give a step past values of a state, as a leaf of the carry.

    ::

        lag :: ([a], [int]) -> leaf of init; the step gets (a, ..., a) there and returns a

    Parameters
    ----------
    x0
        The values before the first step, the oldest first: a tensor with a leading axis of
        ``max(lags)`` rows.
    lags
        The past values that the step gets, in this order: 1 is the value of the previous step, 12 the
        value of twelve steps before. Lags count steps: in a loop with ``reverse=True`` the previous
        step has the next row of ``xs``, and ``x0`` ends with the value after the last row.

    Returns
    -------
    Lag
        A leaf for ``init``. In the final carry it is an array of the last ``max(lags)`` values, the
        oldest first; pass it to `lag` to continue.

    Raises
    ------
    LoopTypeError
        ``lags`` is empty or has a number below 1; ``x0`` has another number of rows than ``max(lags)``
        (an AssertionError, if that is known only when the program runs).

    Examples
    --------
    A seasonal recurrence, ``x[t] = x[t-1] + x[t-4]``:

    >>> import numpy as np
    >>> from loopax import lag, scan
    >>> def step(carry, _):
    ...     (last, season), new = carry, carry[0] + carry[1]
    ...     return new, new
    >>> final, ys = scan(step, lag(np.ones(4), [1, 4]), length=5)
    >>> ys.eval()
    array([2., 3., 4., 5., 7.])
    >>> final.eval()
    array([3., 4., 5., 7.])
    """
    return Lag(x0, _offsets(lags, 1, "lag", "the value that a step returned before"))


def lead(xs: TensorLike, offsets: Sequence[int]) -> Any:
    """Give a step several rows of a sequence, as a leaf of ``xs``.

    ::

        lead :: ([a], [int]) -> leaf of xs; the step gets (a, ..., a) there

    Parameters
    ----------
    xs
        A tensor with a leading axis (or a typed list).
    offsets
        The rows that step ``t`` gets, in this order: 0 is ``xs[t]``, 1 is ``xs[t + 1]``. Offsets count
        rows, whatever the direction of the loop. The sequence then has ``max(offsets)`` fewer steps
        than rows, but at least 0.

    Raises
    ------
    LoopTypeError
        ``offsets`` is empty or has a number below 0.

    Examples
    --------
    >>> import numpy as np
    >>> from loopax import lead, map
    >>> map(lambda x: x[1] - x[0], lead(np.array([1.0, 4.0, 9.0]), [0, 1])).eval()
    array([3., 5.])
    """
    return Lead(xs, _offsets(offsets, 0, "lead", "a row of the sequence"))


def _offsets(argument: Any, least: int, name: str, label: str) -> tuple[int, ...]:
    try:
        offsets = tuple(argument)
        are_integers = all(
            isinstance(k, int) and not isinstance(k, bool) and k >= least for k in offsets
        )
    except TypeError:
        offsets, are_integers = (), False
    if not offsets or not are_integers:
        raise LoopTypeError(
            f"{name}(..., {argument!r}): pass a list of integers from {least} on, each for {label}, "
            f"for example {name}(x, [{least}, {least + 1}])."
        )
    return offsets


class Lagged:
    """A leaf of a carry that is a window of past values; see `loopax.frontend.loops.carry.Slot`."""

    weak = False

    def __init__(self, path: str, marked: Lag, truncate_gradient: int = -1) -> None:
        self.path, self.lags = path, marked.lags
        self.truncate_gradient = truncate_gradient
        self.anchor: Any = None
        self.size = max(marked.lags)
        self.init: Any = as_variable(marked.x0, path)
        if not isinstance(self.init.type, TensorType) or self.init.type.ndim == 0:
            raise LoopTypeError(
                f"{path} is a lag of {describe(self.init)}, but lag takes a tensor with a leading "
                f"axis, the {self.size} values before the first step."
            )
        rows = self.init.type.shape[0]
        if rows not in (None, self.size):
            raise LoopTypeError(
                f"{path} is lag(x0, {[*self.lags]}), which looks back {self.size} steps, but x0 has "
                f"{rows} rows ({describe(self.init)}). Pass x0[-{self.size}:], the values before the "
                "first step, oldest first."
            )
        self.type: Any = self.init.type.clone(shape=self.init.type.shape[1:])

    def enter(self, count: Variable) -> None:
        rows = fitted(self.init, self.type)
        if rows.type.shape[0] is None:
            # Not by specify_shape: one rewrite drops it where single rows are read, another one fails.
            message = f"{self.path} is lag(x0, {[*self.lags]}): x0 must have {self.size} rows."
            rows = Checked(AssertionError, message)(rows, pt.eq(rows.shape[0], self.size))
        if may_be_cut(self.size, self.type, self.truncate_gradient):
            self.anchor = rows
        self.rows = rows
        self.window = sliding_window(rows, self.size, self.type, count, self.anchor)
        self.states = self.window.states
        self.view = tuple(self.window.read(self.size - k) for k in self.lags)

    def inits(self) -> list[Any]:
        return self.window.inits

    def nexts(self, result: Variable) -> list[Any]:
        return self.window.move({self.size: fitted(result, self.type)})

    def final(self, finals: Sequence[Variable], n_done: Variable) -> Any:
        return self.window.rows_together(finals, n_done)

    def emitted(self, result: Variable) -> Variable:
        return fitted(result, self.type)

    def all_rows(self, trace: Variable, reverse: bool) -> Any:
        return in_order(self.rows[::-1] if reverse else self.rows, trace, reverse)
