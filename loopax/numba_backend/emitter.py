"""The emitter: walks a graph in order and writes, for each node, what computes its outputs.

A *rule*, registered on an Op class with `rule`, takes a `Site` and the values of the node's inputs,
and returns the value of the output, or a tuple of them. See `values.py` for what a value is. An op
without a rule goes through PyTensor's own Numba registry (`leaf.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import TypedListType

from loopax.numba_backend.literals import dtype_name, joined, literal
from loopax.numba_backend.runtime import FUNCTIONS
from loopax.numba_backend.source import Source, tuple_of
from loopax.numba_backend.uses import Uses, read_once, uses_of
from loopax.numba_backend.values import Array, Dim, Index, Rows, Small, Value, Virtual, is_static

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
    """

    def __init__(self, source: Source, largest: int) -> None:
        self.source, self.largest = source, largest
        self.namespace: dict[str, Any] = {"np": np, **FUNCTIONS}
        self.in_place: set[Apply] = (
            set()
        )  # writes that a loop has found may go into its state itself
        self._known: list[dict[str, str]] = [{}]  # index expressions, of each open block

    # -- lines ---------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.source.line(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self._known.append({})
        with self.source.block(head):
            yield
        self._known.pop()

    def temp(self, expression: str, hint: str = "t") -> str:
        """A new local that holds ``expression``."""
        name = self.source.fresh(hint)
        self.line(f"{name} = {expression}")
        return name

    def number(self, expression: str, hint: str = "k") -> str:
        """The same for arithmetic on indices, which is written once in a block."""
        for known in self._known:
            if expression in known:
                return known[expression]
        name = self._known[-1][expression] = self.temp(expression, hint)
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
                    stack.enter_context(self.block(f"for {head[-1]} in range({n}):"))
            yield [[*head, *tail] for tail in tails]

    # -- values --------------------------------------------------------------------------------

    def is_small(self, shape: Sequence[Dim]) -> bool:
        return is_static(shape) and np.prod(shape, dtype=int) <= self.largest

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
        return value if isinstance(value, Array) else self.fresh(value)

    def fresh(self, value: Value) -> Array:
        """A copy in memory that nothing else sees, in C order."""
        name = self.empty(value.shape, value.dtype)
        if not (isinstance(value, Virtual) and value.empty):
            with self.loops(value.shape) as outer:
                for at in outer:
                    self.line(f"{name}[{joined(at)}] = {self.read(value, at)}")
        return Array(name, value.shape, value.dtype, fresh=True)

    def empty(self, shape: Sequence[Dim], dtype: str, hint: str = "a") -> str:
        return self.temp(
            f"np.empty({tuple_of([str(n) for n in shape])}, {dtype_name(dtype)})", hint
        )

    def indexable(self, value: Value) -> Value:
        """``value``, such that an index that is not static can be read."""
        return self.dense(value) if isinstance(value, Small) and value.elements.size > 1 else value

    def array(self, name: str, variable: Any, fresh: bool = False) -> Array:
        """The `Array` of a local, its dimensions those that the type of ``variable`` gives."""
        shape = [
            self.number(f"{name}.shape[{k}]", "n") if n is None else n
            for k, n in enumerate(variable.type.shape)
        ]
        return Array(name, tuple(shape), variable.type.dtype, fresh)

    def assign(self, names: Sequence[str], values: Sequence[str]) -> None:
        """Simultaneous assignment."""
        pairs = [(n, v) for n, v in zip(names, values, strict=True) if n != v]
        targets = {n for n, _ in pairs}
        later = [(n, self.temp(v) if v in targets else v) for n, v in pairs]
        for name, value in later:
            self.line(f"{name} = {value}")

    def agree(self, *dims: Dim) -> Dim:
        """The length that all ``dims`` are, checked where that is not known now."""
        first, *rest = sorted(set(dims), key=lambda n: (isinstance(n, str), str(n)))
        for n in rest:
            if isinstance(n, int):
                self.line('raise ValueError("Input dimension mismatch: two lengths differ")')
            else:
                self.number(f"agree({n}, {first})")
        return first

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

    def no_rows(self, v: Any) -> Rows:
        """An empty list: the only one that is a constant of a lowered graph."""
        assert not v.data, v
        row = v.type.ttype
        name = self.empty([0] * (row.ndim + 1), row.dtype, "rows")
        return Rows(name, self.temp("0", "n"), row.ndim, row.dtype)

    def run(
        self,
        graph: AbstractFunctionGraph,
        inputs: Sequence[Any],
        last: Sequence[Apply] = (),
    ) -> list[Any]:
        """Emit ``graph``; the values of its outputs. The nodes in ``last`` come behind the others."""
        env: dict[Variable, Any] = dict(zip(graph.inputs, inputs, strict=True))
        uses = uses_of(graph)

        def read(v: Any) -> Any:
            if v in env:
                return env[v]
            assert isinstance(v, Constant), v
            if isinstance(v.type, TypedListType):
                return self.no_rows(v)
            return self.constant(v) if on_numbers(v) else v.data

        order = [node for node in graph.toposort() if node not in last]
        for node in [*order, *last]:
            site = Site(self, node, uses)
            outs = find_rule(node.op)(site, *[read(v) for v in node.inputs])
            outs = outs if isinstance(outs, tuple) else (outs,)
            for v, out in zip(node.outputs, outs, strict=True):
                env[v] = self.held(out, v)
        return [read(v) for v in graph.outputs]

    def held(self, value: Any, v: Any) -> Any:
        """The value of ``v``: in locals wherever its type says that it is small."""
        if isinstance(value, Rows):
            return value
        assert value.dtype == v.type.dtype, (value.dtype, v.type, v.owner)
        shape = getattr(v.type, "shape", ())
        if None not in shape and self.is_small(shape):
            return self.in_locals(value, shape)
        return value


def on_numbers(v: Any) -> bool:
    return isinstance(v.type, DenseTensorType | ScalarType)
