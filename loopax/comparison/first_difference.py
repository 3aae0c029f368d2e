"""Search for the first node at which compiled code differs from the ops' own Python code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import DenseTensorType

from loopax.comparison.differences import difference, first_apart
from loopax.diagnosis import Finding
from loopax.diagnosis.findings import at_node
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import at_entry, value_in_words
from loopax.diagnosis.runner import Runner
from loopax.diagnosis.segments import Segments
from loopax.diagnosis.traps import Trap
from loopax.ir.program import Program

Build = Callable[[Program], Any]


def first_difference(
    runner: Runner,
    frame: Frame,
    build: Build,
    form: str,
    tolerance: float,
    names: Mapping[Variable, str],
) -> Finding | None:
    """The first node of ``frame``, which has run, whose value differs in the form that ``build`` compiles.

    None where no node differs: with every value as an output the two forms agree.
    """
    at = _first_node(frame, build, tolerance)
    if at is None:
        return None
    node, v, other = at
    run = frame.inside.get(node)
    if isinstance(run, LoopRun):
        inner = _in_loop(runner, run, build, tolerance)
        if inner is not None:
            inside = first_difference(runner, inner, build, form, tolerance, names)
            if inside is not None:
                return inside
    elif isinstance(run, Frame):
        inside = first_difference(runner, run, build, form, tolerance, names)
        if inside is not None:
            return inside
    own = frame.value(v)
    entry = first_apart(own, other, tolerance) if np.shape(own) == np.shape(other) else None
    why = (
        f"{form} gives {value_in_words(at_entry(other, entry))}, PyTensor's Python mode "
        f"{value_in_words(at_entry(own, entry))}."
    )
    return at_node(frame, node, names, kind="differs", trap=Trap(why), variable=v, entry=entry)


def _first_node(frame: Frame, build: Build, tolerance: float) -> tuple[Apply, Variable, Any] | None:
    """The first node that differs, its output, and the compiled value of that output."""
    graph = frame.graph
    watched = [
        v
        for node in frame.order
        for v in node.outputs
        if isinstance(v.type, DenseTensorType) and v in frame.values
    ]
    if not watched:
        return None
    inputs = [v.type(name=v.name) for v in graph.inputs]
    copy = _copied(graph, inputs, watched)
    results = build(Program.of_graph(copy))(*frame.inputs)
    for v, other in zip(watched, results, strict=True):
        if difference(frame.value(v), np.asarray(other)) > tolerance:
            return v.owner, v, np.asarray(other)
    return None


def _copied(
    graph: FunctionGraph, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> FunctionGraph:
    memo: dict[Any, Any] = dict(zip(graph.inputs, inputs, strict=True))
    needed = set(ancestors(outputs, blockers=graph.inputs))
    for node in graph.toposort():
        if not needed.isdisjoint(node.outputs):
            new = Apply(
                node.op,
                [v if isinstance(v, Constant) else memo[v] for v in node.inputs],
                [v.type() for v in node.outputs],
            )
            memo.update(zip(node.outputs, new.outputs, strict=True))
    return FunctionGraph(inputs, [memo[v] for v in outputs], clone=False)


def _in_loop(runner: Runner, loop: LoopRun, build: Build, tolerance: float) -> Frame | None:
    """Run the first step of a loop in which a state or a trace differs."""
    segments = Segments(loop.scan, build)
    if not segments.can_be_compiled or not loop.n_done:
        return None
    segment = segments.run(loop.args, 0, loop.n_done, list(loop.args.states))
    steps = []
    for j, after in enumerate(segment.states):
        own = np.stack([loop.states_before(k + 1)[j] for k in range(loop.n_done)])
        entry = first_apart(own, after, tolerance) if own.shape == after.shape else (0,)
        steps += [] if entry is None else [entry[0]]
    direction = -1 if loop.scan.options.reverse else 1
    trace_outputs = loop.node.outputs[loop.scan.n_states :]
    for v, ys in zip(trace_outputs, segment.ys, strict=False):
        own = np.asarray(loop.around.value(v))[::direction]
        entry = first_apart(own, ys, tolerance) if own.shape == ys.shape else (0,)
        steps += [] if entry is None else [entry[0]]
    return loop.frame(min(steps)) if steps else None
