"""The emitter: walks a graph in order and writes the statements that compute each node's outputs.

A *rule*, registered on an Op class with `rule`, takes a `Site` and the values of the node's inputs,
and returns the value of the output, or a tuple of values: see `values.py`. An op without a rule goes
through PyTensor's own Numba registry (`leaf.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pytensor.compile.ops import TypeCastingOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.shape import SpecifyShape

from loopax.base.errors import describe
from loopax.ir.derivatives.after_forward import unwrapped
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.constants import Constants, on_numbers
from loopax.numba_backend.emit.expressions import Dim, Expr
from loopax.numba_backend.emit.source import compiled
from loopax.numba_backend.emit.statements import Function
from loopax.numba_backend.emit.tree_passes.rolled_loops import keep_rolled
from loopax.numba_backend.emit.tree_passes.safepoints import add_safepoints
from loopax.numba_backend.emit.tree_passes.stack_arrays import ArrayUses, promote_to_stack
from loopax.numba_backend.emit.uses import Uses, few_reads, read_once, reads_only_shape, uses_of
from loopax.numba_backend.emit.values import (
    Array,
    EmittedValue,
    Opaque,
    Rows,
    Value,
    Virtual,
    as_tuple,
    shared,
)

DEEPEST = 40  # the longest chain of virtual values, which reading turns into nested Python calls

# Ops whose output is the memory of their first input.
ALIASES = (SpecifyShape, ViewOp, TypeCastingOp, CheckAndRaise)

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


def described(node: Apply) -> str:
    """Format ``node`` as a line of a message."""
    op = unwrapped(node).op
    return f"{node.op} (class {type(op).__name__}), for {describe(node.outputs[-1])}"


def find_rule(op: Op) -> Rule:
    """The rule of the nearest base class of ``op``; the rule of `leaf.py` serves all ops."""
    return next(RULES[cls] for cls in type(op).__mro__ if cls in RULES)


@dataclass(frozen=True)
class Site:
    """One node at the place where it is emitted.

    ``in_place`` says that the node may write into the state of a loop itself, ``snapshot`` that it
    reads memory that is written in place later in the step.
    """

    emit: Emitter
    node: Apply
    uses: Uses
    in_place: bool = False
    snapshot: bool = False

    @property
    def op(self) -> Any:
        return self.node.op

    @property
    def out(self) -> Any:
        return self.node.outputs[0]

    def result(self, value: EmittedValue, output: int = 0) -> Any:
        """Finish ``value``, of an output: compute it now if several readers would each compute it again.

        A value with one reader stays virtual, and becomes part of the reader's loop.
        """
        v = self.node.outputs[output]
        if isinstance(value, Virtual) and not value.cheap and not self._stays_virtual(value, v):
            small = self.emit.is_small(value.shape)
            return self.emit.in_locals(value) if small else self.emit.dense(value)
        return value

    def owned(self, position: int, value: Opaque) -> Opaque:
        """The value of an input for the node to change: a copy if other nodes read it."""
        is_own = value.fresh and self.reads_alone(position)
        return value if is_own else opaque.copied(self.emit, value)

    def target(self, position: int, value: Value) -> Array:
        """The array of an input for the node to write into: itself where it is unshared, else a copy."""
        reads = self.uses[self.node.inputs[position]]
        in_place = (self.in_place and position == 0) or all(
            (client is self.node and k == position) or reads_only_shape(client, k)
            for client, k in reads
        )
        if isinstance(value, Array) and value.fresh and in_place:
            return value
        return self.emit.fresh(value)

    def lent(self, position: int, value: EmittedValue) -> Any:
        """The value of an input inside a branch of the node, which runs once: see `owned`."""
        return value if self.reads_alone(position) else shared(value)

    def returns(self, x: Array, shape: Sequence[Dim]) -> Array:
        """The array ``x``, the first input, as the output with these lengths.

        It stays unshared if no other node reads it, or if this output is only returned and ``x`` is not:
        then nothing writes to it any more.
        """
        readers = [client for client, _ in self.uses[self.node.inputs[0]]]
        is_returned_alone = all(client is None for client, _ in self.uses[self.out]) and not any(
            client is None or (client is not self.node and isinstance(client.op, ALIASES))
            for client in readers
        )
        is_unshared = x.fresh and (len(readers) == 1 or is_returned_alone)
        return Array(x.name, tuple(shape), x.dtype, fresh=is_unshared, compact=x.compact)

    def reads_alone(self, position: int) -> bool:
        """Whether no other node reads the input, and this one reads it once."""
        return len(self.uses[self.node.inputs[position]]) == 1

    def results(self, graph: AbstractFunctionGraph, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Emit ``graph``, whose outputs are the node's; it does not show how often they are read."""
        outs = self.emit.run(graph, arguments)
        return tuple(self.result(value, k) for k, value in enumerate(outs))

    def _stays_virtual(self, value: Virtual, v: Variable) -> bool:
        return read_once(v, self.uses) or (value.light and few_reads(v, self.uses))


