"""Outlining of statements that a long program repeats with other locals.

    t0 = a * x                 def part0(a, x):
    t1 = exp(t0)                   t0 = a * x
    t2 = b * y          ->         t1 = exp(t0)
    t3 = exp(t2)                   return t1
    s0 = t1 + t3               t1 = part0(a, x)
                               t3 = part0(b, y)
                               s0 = t1 + t3

Sixteen filters for sixteen series are emitted sixteen times, in one loop or in sixteen, and so are
their derivatives. The passes do not preserve the graph whose instances they were, so equality is
detected in the emitted statements.

Condition: the statements are equal up to names of locals and floats; the locals that they read are
assigned on every path; and the program is long. A short one has little to gain, and may lose a call at
each step that LLVM does not inline again.

In the literature: an outliner, such as LLVM's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr, call, local, tuple_of
from loopax.numba_backend.emit.statements import Assign, Do, Function, Return, Statement, mapped
from loopax.numba_backend.emit.tree_passes.repeated_runs import TOKEN, Program, Run, is_float

_LONG = 300  # the least lines of a program that is searched
# Compile time in lines: the overhead of a function, a call, an argument and a result.
_FUNCTION, _CALL, _ARG, _RESULT = 14, 1.5, 0.2, 0.8


def share_repeats(emit: Emitter) -> None:
    """Replace repeated statements in the program of ``emit`` by calls of functions."""
    while len(emit.source.body.lines()) > _LONG and _share(emit):  # each round leaves fewer lines
        pass


def _share(emit: Emitter) -> bool:
    """Outline disjoint repeats, the best first; returns whether there were any."""
    program = Program(emit)
    used: set[int] = set()
    new: dict[int, list[Statement]] = {}
    repeats = filter(None, (_Repeat.checked(runs, program) for runs in program.repeated()))
    for repeat in sorted(repeats, key=lambda repeat: -repeat.gain):
        inside = {k for run in repeat.runs for k in run.numbers}
        if repeat.gain > 0 and not inside & used:
            used |= inside
            for run, statement in zip(repeat.runs, repeat.calls(emit), strict=True):
                first, *tail = run.items
                new[first.number] = [statement]
                new.update((item.number, []) for item in tail)
    for row in program.rows:
        row.block.statements[:] = [
            s for item in row.items for s in new.get(item.number, [item.statement])
        ]
    return bool(new)


@dataclass
class _Repeat:
    """Runs that are equal up to names and floats. Names are numbered within a run.

    ``args`` are the names that they read, ``results`` the names read elsewhere, ``floats`` the floats
    that differ.
    """

    runs: list[Run]
    args: list[int]
    results: list[int]
    floats: list[int]

    @classmethod
    def checked(cls, runs: list[Run], program: Program) -> _Repeat | None:
        flow, distinct = runs[0].flow, runs[0].distinct
        if flow.leaves:
            return None
        assigned = [k for k, name in enumerate(distinct) if name in flow.assigned]
        results = [k for k in assigned if any(_is_read_elsewhere(r, k, program) for r in runs)]
        operands = [
            k
            for k, name in enumerate(distinct)
            # A local assigned on some paths alone may keep its old value.
            if name in flow.needed or (k in results and name not in flow.defined)
        ]
        runs = [r for r in runs if all(r.row.is_defined(r.distinct[k], r.start) for k in operands)]
        if len(runs) < 2:
            return None
        shared = {k for k in operands if len({r.distinct[k] for r in runs}) == 1}
        args = [k for k in operands if k not in shared or distinct[k] not in program.globals]
        columns = zip(*(r.floats for r in runs), strict=True)
        floats = [j for j, column in enumerate(columns) if len(set(column)) > 1]
        return cls(runs, args, results, floats)

    @property
    def gain(self) -> float:
        """The number of lines that outlining saves."""
        n_args = len(self.args) + len(self.floats)
        one_call = _CALL + _ARG * n_args + _RESULT * len(self.results)
        n = len(self.runs)
        return (n - 1) * self.runs[0].n_lines - n * one_call - _FUNCTION

    def calls(self, emit: Emitter) -> Iterator[Statement]:
        """Yield a call for each run, of a function with the statements of the first one."""
        first = self.runs[0]
        name = emit.source.fresh("part")
        float_args = {j: local(emit.source.fresh("c")) for j in self.floats}
        args = [*(local(first.distinct[k]) for k in self.args), *float_args.values()]
        function = Function(name, args)
        for item in _with_floats(first, float_args):
            function.body.add(item)
        results = [local(first.distinct[k]) for k in self.results]
        if results:
            function.body.add(Return(results[0] if len(results) == 1 else tuple_of(results)))
        emit.define_function(function, emit)
        for run in self.runs:
            operands = [local(run.distinct[k]) for k in self.args]
            floats = [Expr(run.floats[j]) for j in self.floats]
            call_of_part = call(name, *operands, *floats)
            targets = tuple(local(run.distinct[k]) for k in self.results)
            yield Assign(targets, call_of_part) if targets else Do(call_of_part)


def _is_read_elsewhere(run: Run, k: int, program: Program) -> bool:
    name = run.distinct[k]
    return program.uses[name] > run.counts[name]


def _with_floats(run: Run, float_args: dict[int, Expr]) -> Iterator[Statement]:
    """Yield the statements of ``run`` with arguments in place of some of its floats."""
    count = iter(range(len(run.floats)))

    def change(x: Expr) -> Expr:
        new: list[str] = []

        def written(token: re.Match[str]) -> str:
            text = token[0]
            if text in x.names or not is_float(text):
                return text
            name = float_args.get(next(count))
            if name is None:
                return text
            new.append(name.text)
            return name.text

        text = TOKEN.sub(written, x.text)
        return Expr(text, (*x.names, *new))

    for item in run.items:
        yield mapped(item.statement, change)
