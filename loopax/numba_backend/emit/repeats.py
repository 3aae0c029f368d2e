"""Statements that a long program repeats with other locals, as a function that is compiled once.

    t0 = a * x                 def part0(a, x):
    t1 = exp(t0)                   t0 = a * x
    t2 = b * y          ->         t1 = exp(t0)
    t3 = exp(t2)                   return t1
    s0 = t1 + t3               t1 = part0(a, x)
                               t3 = part0(b, y)
                               s0 = t1 + t3

Sixteen filters for sixteen series are written sixteen times, in one loop or in sixteen, and so are their
derivatives. Which graph they were instances of, if there was one, the passes no longer know; that they are
equal is seen in what is written.

Condition: the statements are equal but for the names of their locals and for floats; what they read has
been assigned before, whichever way was taken; and the program is long. A short one has little to gain,
and may lose a call at each step that LLVM does not put in line again.

In the literature: an outliner, such as LLVM's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr, call, local, tuple_of
from loopax.numba_backend.emit.repeated_runs import TOKEN, Program, Window, is_float
from loopax.numba_backend.emit.statements import Assign, Do, Function, Return, Statement, mapped

_LONG = 300  # lines of a program that is searched
# Lines that take as long to compile as a function does besides its own, a call of it, each of its arguments
# and each of its results.
_FUNCTION, _CALL, _ARG, _RESULT = 14, 1.5, 0.2, 0.8


def share_repeats(emit: Emitter) -> None:
    """Make functions of what the program of ``emit`` repeats, and calls of what is repeated."""
    while len(emit.source.body.lines()) > _LONG and _share(emit):  # each round leaves fewer lines
        pass


def _share(emit: Emitter) -> bool:
    """One round; whether there was anything to do."""
    program = Program(emit)
    used: set[int] = set()
    new: dict[int, list[Statement]] = {}
    repeats = filter(None, (_Repeat.of(windows, program) for windows in program.repeated()))
    for repeat in sorted(repeats, key=lambda one: -one.gain):
        inside = {k for window in repeat.windows for k in window.numbers}
        if repeat.gain > 0 and not inside & used:
            used |= inside
            for window, statement in zip(repeat.windows, repeat.calls(emit), strict=True):
                first, *others = window.items
                new[first.number] = [statement]
                new.update((item.number, []) for item in others)
    for row in program.rows:
        row.block.statements[:] = [
            s for item in row.items for s in new.get(item.number, [item.statement])
        ]
    return bool(new)


@dataclass
class _Repeat:
    """Windows that are equal but for names and floats. Names are told by their number in a window.

    ``args`` are what they read and ``results`` what is read of them elsewhere; ``floats`` are those that
    differ.
    """

    windows: list[Window]
    args: list[int]
    results: list[int]
    floats: list[int]

    @classmethod
    def of(cls, windows: list[Window], program: Program) -> _Repeat | None:
        flow, distinct = windows[0].flow, windows[0].distinct
        if flow.leaves:
            return None
        assigned = [k for k, name in enumerate(distinct) if name in flow.assigned]
        results = [k for k in assigned if any(_is_read_elsewhere(w, k, program) for w in windows)]
        read = [
            k
            for k, name in enumerate(distinct)
            # What is only assigned on some way keeps the value that it had.
            if name in flow.needed or (k in results and name not in flow.defined)
        ]
        windows = [
            w for w in windows if all(w.row.is_defined(w.distinct[k], w.start) for k in read)
        ]
        if len(windows) < 2:
            return None
        same = {k for k in read if len({w.distinct[k] for w in windows}) == 1}
        args = [k for k in read if k not in same or distinct[k] not in program.globals]
        columns = zip(*(w.floats for w in windows), strict=True)
        floats = [j for j, column in enumerate(columns) if len(set(column)) > 1]
        return cls(windows, args, results, floats)

    @property
    def gain(self) -> float:
        """How many lines fewer there are to compile."""
        n_args = len(self.args) + len(self.floats)
        one_call = _CALL + _ARG * n_args + _RESULT * len(self.results)
        n = len(self.windows)
        return (n - 1) * self.windows[0].n_lines - n * one_call - _FUNCTION

    def calls(self, emit: Emitter) -> Iterator[Statement]:
        """A call for each window; the function, which is the first of them, becomes a global."""
        first = self.windows[0]
        name = emit.source.fresh("part")
        given = {j: local(emit.source.fresh("c")) for j in self.floats}
        args = [*(local(first.distinct[k]) for k in self.args), *given.values()]
        function = Function(name, args)
        for item in _with_floats(first, given):
            function.body.add(item)
        found = [local(first.distinct[k]) for k in self.results]
        if found:
            function.body.add(Return(found[0] if len(found) == 1 else tuple_of(found)))
        emit.define_function(function, emit.namespace, emit.keys)
        for window in self.windows:
            operands = [local(window.distinct[k]) for k in self.args]
            floats = [Expr(window.floats[j]) for j in self.floats]
            asked = call(name, *operands, *floats)
            targets = tuple(local(window.distinct[k]) for k in self.results)
            yield Assign(targets, asked) if targets else Do(asked)


def _is_read_elsewhere(window: Window, k: int, program: Program) -> bool:
    name = window.distinct[k]
    return program.uses[name] > window.counts[name]


def _with_floats(window: Window, given: dict[int, Expr]) -> Iterator[Statement]:
    """The statements of ``window`` with locals in the place of some of its floats."""
    count = iter(range(len(window.floats)))

    def change(x: Expr) -> Expr:
        new: list[str] = []

        def written(token: re.Match[str]) -> str:
            text = token[0]
            if text in x.names or not is_float(text):
                return text
            name = given.get(next(count))
            if name is None:
                return text
            new.append(name.text)
            return name.text

        text = TOKEN.sub(written, x.text)
        return Expr(text, (*x.names, *new))

    for item in window.items:
        yield mapped(item.statement, change)
