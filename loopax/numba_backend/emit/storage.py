"""Storage of the elements of a value: in locals, in memory, or computed by their reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable

from loopax.numba_backend.emit.axes import Axes
from loopax.numba_backend.emit.expressions import (
    Dim,
    Expr,
    as_element,
    call,
    dtype_name,
    literal,
    tuple_of,
)
from loopax.numba_backend.emit.statements import Assign, Block, Do
from loopax.numba_backend.emit.values import (
    Array,
    At,
    Position,
    Run,
    Small,
    Value,
    View,
    Virtual,
    has_functions,
    indices_of,
    is_cheap,
    is_static,
)

_SHORT = 64  # the most elements of a row whose array is looped over as a whole


class Storage(Axes):
    """A writer that moves values between locals and memory."""

    def constant_value(self, v: Constant) -> Any:
        """Emit a constant of any type; None and slices are returned unchanged."""
        raise NotImplementedError

    def reads_at_positions(self, value: Value) -> bool:
        """Whether an element of ``value`` can be read at a `Position`."""
        if isinstance(value, Virtual):
            return value.reads_at_positions or value.run is not None
        return isinstance(value, Array) and value.compact

    def is_worth_coalescing(self, value: Value) -> bool:
        """Whether one loop over all of ``value`` is faster than a nest with one loop for each axis.

        A vectorized loop starts again for each short row, with a check for overlapping memory: 300 x 12
        elements of a few arrays take 5.7 us in two loops and 2.3 in one. Rows of unknown length may be
        long, which makes no difference, or short: then functions, slow for elements that fill no vector,
        cost most. ``exp`` of 20 x 20 elements takes 0.54 us in two loops and 0.23 in one.
        """
        shape = value.shape
        if len(shape) < 2 or not self.reads_at_positions(value) or self.is_small(shape):
            return False
        last = shape[-1]
        return 1 < last <= _SHORT if isinstance(last, int) else has_functions(value)

    def read(self, value: Value, at: At) -> Expr:
        """The element of ``value`` at an index, as a local or a literal."""
        if isinstance(at, Position) and (run := self.run_of(value)) is not None:
            position = at.index if run.start == 0 else self.number(at.index + run.start)
            return self.temp(self._in_line(run.name)[position])
        if isinstance(value, Virtual):
            return value.at(at)
        assert not isinstance(at, Position)  # see `reads_at_positions`
        if isinstance(value, Array):
            element = value.name[at]
            # LLVM would load it at each step: it cannot prove that stores go to another array.
            if not self.scopes.frames and (loop := self.loop_over_others(at)) is not None:
                return self.before_loop(loop, element, at, "t")
            return self.temp(element)
        if value.elements.size == 1:
            return value.elements.item()
        if not is_static(at):  # a rule with many such reads calls `indexable` before its loop
            return self.read(self.dense(value), at)
        return value.elements[tuple(at)]

    def _in_line(self, name: Expr) -> Expr:
        """A view of the array ``name`` with one axis, assigned in front of the innermost loop.

        Each loop has its own view, since the array of a state may change between steps.
        """
        view = call("in_line", name)
        loop = next(scope for scope in reversed(self.scopes.open) if scope.index is not None)
        if view not in loop.local_of:
            loop.local_of[view] = self.local("line")
            loop.before.add(Assign((loop.local_of[view],), view))
        return loop.local_of[view]

    def scalar(self, value: Value) -> Expr:
        """The only element of a scalar."""
        return self.read(value, [0] * len(value.shape))

    def new_locals(self, shape: Sequence[int], dtype: str, hint: str) -> Small:
        """A new local for each element of an array."""
        elements = np.empty(shape, dtype=object)
        for at in indices_of(shape):
            elements[at] = self.local(hint)
        return Small(elements, dtype)

    def in_locals(self, value: Value, shape: Any = None) -> Small:
        """Move the elements of ``value``, of static shape, to locals."""
        if isinstance(value, Small):
            return value
        # The type may have more static lengths than the value.
        shape = value.shape if shape is None else shape
        elements = np.empty(shape, dtype=object)
        for at in indices_of(shape):
            elements[at] = self.read(value, at)
        return Small(elements, value.dtype)

    def dense(self, value: Value) -> Array:
        """Move ``value`` to memory, unless it is there."""
        if isinstance(value, Array):
            return value
        if isinstance(value, Small):
            level = self.scopes.level(*value.elements.flat)
            if level < self.scopes.depth:
                return self._table(value, level)
        return self.fresh(value)

    def _table(self, value: Small, level: int) -> Array:
        """An array of locals that no step changes, for a step to index."""
        key = (value.dtype, value.elements.shape, *value.elements.flat)
        name = self.scopes.local_of(key)
        if name is None:
            around, loop = self.scopes.frame(level)
            around.local_of[key] = name = self.room(value.shape, value.dtype, loop.before)
            self.scopes.define([name], level)
            for at, x in np.ndenumerate(value.elements):
                loop.before.add(Assign((name[at],), x))
        return Array(name, value.shape, value.dtype, compact=True)

    def fresh(self, value: Value, reuse: bool = True) -> Array:
        """An unshared copy in memory, in C order; see `empty` for ``reuse``."""
        name = self.empty(value.shape, value.dtype, reuse=reuse)
        self.copy(value, name)
        return Array(name, value.shape, value.dtype, fresh=True, compact=True)

    def copy(self, value: Value, name: Expr) -> None:
        """Write the elements of ``value`` into the array ``name``."""
        if isinstance(value, Virtual) and value.empty:
            return
        if isinstance(value, Virtual) and value.element is not None:
            self.do("fill", name, value.element)
            return
        if isinstance(value, Small):
            for index in indices_of(value.shape):
                self.set(name[index], value.elements[index])
            return
        if self.copied_run(value, name, 0):
            return
        if self.is_worth_coalescing(value):
            with self.loop_over_positions(value.shape) as position:
                element = self.read(value, position)
                self.set(self._in_line(name)[position.index], element)
            return
        with self.loops(value.shape) as outer:
            for at in outer:
                self.set(name[at], self.read(value, at))

    def run_of(self, value: Value) -> Run | None:
        """The elements of ``value`` as consecutive elements of an array; None if they are not."""
        if isinstance(value, Virtual) and value.run is not None:
            return value.run
        array = value.flat if isinstance(value, Virtual) else value
        return Run(array.name) if isinstance(array, Array) and array.compact else None

    def copied_run(self, value: Value, name: Expr, start: Dim) -> bool:
        """Copy ``value`` as a whole to an array from ``start`` on; False if that is impossible."""
        run = self.run_of(value)
        if run is None or not is_static(value.shape):
            return False
        count = literal(prod(value.shape), "int64")
        self.do("copy_run", name, as_element(start), run.name, as_element(run.start), count)
        return True

    def empty(
        self,
        shape: Sequence[Dim],
        dtype: str,
        hint: str = "a",
        reuse: bool = True,
        place: Block | None = None,
    ) -> Expr:
        """Allocate an array in C order: once for all steps where ``reuse`` and its shape allow it.

        Otherwise at ``place``, by default here.
        """
        shape = [self.scopes.canonical(n) for n in shape]
        for n in shape:
            self.note_length(n)
        level = self.scopes.level(*shape)
        if not reuse or level >= self.scopes.depth:
            if place is not None:
                return self.room(shape, dtype, place, hint)
            return self.temp(new_array(shape, dtype), hint)
        name = self.room(shape, dtype, self.scopes.frame(level)[1].before, hint)
        self.scopes.define([name], level)
        self.scopes.rooms.add(name)
        return name

    def filled(self, shape: Sequence[Dim], dtype: str, element: Expr) -> Expr | None:
        """Allocate an array full of ``element`` in front of the innermost loop, if that is possible.

        All steps share it, so that each has to write to the same places.
        """
        level = self.scopes.level(*shape, element)
        if level >= self.scopes.depth:
            return None
        before = self.scopes.frame(level)[1].before
        name = self.room(shape, dtype, before)
        before.add(Do(call("fill", name, element)))
        self.scopes.define([name], level)
        return name

    def room(self, shape: Sequence[Dim], dtype: str, place: Block, hint: str = "a") -> Expr:
        """Allocate an array at another place, which may precede the check of a length."""
        name = self.local(hint)
        lengths = [n if isinstance(n, int) else call("max", n, 0) for n in shape]
        place.add(Assign((name,), new_array(lengths, dtype)))
        return name

    def is_room(self, array: Array) -> bool:
        """Whether ``array`` is allocated in front of the innermost loop, for all its steps."""
        return array.name in self.scopes.rooms

    def indexable(self, value: Value) -> Value:
        """Move ``value`` to memory if dynamic indices need it."""
        return self.dense(value) if isinstance(value, Small) and value.elements.size != 1 else value

    def for_many_reads(self, value: Value) -> Value:
        """Prepare ``value`` for a rule that reads an element several times, at any index."""
        return self.indexable(value if is_cheap(value) else self.dense(value))

    def for_scalar_code(self, value: Value) -> Value:
        """Prepare ``value`` for a loop of scalar code: functions in it get a loop of their own.

        ``exp`` takes 5 ns in scalar code and 0.5 in a loop of its own, with AVX-512; to store an
        element and load it takes 0.2.
        """
        return self.indexable(self.apart(value))

    def apart(self, value: Array | Small | Virtual) -> Any:
        """Move ``value`` to memory if it contains functions, which then have a loop of their own."""
        return self.dense(value) if has_functions(value) else value

    def array(self, name: Expr, variable: Variable, fresh: bool = False) -> Array:
        """The `Array` in a local, with the static lengths of the type of ``variable``."""
        shape = tuple(
            self.number(name.length(k), "n") if n is None else n
            for k, n in enumerate(variable.type.shape)
        )
        self.scopes.lengths.update(n for n in shape if isinstance(n, Expr))
        return Array(name, shape, variable.type.dtype, fresh)

    def argument(
        self, k: int, name: Expr, variable: Variable, static_lengths: dict[int, int]
    ) -> Array:
        """Argument ``k`` as an array with ``static_lengths`` of some axes."""
        shape = list(variable.type.shape)
        for axis, n in enumerate(shape):
            if n is None:
                n = static_lengths.get(axis) or self.number(name.length(axis), "n")
                if isinstance(n, Expr):
                    self.axes[n] = (k, axis)
                    self.scopes.lengths.add(n)
                shape[axis] = n
        return Array(name, tuple(shape), variable.type.dtype, compact=True)

    def contiguous(self, value: Value) -> Expr:
        """Move ``value`` to memory in C order."""
        view = self.view(value)
        return self.dense(value).name if view.is_transposed else view.name

    def view(self, value: Value) -> View:
        """Move ``value`` to memory, unless it is there, as itself or as its transpose."""
        if (view := self.view_in_memory(value)) is not None:
            return replace(view, name=self.number(view.name, "a"))
        if isinstance(value, Array):
            return View(self.number(call("np.ascontiguousarray", value.name), "a"))
        return View(self.dense(value).name)

    def view_in_memory(self, value: Value) -> View | None:
        """``value`` in memory, as itself or as its transpose; None if it is not there in C order."""
        if isinstance(value, Virtual) and value.view is not None:
            return value.view
        if isinstance(value, Small) or (run := self.run_of(value)) is None:
            return None
        if isinstance(value, Array):
            return View(value.name)
        shape = tuple_of(value.shape)
        return View(call("view_of_run", run.name, as_element(run.start), shape))


def new_array(shape: Sequence[Dim], dtype: str) -> Expr:
    return call("empty", tuple_of(shape), dtype_name(dtype))
