"""A program that returns its first nonfinite value, and the steps in which it occurs.

    y = f(x)  ->  [code, kind, *entry, *steps]

Each loop has states that remember the first finding of its steps; the body around it treats them as a
finding with one more step. Cost does not matter: the program runs once, after a flag (`flag`) was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from loopax.ir import Call, Cond, Scan
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.lowering.bodies import rebranched
from loopax.lowering.finiteness.looked_at import is_infinite, prepare, values_of
from loopax.lowering.finiteness.passing import may_be_infinite
from loopax.lowering.finiteness.places import Place
from loopax.lowering.open_loop import OpenLoop, State


class Locations(NamedTuple):
    """A graph whose one output is the finding, a vector of numbers, and the places it refers to."""

    graph: FunctionGraph
    places: tuple[Place, ...]
    n_axes: int


def locating(graph: FunctionGraph, names: Sequence[str]) -> Locations:
    """Build a search for the first nonfinite value of ``graph``; ``names`` are names of its outputs."""
    graph = graph.clone()
    prepare(graph)
    places: list[Place] = []
    symbols = _of_graph(graph, (), places)
    named = dict(zip(reversed(graph.outputs), reversed(names), strict=True))
    for v, name in reversed(named.items()):
        if may_be_infinite(v):
            places.append(Place(f"output {name}", v.type.ndim))
            symbols.append(_finding(v, len(places)))
    n_axes = max((place.ndim for place in places), default=0)
    depth = max((len(place.loops) for place in places), default=0)
    report = pt.stack(_first(symbols).padded(n_axes, depth))
    return Locations(FunctionGraph(graph.inputs, [report], clone=True), tuple(places), n_axes)


@dataclass
class _Symbols:
    """A finding, as scalar variables."""

    code: Any
    kind: Any
    entry: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, numbers: Sequence[Any], n_axes: int) -> _Symbols:
        """Unpack the finding that was `padded` to ``numbers``, of which ``n_axes`` are its entry."""
        code, kind, *fields = numbers
        return cls(code, kind, fields[:n_axes], fields[n_axes:])

    def padded(self, n_axes: int, depth: int) -> list[Any]:
        def full(numbers: list[Variable], length: int) -> list[Any]:
            return [*numbers, *[_ZERO] * (length - len(numbers))]

        return [self.code, self.kind, *full(self.entry, n_axes), *full(self.steps, depth)]


_ZERO = pt.constant(0, dtype="int64")


def _of_graph(graph: FunctionGraph, loops: tuple[str, ...], places: list[Place]) -> list[_Symbols]:
    """Findings inside the ops of ``graph``, in order of computation; the graph is not changed."""
    symbols = []
    for node in graph.toposort():
        if isinstance(node.op, Scan):
            symbols.append(_of_loop(graph, node, loops, places))
        elif isinstance(node.op, Cond):
            symbols.append(_of_branches(node, loops, places))
        elif isinstance(node.op, Call):
            symbols.append(_of_call(node, loops, places))
    return [f for f in symbols if f is not None]


def _of_loop(
    graph: FunctionGraph, node: Apply, loops: tuple[str, ...], places: list[Place]
) -> _Symbols | None:
    loop = OpenLoop.of(node)
    body = FunctionGraph(loop.inner.flat(), loop.outputs(), clone=False)
    loops = (*loops, _name_of(node))
    symbols = _of_graph(body, loops, places)
    for v, (kind, k) in values_of(graph, loop).items():
        places.append(Place(_value_in_words(loop, v, kind, k), v.type.ndim, loops))
        symbols.append(_finding(v, len(places)))
    if not symbols:
        return None
    first = _first(symbols)
    first.steps.insert(0, loop.i)
    n_axes = len(first.entry)
    numbers = first.padded(n_axes, len(first.steps))
    before = [INDEX_TYPE() for _ in numbers]
    is_new = pt.eq(before[0], 0)
    n = len(loop.states)
    loop.states += [
        State(s, _ZERO, pt.switch(is_new, x, s).astype("int64"))
        for s, x in zip(before, numbers, strict=True)
    ]
    loop.options = loop.options._replace(parallel=None)  # which supports no integer states
    loop.bind()
    first = _Symbols.of([s.new for s in loop.states[n:]], n_axes)
    if loop.options.reverse:  # the row, which is the last one at the first step
        first.steps[0] = loop.n_steps - 1 - first.steps[0]
    return first


def _of_branches(node: Apply, loops: tuple[str, ...], places: list[Place]) -> _Symbols | None:
    op: Any = node.op
    branches = op.branches
    by_branch = [_of_graph(branch, loops, places) for branch in branches]
    if not any(by_branch):
        return None
    firsts = [_first(f) for f in by_branch]
    n_axes = max(len(f.entry) for f in firsts)
    depth = max(len(f.steps) for f in firsts)
    new = rebranched(node, branches, [f.padded(n_axes, depth) for f in firsts])
    return _Symbols.of(new, n_axes)


def _of_call(node: Apply, loops: tuple[str, ...], places: list[Place]) -> _Symbols | None:
    op: Any = node.op
    body = op.unfrozen()
    symbols = _of_graph(body, loops, places)
    if not symbols:
        return None
    first = _first(symbols)
    n_axes = len(first.entry)
    outs = first.padded(n_axes, len(first.steps))
    call = Call.from_graph(FunctionGraph(body.inputs, outs, clone=True), name=op.name)
    return _Symbols.of(call.make_node(*node.inputs).outputs, n_axes)


def _first(symbols: Sequence[_Symbols]) -> _Symbols:
    """The first of ``symbols`` that holds a finding."""
    if not symbols:
        return _Symbols(_ZERO, _ZERO)
    *before, last = symbols
    n_axes = max(len(f.entry) for f in symbols)
    depth = max(len(f.steps) for f in symbols)
    numbers = last.padded(n_axes, depth)
    for f in reversed(before):
        is_one = pt.neq(f.code, 0)
        numbers = [
            pt.switch(is_one, a, b) for a, b in zip(f.padded(n_axes, depth), numbers, strict=True)
        ]
    return _Symbols.of(numbers, n_axes)


def _finding(x: Any, code: int) -> _Symbols:
    """The first nonfinite entry of ``x``, under the number ``code``."""
    if x.type.dtype.startswith("complex"):
        x = pt.switch(pt.isnan(x), np.nan, abs(x))
    if not x.type.ndim:
        return _Symbols(pt.switch(is_infinite(x), np.int64(code), _ZERO), _kind_of(x))
    flat = pt.concatenate([x.flatten(), np.zeros(1, x.type.dtype)])  # it may have no entry
    bad = is_infinite(flat)
    at = pt.argmax(bad)
    entry: list[Any] = []
    place = at
    for k in reversed(range(x.type.ndim)):
        n = pt.maximum(x.shape[k], 1)
        entry.insert(0, place % n)
        place = place // n
    code = pt.switch(bad[at], np.int64(code), _ZERO)
    return _Symbols(code, _kind_of(flat[at]), [k.astype("int64") for k in entry])


def _kind_of(x: TensorVariable) -> Any:
    """The index of the kind of ``x`` in `KINDS`."""
    return pt.switch(pt.isnan(x), np.int64(0), pt.switch(x > 0, np.int64(1), np.int64(2)))


# -- in words --------------------------------------------------------------------------------------


def _name_of(node: Apply) -> str:
    op: Any = node.op
    name = f"loop '{op.options.name}'" if op.options.name else "the loop"
    line = op.options.origin.line
    return f"{name} ({line})" if line else name


def _value_in_words(loop: OpenLoop, v: Variable, kind: str, k: int) -> str:
    of_states = [(s.label, s.final) for s in loop.states if s.next is v]
    of_traces = [(y.label, y.trace) for y in loop.ys if y.inner is v]
    names = [label or (out is not None and out.name) for label, out in [*of_states, *of_traces]]
    name = next(filter(None, names), f"number {k}")
    return f"{kind} {name}"
