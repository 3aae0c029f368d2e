"""Where the elements of a value are: in locals, in memory, or computed when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopax.numba_backend.emit.axes import Axes
from loopax.numba_backend.emit.expressions import Dim, Expr, call, dtype_name, tuple_of
from loopax.numba_backend.emit.statements import Assign, Block
from loopax.numba_backend.emit.values import (
    Array,
    At,
    Position,
    Small,
    Value,
    Virtual,
    is_static,
)

_SHORT = 64  # up to so many elements of a row, rows are not looped over


class Storage(Axes):
    """A writer that knows where values are."""

    def constant_value(self, v: Any) -> Any:
        """A constant of any type; None and slices are themselves."""
        raise NotImplementedError

    def reads_at_positions(self, value: Value) -> bool:
        """Whether an element of ``value`` can be read at a `Position`."""
        if isinstance(value, Virtual):
            return value.reads_at_positions
        return isinstance(value, Array) and value.compact

    def is_worth_coalescing(self, value: Value) -> bool:
        """Whether one loop over all of ``value`` is faster than one for each axis.

        For each row of a few elements a vectorized loop begins anew and looks whether memory overlaps:
        300 x 12 elements of a few arrays take 5.7 us in two loops and 2.3 in one.
        """
        shape = value.shape
        if len(shape) < 2 or not self.reads_at_positions(value) or self.is_small(shape):
            return False
        last = shape[-1]
        return isinstance(last, int) and 1 < last <= _SHORT

    def read(self, value: Value, at: At) -> Expr:
        """The element at an index, as a local or a literal."""
        if isinstance(value, Virtual):
            return value.at(at)
        if isinstance(at, Position):
            return self.temp(self._in_line(value)[at.index])
        if isinstance(value, Array):
            here = value.name[at]
            # LLVM would read it at each step: it cannot know that another array is written to.
            if not self.scopes.frames and (loop := self.loop_over_others(at)) is not None:
                return self.before_loop(loop, here, at, "t")
            return self.temp(here)
        if value.elements.size == 1:
            return value.elements.item()
        if not is_static(at):  # a rule that reads many asks for `indexable` before its loop
            return self.read(self.dense(value), at)
        return value.elements[tuple(at)]

    def _in_line(self, value: Any) -> Expr:
        """The array ``value`` with one axis: a view, made in front of the innermost loop.

        Anew for each loop: what is a state's may be another array behind a step.
        """
        view = call("in_line", value.name)
        loop = next(scope for scope in reversed(self.scopes.open) if scope.index is not None)
        if view not in loop.known:
            loop.known[view] = self.local("line")
            loop.before.add(Assign((loop.known[view],), view))
        return loop.known[view]

    def scalar(self, value: Value) -> Expr:
        """The one element of a scalar."""
        return self.read(value, [0] * len(value.shape))

    def new_locals(self, shape: Sequence[Any], dtype: str, hint: str) -> Small:
        """A new local for each element of an array."""
        elements = np.empty(shape, dtype=object)
        for at in np.ndindex(*shape):
            elements[at] = self.local(hint)
        return Small(elements, dtype)

    def in_locals(self, value: Value, shape: Any = None) -> Small:
        """``value``, of static shape, with each element in a local."""
        if isinstance(value, Small):
            return value
        shape = value.shape if shape is None else shape  # a type may know more than the value
        elements = np.empty(shape, dtype=object)
        for at in np.ndindex(*shape):
            elements[at] = self.read(value, at)
        return Small(elements, value.dtype)

    def dense(self, value: Value) -> Array:
        """``value`` in memory: itself where it is there."""
        if isinstance(value, Array):
            return value
        if isinstance(value, Small):
            level = self.scopes.level(*value.elements.flat)
            if level < self.scopes.depth:
                return self._table(value, level)
        return self.fresh(value)

    def _table(self, value: Small, level: int) -> Array:
        """Locals that no step changes, in memory, where a step is to find them by their index."""
        key = (value.dtype, value.elements.shape, *value.elements.flat)
        name = self.scopes.known(key)
        if name is None:
            around, loop = self.scopes.frame(level)
            around.known[key] = name = self.room(value.shape, value.dtype, loop.before)
            self.scopes.define([name], level)
            for at, x in np.ndenumerate(value.elements):
                loop.before.add(Assign((name[at],), x))
        return Array(name, value.shape, value.dtype, compact=True)

    def fresh(self, value: Value, reuse: bool = True) -> Array:
        """A copy in memory that nothing else sees, in C order; `empty` says what ``reuse`` is."""
        name = self.empty(value.shape, value.dtype, reuse=reuse)
        self.copy(value, name)
        return Array(name, value.shape, value.dtype, fresh=True, compact=True)

    def copy(self, value: Value, name: Expr) -> None:
        """Write the elements of ``value`` into the array ``name``."""
        if isinstance(value, Virtual) and value.empty:
            return
        if isinstance(value, Small):
            for at in np.ndindex(*value.elements.shape):
                self.set(name[at], value.elements[at])
            return
        if self.is_worth_coalescing(value):
            whole = Array(name, value.shape, value.dtype, compact=True)
            with self.loop_over_positions(value.shape) as position:
                found = self.read(value, position)
                self.set(self._in_line(whole)[position.index], found)
            return
        with self.loops(value.shape) as outer:
            for at in outer:
                self.set(name[at], self.read(value, at))

    def empty(self, shape: Sequence[Dim], dtype: str, hint: str = "a", reuse: bool = True) -> Expr:
        """Room for an array, in C order. In a loop it is one for all steps, if its shape is."""
        shape = [self.scopes.canonical(n) for n in shape]
        for n in shape:
            self.note_length(n)
        level = self.scopes.level(*shape)
        if not reuse or level >= self.scopes.depth:
            return self.temp(new_array(shape, dtype), hint)
        name = self.room(shape, dtype, self.scopes.frame(level)[1].before, hint)
        self.scopes.define([name], level)
        self.scopes.rooms.add(name)
        return name

    def room(self, shape: Sequence[Dim], dtype: str, place: Block, hint: str = "a") -> Expr:
        """An array that is made at another place, which may come before the check of a length."""
        name = self.local(hint)
        lengths = [n if isinstance(n, int) else call("max", n, 0) for n in shape]
        place.add(Assign((name,), new_array(lengths, dtype)))
        return name

    def is_room(self, array: Array) -> bool:
        """Whether the memory of ``array`` has been there before the innermost loop, for each step."""
        return array.name in self.scopes.rooms

    def indexable(self, value: Value) -> Value:
        """``value``, such that an index that is not static can be read."""
        return self.dense(value) if isinstance(value, Small) and value.elements.size != 1 else value

    def for_scalar_code(self, value: Value) -> Value:
        """``value``, to be read in a loop that is no vector code: functions are behind it.

        ``exp`` takes 5 ns there and 0.5 in a loop of its own, with AVX-512; to store an element and read
        it takes 0.2.
        """
        return self.indexable(self.apart(value))

    def apart(self, value: Any) -> Any:
        """``value``, in memory if there are functions in it: those have a loop of their own."""
        slow = isinstance(value, Virtual) and value.has_functions
        return self.dense(value) if slow else value

    def array(self, name: Expr, variable: Any, fresh: bool = False) -> Array:
        """The `Array` of a local, its dimensions those that the type of ``variable`` gives."""
        shape = tuple(
            self.number(name.length(k), "n") if n is None else n
            for k, n in enumerate(variable.type.shape)
        )
        self.scopes.lengths.update(n for n in shape if isinstance(n, Expr))
        return Array(name, shape, variable.type.dtype, fresh)

    def argument(self, k: int, name: Expr, variable: Any, known: dict[int, int]) -> Array:
        """Argument ``k`` as an array, of which the lengths of some axes are known."""
        shape = list(variable.type.shape)
        for axis, n in enumerate(shape):
            if n is None:
                n = known.get(axis) or self.number(name.length(axis), "n")
                if isinstance(n, Expr):
                    self.axes[n] = (k, axis)
                    self.scopes.lengths.add(n)
                shape[axis] = n
        return Array(name, tuple(shape), variable.type.dtype, compact=True)

    def contiguous(self, value: Value) -> Expr:
        """``value`` in memory, row by row or column by column, as products take it."""
        if isinstance(value, Virtual) and value.view is not None:
            return self.number(value.view, "a")
        if isinstance(value, Array) and not value.compact:
            return self.number(call("np.ascontiguousarray", value.name), "a")
        return self.dense(value).name


def new_array(shape: Sequence[Dim], dtype: str) -> Expr:
    """An array that nobody has written to."""
    return call("empty", tuple_of(shape), dtype_name(dtype))
