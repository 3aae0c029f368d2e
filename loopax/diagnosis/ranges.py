"""The first value of a named variable that is outside of its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from loopax.diagnosis.findings import at_node
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import at_entry, entry_in_words, first_true, number_in_words
from loopax.diagnosis.report import Finding
from loopax.diagnosis.runner import Runner
from loopax.diagnosis.segments import Segments
from loopax.diagnosis.traps import Trap
from loopax.ir.ops.inner_graph_op import InnerGraphOp

Bounds = Mapping[str, tuple[float, float]]
_STEPS = 512  # steps of a long loop that one compiled call checks


def first_outside(
    runner: Runner, frame: Frame, within: Bounds, names: Mapping[Variable, str]
) -> Finding | None:
    """Report the first value outside of its bounds, in the order of computation.

    Raises `ValueError` if no variable has one of the names, or a lower bound is above its upper one.
    """
    for name, (low, high) in within.items():
        if low > high:
            raise ValueError(
                f"within has the bounds ({low:g}, {high:g}) of {name}, but the lower one comes first: "
                f"within={{{name!r}: ({high:g}, {low:g})}}."
            )
    missing = set(within) - set(_names_within(frame, names))
    if missing:
        listed = ", ".join(sorted(set(_names_within(frame, names)))) or "none"
        raise ValueError(
            f"within names {', '.join(sorted(missing))}, but the program has no such variable. Name a "
            f"variable where you make it, h.name = 'h'. The program has these names: {listed}."
        )
    return next(_outside(runner, frame, within, names), None)


def _names_within(frame: Frame, names: Mapping[Variable, str]) -> Iterator[str]:
    yield from (name for v, name in names.items())
    stack: list[Any] = [frame.graph]
    while stack:
        graph = stack.pop()
        for node in graph.toposort():
            yield from (v.name for v in node.outputs if v.name)
            if isinstance(node.op, InnerGraphOp):
                stack += node.op.bodies_as_written


def _outside(
    runner: Runner, frame: Frame, within: Bounds, names: Mapping[Variable, str]
) -> Iterator[Finding]:
    for v in frame.graph.inputs:
        name = names.get(v) or v.name or ""
        if (
            frame.node is None
            and name in within
            and (at := _first(frame.value(v), within[name])) is not None
        ):
            text = f"input {name}{entry_in_words(at)}"
            number = number_in_words(at_entry(frame.value(v), at))
            why = f"{text} = {number} is outside of {_in_words(within[name])}."
            yield Finding(kind="range", op="input", expression=text, entry=at, why=why)
    for node in frame.order:
        run = frame.inside.get(node)
        if isinstance(run, LoopRun):
            yield from _in_loop(runner, run, within, names)
        elif isinstance(run, Frame):
            yield from _outside(runner, run, within, names)
        for v in node.outputs:
            bounds = within.get(v.name or "")
            if bounds is not None and (at := _first(frame.value(v), bounds)) is not None:
                number = number_in_words(at_entry(frame.value(v), at))
                why = f"{v.name}{entry_in_words(at)} = {number} is outside of {_in_words(bounds)}."
                yield at_node(
                    frame, node, names, kind="range", trap=Trap(why), variable=v, entry=at
                )


def _in_loop(
    runner: Runner, loop: LoopRun, within: Bounds, names: Mapping[Variable, str]
) -> Iterator[Finding]:
    nodes = list(loop.body.toposort())
    own = [v for node in nodes for v in node.outputs if v.name in within]
    if not own and not any(isinstance(node.op, InnerGraphOp) for node in nodes):
        return
    segments = Segments(loop.scan, runner.build, own)
    is_long = len(nodes) * loop.n_done > runner.budget
    one_by_one = not is_long or len(own) == 0 or not segments.can_be_compiled
    for start in range(0, loop.n_done, _STEPS):
        count = min(_STEPS, loop.n_done - start)
        if not one_by_one and not _any_outside(segments, loop, start, count, within):
            continue
        for k in range(start, start + count):
            yield from _outside(runner, loop.frame(k), within, names)


def _any_outside(segments: Segments, loop: LoopRun, start: int, count: int, within: Bounds) -> bool:
    segment = segments.run(loop.args, start, count, loop.states_before(start))
    return any(
        _first(values, within[str(v.name)]) is not None
        for v, values in zip(segments.watched, segment.watched, strict=True)
    )


def _first(value: object, bounds: tuple[float, float]) -> tuple[int, ...] | None:
    """The first entry that is nan or outside of the bounds."""
    low, high = bounds
    value = np.asarray(value)
    return first_true(~((value >= low) & (value <= high)))


def _in_words(bounds: tuple[float, float]) -> str:
    return f"[{bounds[0]:g}, {bounds[1]:g}]"
