"""The emitter: walks a graph in order and writes, for each node, what computes its outputs.

A *rule*, registered on an Op class with `rule`, takes a `Site` and the values of the node's inputs,
and returns the value of the output, or a tuple of them. See `values.py` for what a value is. An op
without a rule goes through PyTensor's own Numba registry (`leaf.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from loopax.ir.trace import TraceType
from loopax.numba_backend import opaque
from loopax.numba_backend.literals import dtype_name, joined, literal
from loopax.numba_backend.runtime import FUNCTIONS
from loopax.numba_backend.scopes import Block, Frame, Scopes
from loopax.numba_backend.source import Slot, Source, tuple_of
from loopax.numba_backend.uses import Uses, read_once, uses_of
from loopax.numba_backend.values import (
    Array,
    Dim,
    Index,
    Opaque,
    Rows,
    Small,
    Value,
    Virtual,
    is_static,
)

LONGEST = 8  # an axis of more elements is looped over

# Checks of runtime.py; and a range whose step is zero.
_MAY_RAISE = re.compile(r"\b(?:index|size|stride|slice_bounds|range)\(")

Rule = Callable[..., Any]
RULES: dict[type, Rule] = {}


def rule(*op_classes: type) -> Callable[[Rule], Rule]:
    """Register a rule for Op classes, subclasses included. A second rule for a class is an error."""

    def register(function: Rule) -> Rule:
        for cls in op_classes:
            assert cls not in RULES, f"{cls.__name__} already has a rule: {RULES[cls]}"
            RULES[cls] = function
        return function

    return register


def find_rule(op: Any) -> Rule:
    """The rule of the nearest class that ``op`` is an instance of; `leaf.py` has that of all ops."""
    return next(RULES[cls] for cls in type(op).__mro__ if cls in RULES)


@dataclass(frozen=True)
class Site:
    """One node, where it is emitted."""

    emit: Emitter
    node: Apply
    uses: Uses

    @property
    def op(self) -> Any:
        return self.node.op

    @property
    def out(self) -> Any:
        return self.node.outputs[0]

    def result(self, value: Value) -> Value:
        """``value`` for the output; computed here and now where it would be computed again later.

        What is read once stays virtual, and so becomes part of the loop that reads it.
        """
        if isinstance(value, Virtual) and not value.cheap and not read_once(self.out, self.uses):
            small = self.emit.is_small(value.shape)
            return self.emit.in_locals(value) if small else self.emit.dense(value)
        return value


class Emitter:
    """Writes the body of one function.

    Parameters
    ----------
    source
        Where the lines go.
    largest
        How many elements an array of static shape may have to be held in locals, one for each.
    keeps_shapes
        Whether states may be taken to keep the shape that they start with, where that is not known. The
        program checks it, and raises `StateChangesShape` otherwise.
    """

    def __init__(self, source: Source, largest: int, keeps_shapes: bool = True) -> None:
        self.source, self.largest, self.keeps_shapes = source, largest, keeps_shapes
        self.namespace: dict[str, Any] = {"np": np, **FUNCTIONS}
        self.scopes = Scopes()
        self.counted: dict[Variable, Dim] = {}  # what is at least 0 and less than a length
        self.ready: dict[str, float] = {}  # when a local of a step is there: see schedule.py
        self.axes: dict[str, tuple[int, int]] = {}  # of a length: the argument and axis that has it
        self.in_place: set[Apply] = set()  # writes that may go into a loop's state itself
        self.by_python: list[str] = []  # ops that nothing native is known for
        self.snapshots: set[Apply] = set()  # reads of what is written in place later in the step

    def mark(self) -> Any:
        return self.source.mark(), self.scopes.mark()

    def reset(self, mark: Any) -> None:
        """Take back what was emitted since ``mark``, which was made in the same block."""
        source, scopes = mark
        self.source.reset(source)
        self.scopes.reset(scopes)

    # -- lines ---------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.source.line(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.scopes.blocks.append(Block())
        with self.source.block(head):
            yield
        self.scopes.blocks.pop()

    @contextmanager
    def frame(self, head: str, going: str) -> Iterator[None]:
        """A loop over steps, which takes at least one if ``going``."""
        before, checks = self.source.slot(), self.source.slot(f"if {going}:")
        frame = Frame(before, checks, len(self.scopes.blocks) - 1)
        self.scopes.frames.append(frame)
        with self.block(head):
            yield
        self.scopes.frames.pop()

    def local(self, hint: str) -> str:
        """The name of a new local."""
        name = self.source.fresh(hint)
        self.scopes.define([name])
        return name

    def temp(self, expression: str, hint: str = "t") -> str:
        """A new local that holds ``expression``."""
        name = self.local(hint)
        self.line(f"{name} = {expression}")
        return name

    def number(self, expression: str, hint: str = "k") -> str:
        """The same for arithmetic on indices, which is written once in a block, or before a loop.

        What may raise stays where it is: a loop need not take a step.
        """
        scopes = self.scopes
        if known := scopes.known(expression):  # a check has no name
            return known
        level = scopes.depth if _MAY_RAISE.search(expression) else scopes.level(expression)
        if level >= scopes.depth:
            name = self.temp(expression, hint)
            scopes.blocks[-1].known[expression] = name
            return name
        frame, name = scopes.frames[level], self.source.fresh(hint)
        frame.before.line(f"{name} = {expression}")
        scopes.define([name], level)
        scopes.blocks[frame.block].known[expression] = name
        return name

    def bind(self, thing: Any, hint: str) -> str:
        """A global of the function, for what has no source."""
        name = self.source.fresh(hint)
        self.namespace[name] = thing
        return name

    @contextmanager
    def loops(self, shape: Sequence[Dim]) -> Iterator[list[list[Index]]]:
        """Nested loops over ``shape``; the indices to write for inside of them.

        Trailing axes that are small and static are not looped over: there is an index for each.
        """
        inner = len(shape)
        while inner and self.is_small(shape[inner - 1 :]):
            inner -= 1
        tails = list(np.ndindex(*shape[inner:]))  # type: ignore[arg-type]
        with ExitStack() as stack:
            head: list[Index] = []
            for n in shape[:inner]:
                head.append(0 if n == 1 else self.source.fresh("i"))
                if n != 1:
                    self.scopes.define([str(head[-1])])
                    self._count(n)
                    stack.enter_context(self.block(f"for {head[-1]} in range({n}):"))
            yield [[*head, *tail] for tail in tails]

    # -- values --------------------------------------------------------------------------------

    def is_small(self, shape: Sequence[Dim]) -> bool:
        return (
            is_static(shape)
            and max(shape, default=0) <= LONGEST  # type: ignore[type-var]
            and np.prod(shape, dtype=int) <= self.largest
        )

    def read(self, value: Value, at: Sequence[Index]) -> str:
        """The element at an index, as a name or a literal."""
        if isinstance(value, Virtual):
            return value.at(at)
        if isinstance(value, Array):
            return self.temp(f"{value.name}[{joined(at)}]")
        if value.elements.size == 1:
            return value.elements.item()
        if not is_static(at):  # a rule that reads many asks for `indexable` before its loop
            return self.read(self.dense(value), at)
        return value.elements[tuple(at)]

    def scalar(self, value: Value) -> str:
        """The one element of a scalar."""
        return self.read(value, [0] * len(value.shape))

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
            level = max(map(self.scopes.level, value.elements.flat), default=0)
            if level < self.scopes.depth:
                return self._table(value, level)
        return self.fresh(value)

    def _table(self, value: Small, level: int) -> Array:
        """Locals that no step changes, in memory, where a step is to find them by their index."""
        key = f"{value.dtype} of {value.elements.tolist()}"
        name = self.scopes.known(key)
        if name is None:
            frame = self.scopes.frames[level]
            name = self.room(value.shape, value.dtype, frame.before)
            self.scopes.define([name], level)
            self.scopes.blocks[frame.block].known[key] = name
            for at in np.ndindex(*value.elements.shape):
                frame.before.line(f"{name}[{joined(at)}] = {value.elements[at]}")
        return Array(name, value.shape, value.dtype, compact=True)

    def fresh(self, value: Value, reuse: bool = True) -> Array:
        """A copy in memory that nothing else sees, in C order; `empty` says what ``reuse`` is."""
        name = self.empty(value.shape, value.dtype, reuse=reuse)
        self.copy(value, name)
        return Array(name, value.shape, value.dtype, fresh=True, compact=True)

    def copy(self, value: Value, name: str) -> None:
        """Write the elements of ``value`` into the array ``name``."""
        if isinstance(value, Virtual) and value.empty:
            return
        if isinstance(value, Small):
            for at in np.ndindex(*value.elements.shape):
                self.line(f"{name}[{joined(at)}] = {value.elements[at]}")
            return
        with self.loops(value.shape) as outer:
            for at in outer:
                self.line(f"{name}[{joined(at)}] = {self.read(value, at)}")

    def empty(self, shape: Sequence[Dim], dtype: str, hint: str = "a", reuse: bool = True) -> str:
        """Room for an array, in C order. In a loop it is one for all steps, if its shape is."""
        shape = [self.scopes.canonical(n) for n in shape]
        for n in shape:
            self._count(n)
        level = max((self.scopes.level(n) for n in shape), default=0)
        if not reuse or level >= self.scopes.depth:
            dims = tuple_of([str(n) for n in shape])
            return self.temp(f"np.empty({dims}, {dtype_name(dtype)})", hint)
        name = self.room(shape, dtype, self.scopes.frames[level].before, hint)
        self.scopes.define([name], level)
        self.scopes.rooms.add(name)
        return name

    def room(self, shape: Sequence[Dim], dtype: str, slot: Slot, hint: str = "a") -> str:
        """An array that is made at another place, which may come before the check of a length."""
        name = self.local(hint)
        dims = tuple_of([str(n) if isinstance(n, int) else f"max({n}, 0)" for n in shape])
        slot.line(f"{name} = np.empty({dims}, {dtype_name(dtype)})")
        return name

    def is_room(self, array: Array) -> bool:
        """Whether the memory of ``array`` has been there before the innermost loop, for each step."""
        return array.name in self.scopes.rooms

    def _count(self, n: Dim) -> None:
        """A step loops over ``n``: worth knowing, where it is small."""
        if self.scopes.frames and isinstance(n, str):
            self.scopes.looped.add(n)

    def indexable(self, value: Value) -> Value:
        """``value``, such that an index that is not static can be read."""
        return self.dense(value) if isinstance(value, Small) and value.elements.size > 1 else value

    def array(self, name: str, variable: Any, fresh: bool = False) -> Array:
        """The `Array` of a local, its dimensions those that the type of ``variable`` gives."""
        shape = [
            self.number(f"{name}.shape[{k}]", "n") if n is None else n
            for k, n in enumerate(variable.type.shape)
        ]
        self.scopes.lengths.update(n for n in shape if isinstance(n, str))
        return Array(name, tuple(shape), variable.type.dtype, fresh)

    def argument(self, k: int, name: str, variable: Any, known: dict[int, int]) -> Array:
        """The same for argument ``k``, of which the lengths of some axes are known."""
        shape = list(variable.type.shape)
        for axis, n in enumerate(shape):
            if n is None:
                n = known.get(axis) or self.number(f"{name}.shape[{axis}]", "n")
                if isinstance(n, str):
                    self.axes[n] = (k, axis)
                    self.scopes.lengths.add(n)
                shape[axis] = n
        return Array(name, tuple(shape), variable.type.dtype, compact=True)

    def contiguous(self, value: Value) -> str:
        """``value`` in memory, row by row or column by column, as products take it."""
        if isinstance(value, Virtual) and value.view is not None:
            return self.number(value.view, "a")
        if isinstance(value, Array) and not value.compact:
            return self.number(f"np.ascontiguousarray({value.name})", "a")
        return self.dense(value).name

    def assign(self, names: Sequence[str], values: Sequence[str]) -> None:
        """Simultaneous assignment."""
        pairs = [(n, v) for n, v in zip(names, values, strict=True) if n != v]
        targets = {n for n, _ in pairs}
        later = [(n, self.temp(v) if v in targets else v) for n, v in pairs]
        for name, value in later:
            self.line(f"{name} = {value}")

    def check(self, expression: str) -> bool:
        """Write a call that raises or does nothing; whether it is in front of the innermost loop.

        What no step changes is asked once, before a loop that takes a step.
        """
        scopes = self.scopes
        if scopes.known(expression) is not None:
            return False
        level = scopes.level(expression)
        if level >= scopes.depth:
            self.line(expression)
            scopes.blocks[-1].known[expression] = ""
            return False
        frame = scopes.frames[level]
        frame.checks.line(expression)
        scopes.blocks[frame.block + 1].known[expression] = ""
        return True

    def agree(self, *dims: Dim) -> Dim:
        """The length that all ``dims`` are, checked where that is not known now."""
        first, *rest = sorted({self.scopes.canonical(n) for n in dims}, key=self.scopes.order)
        for n in rest:
            if isinstance(n, int):
                self.line('raise ValueError("Input dimension mismatch: two lengths differ")')
            else:
                self.equate("agree", n, first)
        return first

    def equate(self, function: str, n: str, m: Dim) -> None:
        """``function`` raises where two lengths differ: from here on they are one."""
        self.check(f"{function}({n}, {m})")
        level = max(self.scopes.level(n), self.scopes.level(m))
        within = level < self.scopes.depth
        self.scopes.unify(n, m, self.scopes.frames[level].block + 1 if within else -1)

    def size(self, n: Dim) -> Dim:
        """``n`` as a length, checked not to be negative."""
        if isinstance(n, int):
            if n < 0:
                self.line('raise ValueError("negative dimensions are not allowed")')
            return max(n, 0)
        if n in self.scopes.changing:
            n = self.number(f"np.int64({n})", "n")
        if n not in self.scopes.lengths:
            self.check(f"size({n})")
        return n

    # -- graphs --------------------------------------------------------------------------------

    def constant(self, v: Any) -> Value:
        """A literal, or an array that is a global of the function."""
        data = np.asarray(v.data)
        if self.is_small(data.shape):
            elements = np.empty(data.shape, dtype=object)
            for at in np.ndindex(*data.shape):
                elements[at] = literal(data[at])
            return Small(elements, str(data.dtype))
        return Array(self.bind(np.ascontiguousarray(data), "const"), data.shape, str(data.dtype))

    def constant_value(self, v: Any) -> Any:
        """A constant of any type; None and slices are themselves."""
        if on_numbers(v):
            return self.constant(v)
        if isinstance(v.type, TraceType) and not v.data and on_numbers(v.type.ttype()):
            return self.no_rows(v)
        return opaque.constant(self, v) if opaque.needs_local(v.type) else v.data

    def no_rows(self, v: Any) -> Rows:
        """An empty trace, which a loop is about to fill."""
        row = v.type.ttype
        name = self.empty([0] * (row.ndim + 1), row.dtype, "rows")
        return Rows(name, self.temp("0", "n"), row.ndim, row.dtype)

    def run(
        self,
        graph: AbstractFunctionGraph,
        inputs: Sequence[Any],
        last: Sequence[Apply] = (),
        outputs: Sequence[Variable] | None = None,
    ) -> list[Any]:
        """Emit ``graph``; the values of its outputs, or of others. The nodes in ``last`` come last."""
        outputs = graph.outputs if outputs is None else outputs
        env: dict[Variable, Any] = dict(zip(graph.inputs, inputs, strict=True))
        for v in graph.inputs:
            self._note_count(v, env[v])
        uses = uses_of(graph)

        def read(v: Any) -> Any:
            if v in env:
                return env[v]
            assert isinstance(v, Constant), v
            return self.constant_value(v)

        needed = {v.owner for v in ancestors(outputs)}
        order = [node for node in graph.toposort() if node in needed and node not in last]
        for node in [*order, *last]:
            site = Site(self, node, uses)
            outs = find_rule(node.op)(site, *[read(v) for v in node.inputs])
            outs = outs if isinstance(outs, tuple) else (outs,)
            for v, out in zip(node.outputs, outs, strict=True):
                env[v] = self.held(out, v)
                self._note_count(v, env[v])
        return [read(v) for v in outputs]

    def _note_count(self, v: Variable, value: Any) -> None:
        if v in self.counted:
            self.scopes.bounded[self.scalar(value)] = self.counted[v]

    def position(self, k: str, n: Dim) -> str:
        """``k``, an index into an axis of length ``n``, checked where that is not known to be right."""
        bound = self.scopes.bounded.get(k)
        if bound is not None and self.scopes.same(bound, n):
            return k
        return self.number(f"index({k}, {n})")

    def held(self, value: Any, v: Any) -> Any:
        """The value of ``v``: in locals wherever its type says that it is small."""
        if isinstance(value, Rows | Opaque) or not on_numbers(v):
            return value
        assert value.dtype == v.type.dtype, (value.dtype, v.type, v.owner)
        declared = getattr(v.type, "shape", ())
        shape = [n if d is None else d for n, d in zip(value.shape, declared, strict=True)]
        return self.in_locals(value, shape) if self.is_small(shape) else value


def on_numbers(v: Any) -> bool:
    return isinstance(v.type, DenseTensorType | ScalarType)
