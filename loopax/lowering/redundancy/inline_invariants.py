"""A value that is equal at every step stops being a port of the loop.

    constant, of a small Constant             ->  written into the body
    sequence of equal rows                    ->  a constant that holds one row
    state that a step passes on as it is      ->  a constant; its final is its initial value
    trace of a constant, a row, or the index  ->  Alloc, the sequence, arange

A sequence of equal rows is an Alloc (or ``second``) that only broadcasts the leading axis, or a
Constant whose rows are equal bit by bit: NaN is equal to itself, and -0.0 is not 0.0.

Condition: an error of the loop (fewer than 0 steps, a sequence of another length) must not get lost with a
port. So a sequence is removed where its length is provably ``n_steps``, and a final or a trace where all
lengths are, or where something else of the loop is read. A trace of a loop that stops has a length of its
own, and stays, as do typed lists. With a truncated derivative (``truncate_gradient``) only Constants move.
Nothing may become broadcastable: a length newly known to be 1 would hide the error of a wrong shape.

Reason: PyTensor's rewrites fold zeros that a derivative passes around, and numbers that a user closed over,
as soon as the body shows them. An echoed *input* is never taken for a state (PyTensor issue 2252): ports
are only removed, none becomes a carry.

In the literature: constant propagation into the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.graph.type import Type
from pytensor.tensor.type import DenseTensorType

from loopax.ir import Scan
from loopax.ir.ops.calling_convention import UNBOUNDED
from loopax.ir.replace import replaced
from loopax.ir.shapes import repeated
from loopax.ir.sizes import Dims, dims_of, unconditional_dims_of
from loopax.lowering.analysis.checked_steps import is_checked
from loopax.lowering.analysis.equal_rows import row_of
from loopax.lowering.bodies import alternate
from loopax.lowering.open_loop import Input, OpenLoop, State, Y, replace_outputs

_SMALL = 64  # elements of a Constant that is written into a body


def inline_invariants(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    # An inner loop that only passed a state on may have been the only node of a step.
    alternate(graph, _inline, inline_invariants)


def _inline(graph: FunctionGraph) -> bool:
    loops = [node for node in graph.toposort() if isinstance(node.op, Scan)]
    if not loops:
        return False
    # A loop itself checks that its number of steps is not negative: to take a value out of the loop, this
    # must be known without the check.
    within, without = dims_of(graph), unconditional_dims_of(graph)
    changed = False
    for node in loops:
        ports = _Ports(graph, node, within, without)
        if not ports.changes(OpenLoop.on(node, node.op.fgraph)):
            continue
        loop = OpenLoop.of(node)
        new: dict[Any, Any] = {}
        while changes := ports.changes(loop):
            for change in changes:
                new |= change(loop)
        if loop.states or loop.ys or loop.stop is not None:
            new |= loop.close()
        replace_outputs(graph, new, "inline_invariants")
        changed = True
    return changed


# -- what can be done to a port ----------------------------------------------------------------------


def _inline_constant(const: Input, loop: OpenLoop) -> dict[Any, Any]:
    """Write a constant into the body."""
    loop.consts.remove(const)
    _substitute(loop, const.inner, const.outer)
    return {}


def _inline_rows(sequence: Input, row: Variable, loop: OpenLoop) -> dict[Any, Any]:
    """Replace a sequence whose rows all equal ``row`` by a constant."""
    loop.rows.remove(sequence)
    _make_constant(loop, sequence.inner, row)
    return {}


def _inline_state(state: State, stays: bool, loop: OpenLoop) -> dict[Any, Any]:
    """Replace a state that keeps its initial value by a constant; with ``stays`` the port remains."""
    _make_constant(loop, state.inner, state.init)
    if stays:
        state.next = state.inner
        return {}
    loop.states.remove(state)
    return {state.final: state.init}


def _drop_trace(y: Y, trace: Variable, loop: OpenLoop) -> dict[Any, Any]:
    """Replace a trace by ``trace``, which is known without the loop."""
    loop.ys.remove(y)
    return {y.trace: trace}


def _make_constant(loop: OpenLoop, inner: Variable, outer: Variable) -> None:
    """Make the step read a constant, an existing or a new one, in place of ``inner``."""
    for c in loop.consts:
        if c.outer is outer and c.inner.type == inner.type:
            break
    else:
        c = Input(inner.type(), outer)
        loop.consts.append(c)
    _substitute(loop, inner, c.inner)


def _substitute(loop: OpenLoop, old: Variable, new: Variable) -> None:
    loop.set_outputs(replaced(loop.outputs(), {old: new}))


# -- which ports -------------------------------------------------------------------------------------


class _Ports:
    """Changes to the ports of the loop ``node``."""

    def __init__(self, graph: FunctionGraph, node: Apply, within: Dims, without: Dims) -> None:
        self.graph, self.node = graph, node
        self.within, self.without = within, without
        self.is_cut = node.op.options.truncate_gradient >= 0

    def changes(self, loop: OpenLoop) -> list[Callable[[OpenLoop], dict[Any, Any]]]:
        """The applicable changes of one kind, so that none invalidates another.

        Each takes the loop, and maps outputs of its node to their replacements.
        """
        kinds = [self.inlined, self.uniform]
        if not self.is_cut:
            kinds = [self.fixed, self.known, *kinds]
        return next((change for kind in kinds if (change := kind(loop))), [])

    @cached_property
    def lengths_hold(self) -> bool:
        """Whether `check_lengths` can never raise."""
        operands = self.node.op.split_inputs(self.node.inputs)
        n = self.without.value(operands.n_steps)
        return (
            n.constant != UNBOUNDED
            and not is_checked(self.node.inputs[0])
            and self.without.at_least(n)
            and all(self.without.length(x) == n for x in operands.sequences)
        )

    def inlined(self, loop: OpenLoop) -> list[Any]:
        return [
            partial(_inline_constant, c)
            for c in loop.consts
            if _is_small(c.outer) and not _broadcasts(c.outer.type, c.inner.type)
        ]

    def uniform(self, loop: OpenLoop) -> list[Any]:
        changed = []
        for x in loop.rows:
            if self.is_cut and not isinstance(x.outer, Constant):
                continue
            row = row_of(x.outer, self.without)
            if row is None or not x.inner.type.is_super(row.type):
                continue
            if self.within.length(x.outer) == self.within.value(loop.n_steps):
                changed.append(partial(_inline_rows, x, row))
        return changed

    def fixed(self, loop: OpenLoop) -> list[Any]:
        outer = {c.inner: c.outer for c in loop.consts}
        candidates = [
            s
            for s in loop.states
            if _keeps_its_value(s, outer) and not _broadcasts(s.init.type, s.inner.type)
        ]
        if not candidates:
            return []
        may_go = self.lengths_hold or self._is_read(loop, candidates)
        goes = [may_go or not self.graph.clients.get(s.final) for s in candidates]
        read: set[Any] = set()
        if not all(goes):
            others = [s.next for s in loop.states if s not in candidates]
            stop = [] if loop.stop is None else [loop.stop]
            read = {*ancestors([*others, *(y.inner for y in loop.ys), *stop])}
        return [
            partial(_inline_state, s, not go)
            for s, go in zip(candidates, goes, strict=True)
            if go or s.inner in read or s.next is not s.inner
        ]

    def known(self, loop: OpenLoop) -> list[Any]:
        if loop.stop is not None or not loop.ys:
            return []
        rows = {x.inner: x.outer for x in loop.rows}
        consts = {c.inner: c.outer for c in loop.consts}
        values: dict[Y, Any] = {}
        for y in loop.ys:
            v = y.inner
            if not isinstance(v.type, DenseTensorType):
                continue
            if not (isinstance(v, Constant) or v in consts or v in rows or v is loop.i):
                continue
            if v in rows:
                trace = rows[v]
                if self.without.length(trace) != self.without.value(loop.n_steps):
                    continue  # the step that reads it may be the only check of its length
            elif v is loop.i:
                trace = pt.arange(loop.n_steps, dtype="int64")
            else:
                trace = repeated(consts.get(v, v), loop.n_steps)
            if not _broadcasts(trace.type, y.trace.type):
                values[y] = trace
        if not self.lengths_hold and not self._is_read(loop, values):
            return []
        return [partial(_drop_trace, y, trace) for y, trace in values.items()]

    def _is_read(self, loop: OpenLoop, gone: Collection[Any]) -> bool:
        """Whether the program reads any output of the loop besides ``gone``: then its errors are kept."""
        outputs = [s.final for s in loop.states if s not in gone]
        outputs += [y.trace for y in loop.ys if y not in gone]
        if loop.stop is not None:
            outputs += [loop.n_done, loop.stopped]
        return any(self.graph.clients.get(v) for v in outputs)


def _is_small(v: Variable) -> bool:
    if not (isinstance(v, Constant) and isinstance(v.type, DenseTensorType)):
        return False
    # PyTensor treats -0.0 and 0.0 as equal Constants, and frozen nodes are shared.
    x = v.data
    return x.size <= _SMALL and not any(
        (np.signbit(part) & (part == 0)).any() for part in (x.real, x.imag)
    )


def _broadcasts(new: Any, old: Type) -> bool:
    """Whether ``new`` has a known length of 1 along an axis where ``old`` has not."""
    if not isinstance(old, DenseTensorType):
        return False
    return any(m == 1 and n != 1 for m, n in zip(new.shape, old.shape, strict=True))


def _keeps_its_value(s: State, consts: dict[Variable, Variable]) -> bool:
    if s.next is s.inner or consts.get(s.next) is s.init:
        return True
    return (
        isinstance(s.next, Constant)
        and isinstance(s.init, Constant)
        and isinstance(s.init.type, DenseTensorType)
        and s.next.data.shape == s.init.data.shape
        and s.next.data.tobytes() == s.init.data.tobytes()
    )