def globals_of(function: Function, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The items of ``namespace`` that the text of ``function`` names."""
    return {
        name: namespace[name]
        for name in sorted({*re.findall(r"\w+", str(function))} & namespace.keys())
    }


class ForeignCall(NamedTuple):
    """A call outside of all rules: PyTensor's native function for an op, on arrays, or Python."""

    node: Apply
    by_python: bool
    in_step: bool  # in a loop, so that each step makes the call


class Emitter(Constants):
    """Writer of the body of one function.

    Parameters
    ----------
    source
        The function, without statements yet.
    largest
        The most elements of an array of static shape whose elements are locals.
    keeps_shapes
        Whether to assume that states of unknown shape keep their first one. The program checks this,
        and raises `StateChangesShape` otherwise.
    """

    def __init__(self, source: Function, largest: int, keeps_shapes: bool = True) -> None:
        super().__init__(source, largest)
        self.keeps_shapes = keeps_shapes
        # Flag -> the numbers that are equal if it holds.
        self.equal: dict[Expr, tuple[Expr, Expr]] = {}
        self.ready: dict[Expr, float] = {}  # local of a step -> its cycle: see schedule.py
        self.candidates: dict[Any, list[Any]] = {}  # regions that may be functions: outlining.py
        self.series: dict[Any, str] = {}  # the names of scalar loops, by their text and its globals
        self.functions: list[Function] = []  # functions that the program calls
        self.array_uses: dict[str, ArrayUses] = {}  # theirs, by name: see stack_arrays.py
        self.foreign_calls: list[ForeignCall] = []

    def define(self, inner: Emitter) -> None:
        """Add the function of ``inner`` to the globals of this one, which calls it here."""
        self.functions += inner.functions
        for call in inner.foreign_calls:
            self.note_foreign_call(call.node, call.by_python, call.in_step)
        self.define_function(inner.source, inner)

    def define_function(self, function: Function, emitter: Emitter) -> None:
        """Add ``function``, which has the globals of ``emitter``, to the globals of this one.

        Names of the two may clash, as each emitter counts its own from zero.
        """
        add_safepoints(function, emitter.namespace)
        keep_rolled(function)
        self.array_uses[function.name] = promote_to_stack(function, emitter.array_uses)
        # No others, since the key of the cache on disk contains all globals.
        python_function = function.function(globals_of(function, emitter.namespace), emitter.keys)
        self.namespace[function.name] = compiled(python_function, inner=True)
        self.functions.append(function)

    def note_foreign_call(
        self, node: Apply, by_python: bool = False, in_step: bool = False
    ) -> None:
        """Record a call of an op without a rule."""
        in_step = in_step or self.scopes.depth > 0
        self.foreign_calls.append(ForeignCall(node, by_python, in_step))

    @property
    def by_python(self) -> list[str]:
        """Descriptions of the ops without a native form."""
        return [described(call.node) for call in self.foreign_calls if call.by_python]

    @property
    def text(self) -> str:
        """The text of all called functions, and then of the function itself."""
        return "\n\n".join(map(str, [*self.functions, self.source]))

    @property
    def n_lines(self) -> int:
        """The number of lines of `text`."""
        return sum(len(f.body.lines()) for f in [*self.functions, self.source])

    def run(
        self,
        graph: AbstractFunctionGraph,
        inputs: Sequence[Any],
        writes: Sequence[Apply] = (),
        snapshots: Collection[Apply] = (),
        outputs: Sequence[Variable] | None = None,
        counted: Mapping[Variable, Dim] = MappingProxyType({}),
        last: Variable | None = None,
    ) -> list[Any]:
        """Emit ``graph``; returns the values of ``outputs``, by default the outputs of the graph.

        Parameters
        ----------
        writes
            Nodes that write in place, emitted after all others.
        snapshots
            Nodes that read memory to which ``writes`` write.
        counted
            Index variables, each at least 0 and less than its length.
        last
            An output whose own nodes, which no other output needs, are emitted after all others.

        These arguments hold for this graph alone: equal bodies share nodes and variables.
        """
        outputs = graph.outputs if outputs is None else outputs
        env: dict[Variable, Any] = dict(zip(graph.inputs, inputs, strict=True))

        def note(v: Variable) -> None:
            if v in counted:
                self.scopes.bounded[self.scalar(env[v])] = counted[v]

        for v in graph.inputs:
            note(v)
        uses = uses_of(graph)

        def read(v: Variable) -> Any:
            if v in env:
                return env[v]
            assert isinstance(v, Constant), v
            return self.constant_value(v)

        needed = {v.owner for v in ancestors(outputs)}
        order = [node for node in graph.toposort() if node in needed and node not in writes]
        if last is not None:
            early = {v.owner for v in ancestors([v for v in outputs if v is not last])}
            order.sort(key=lambda node: node not in early)
        depths: dict[Variable, int] = {}  # virtual value -> length of the chain below it
        for node in [*order, *writes]:
            site = Site(self, node, uses, node in writes, node in snapshots)
            outs = as_tuple(find_rule(node.op)(site, *[read(v) for v in node.inputs]))
            level = 1 + max((depths.get(v, 0) for v in node.inputs), default=0)
            for v, out in zip(node.outputs, outs, strict=True):
                value = out if node in writes else self.localized(out, v)
                if isinstance(value, Virtual):
                    if level > DEEPEST:
                        value = self.dense(value)
                    else:
                        depths[v] = level
                env[v] = value
                note(v)
        return [read(v) for v in outputs]

    def localized(self, value: EmittedValue, v: Variable) -> Any:
        """The value of ``v``, with its elements in locals where its static shape is small."""
        if isinstance(value, Rows | Opaque) or not on_numbers(v):
            return value
        assert value.dtype == v.type.dtype, (value.dtype, v.type, v.owner)
        declared = getattr(v.type, "shape", ())
        shape = [n if d is None else d for n, d in zip(value.shape, declared, strict=True)]
        return self.in_locals(value, shape) if self.is_small(shape) else value
