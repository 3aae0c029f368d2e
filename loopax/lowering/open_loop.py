"""A `Scan` node opened up for a pass to change, then closed again.

Each inner variable is paired with its outer one, so that a pass adds, drops or moves whole ports and
never counts positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.traversal import ancestors

from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs
from loopax.ir.ops.calling_convention import ScanOptions


@dataclass(eq=False)
class Input:
    """A sequence (``inner`` is one row of ``outer``) or a constant."""

    inner: Any
    outer: Any


@dataclass(eq=False)
class State:
    """A state: ``inner`` before the step, ``next`` after it, ``init`` before the first one.

    ``final`` is the output of the original node, None for a state that a pass has added; ``new`` is the
    output of the node that `OpenLoop.close` has made. ``label`` is the author's name for it, where known.
    """

    inner: Any
    init: Any
    next: Any
    final: Any = None
    new: Any = None
    label: str = ""


@dataclass(eq=False)
class Y:
    """A variable emitted at each step: ``inner``; ``trace``, ``new`` and ``label`` as in `State`."""

    inner: Any
    trace: Any = None
    new: Any = None
    label: str = ""


@dataclass(eq=False)
class OpenLoop:
    """The ports of one loop. Change the lists and the variables in them, then call `close`."""

    n_steps: Any
    i: Any
    rows: list[Input]
    states: list[State]
    consts: list[Input]
    ys: list[Y]
    stop: Any  # the stop flag inside; None for a loop that cannot stop
    options: ScanOptions
    n_done: Any = None
    stopped: Any = None

    @classmethod
    def of(cls, node: Apply) -> OpenLoop:
        """Open the loop of ``node``, with a copy of its body."""
        return cls.on(node, node.op.unfrozen())

    @classmethod
    def on(cls, node: Apply, body: AbstractFunctionGraph) -> OpenLoop:
        """Open the loop of ``node`` with ``body``: a copy, or its own body for reading only."""
        op: Any = node.op
        args, outs = op.split_body_inputs(body.inputs), op.split_body_outputs(body.outputs)
        operands, results = op.split_inputs(node.inputs), op.split_outputs(node.outputs)
        loop = cls(
            operands.n_steps,
            args.i,
            list(map(Input, args.rows, operands.sequences)),
            list(map(State, args.states, operands.states, outs.states, results.finals)),
            list(map(Input, args.consts, operands.consts)),
            list(map(Y, outs.ys, results.traces)),
            outs.stop,
            op.options,
            results.n_done,
            results.stopped,
        )
        ports: list[Any] = [*loop.states, *loop.ys]
        for port, label in zip(ports, op.options.origin.labels, strict=False):  # there may be none
            port.label = label
        return loop

    def outputs(self) -> list[Any]:
        """All outputs of the step: next states, rows of the traces, the stop flag."""
        stop = [] if self.stop is None else [self.stop]
        return [*(s.next for s in self.states), *(y.inner for y in self.ys), *stop]

    def set_outputs(self, new: Sequence[Variable]) -> None:
        """Replace `outputs` by ``new``, in the same order."""
        remaining = iter(new)
        for s in self.states:
            s.next = s.inner.type.filter_variable(next(remaining))
        for y in self.ys:
            y.inner = next(remaining)
        if self.stop is not None:
            self.stop = next(remaining)

    def drop_unread(self) -> None:
        """Drop the sequences and constants that the step does not read."""
        read = set(ancestors(self.outputs()))
        self.rows = [r for r in self.rows if r.inner in read]
        self.consts = [c for c in self.consts if c.inner in read]

    @property
    def inner(self) -> BodyArgs:
        """The inputs of the step, as inner variables."""
        groups = self.rows, self.states, self.consts
        return BodyArgs(self.i, *([p.inner for p in group] for group in groups))

    def close(self) -> dict[Variable, Variable]:
        """Build a node of the changed loop; map the outputs of the old node to its outputs.

        The step may read only ``i`` and the rows, states and constants in the lists.
        """
        bound = self.bind()
        end = [] if self.stop is None else [self.n_done, self.stopped]
        old = [*(s.final for s in self.states), *(y.trace for y in self.ys), *end]
        return {v: new for v, new in zip(old, bound, strict=True) if v is not None}

    def bind(self) -> list[Variable]:
        """Build a node of the changed loop and return its outputs, the ``new`` of its states and ys."""
        outs = BodyOuts([s.next for s in self.states], [y.inner for y in self.ys], self.stop)
        sequences, consts = ([p.outer for p in group] for group in (self.rows, self.consts))
        args = ScanArgs(self.n_steps, sequences, [s.init for s in self.states], consts)
        ports: list[Any] = [*self.states, *self.ys]
        labels = tuple(port.label for port in ports)
        origin = replace(self.options.origin, labels=labels if any(labels) else ())
        options = self.options._replace(origin=origin)
        bound = Scan.from_body(self.inner, outs, options).bind(args)
        for port, new in zip(ports, bound, strict=False):
            port.new = new
        return bound


def replace_outputs(graph: FunctionGraph, new: dict[Variable, Variable], reason: str) -> None:
    """Replace the old outputs in ``graph`` by the result of `OpenLoop.close`, keeping their types.

    A variable of a more precise type is used as it is: PyTensor's own check would refuse one of a less
    precise type.
    """
    pairs = [(old, old.type.filter_variable(v)) for old, v in new.items() if old is not v]
    graph.replace_all(pairs, reason=reason, import_missing=True)
