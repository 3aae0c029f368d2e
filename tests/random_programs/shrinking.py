"""The fewest statements that show a fault, by trying simpler programs as long as there is time.

Not hypothesis': a try compiles for a second, so there can be dozens and not thousands, and what helps most
is knowing the values. A statement whose value becomes an input takes with it all that it was made of.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tests.random_programs.building import build
from tests.random_programs.description import Function, Input, Program, Statement, source, trimmed

OPTIONS = [
    *[r", keepdims=True", r", checkpoint='?\w+'?", r", reverse=True", r", go_backwards=True"],
    *[r", truncate_gradient=\d", r"\.sum\(axis=-?\d\)", r"\.sum\(\)", r", axis=-?\d"],
    *[r" % \d", r", kind='stable'", r", assume_a='pos'", r", trans=1"],
]


def shrunk(program: Program, fails: Callable[[Program], bool], seconds: float = 60.0) -> Program:
    """A program that fails as ``program`` does, and of which nothing could be left out in that time."""
    end = time.monotonic() + seconds
    seen = {source(program)}
    again = True
    while again and time.monotonic() < end:
        again = False
        for simpler in candidates(program):
            text = source(simpler)
            if time.monotonic() > end:
                break
            if text in seen:
                continue
            seen.add(text)
            if fails(simpler):
                program, again = simpler, True
                break
    return program


def candidates(program: Program) -> Iterator[Program]:
    """Simpler programs, those that leave out most first."""
    if len(program.outputs) > 1:
        for v in program.outputs:
            yield trimmed(replace(program, outputs=(v,)))
    if program.updates:
        yield trimmed(replace(program, updates=()))
    for s in program.statements[:-1]:
        for v in s.targets:
            yield trimmed(replace(program, outputs=(v,)))
    yield from _with_inputs(program)
    for k, s in enumerate(program.statements):
        for simpler in _simpler(s):
            statements = (*program.statements[:k], simpler, *program.statements[k + 1 :])
            yield trimmed(replace(program, statements=statements))
    for k, x in enumerate(program.inputs):
        for y in _simpler_input(x):
            yield replace(program, inputs=(*program.inputs[:k], y, *program.inputs[k + 1 :]))


def _with_inputs(program: Program) -> Iterator[Program]:
    """With the value of a statement in its place."""
    try:
        graph = build(program, "flat")
    except Exception:
        return
    for k in reversed(range(len(program.statements))):
        s = program.statements[k]
        if {*s.targets} & {*program.outputs, *(v for _, v in program.updates)}:
            continue
        assert graph.flat is not None
        values = [np.asarray(graph.flat.values[graph.names[v]]) for v in s.targets]
        made = [Input(v, x, (None,) * x.ndim) for v, x in zip(s.targets, values, strict=True)]
        rest = (*program.statements[:k], *program.statements[k + 1 :])
        yield trimmed(replace(program, inputs=(*program.inputs, *made), statements=rest))


def _simpler(s: Statement) -> Iterator[Statement]:
    for option in OPTIONS:
        if (code := re.sub(option, "", s.code)) != s.code:
            yield replace(s, code=code)
    for k, f in enumerate(s.functions):
        for g in _simpler_function(f):
            yield replace(s, functions=(*s.functions[:k], g, *s.functions[k + 1 :]))


def _simpler_function(f: Function) -> Iterator[Function]:
    for k in reversed(range(len(f.body))):
        s = f.body[k]
        earlier = [*f.params, *(v for t in f.body[:k] for v in t.targets)]
        for target in s.targets:
            for v in reversed(earlier):  # what was made before, in the place of what it makes
                yield _renamed(f, k, target, v)
        for simpler in _simpler(s):
            yield replace(f, body=(*f.body[:k], simpler, *f.body[k + 1 :]))


def _renamed(f: Function, k: int, old: str, new: str) -> Function:
    """Statement ``k`` left out, ``new`` read for ``old``."""

    def read(text: str) -> str:
        return re.sub(rf"\b{old}\b", new, text)

    def within(s: Statement) -> Statement:
        functions = tuple(
            replace(g, body=tuple(map(within, g.body)), returns=read(g.returns))
            for g in s.functions
        )
        return replace(s, code=read(s.code), functions=functions)

    body = (*f.body[:k], *map(within, f.body[k + 1 :]))
    return replace(f, body=body, returns=read(f.returns))


def _simpler_input(x: Input) -> Iterator[Input]:
    if any(x.shape):
        yield replace(x, shape=(None,) * x.value.ndim)
    if x.value.dtype.kind == "f" and np.isfinite(x.value).all():
        for digits in (0, 1):
            yield replace(x, value=np.round(x.value, digits))
