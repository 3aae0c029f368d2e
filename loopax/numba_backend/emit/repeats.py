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
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr, call, local, tuple_of
from loopax.numba_backend.emit.liveness import Flow
from loopax.numba_backend.emit.statements import (
    Assign,
    Block,
    Do,
    For,
    Function,
    Return,
    Statement,
    blocks_in,
    flattened,
    mapped,
)

_LONG = 300  # lines of a program that is searched
_FUNCTION = 14  # lines that take as long to compile as a function does besides its own
_CALL, _ARG, _RESULT = (
    1.5,
    0.2,
    0.8,
)  # and that a call does, each of its arguments and of its results
_CANDIDATES = 100  # of the runs that are repeated so many are looked at, the longest first

_TOKEN = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?<![\w.])(?:[^\W\d]\w*|[\d.]+(?:e[+-]?\d+)?)"""
)


def share_repeats(emit: Emitter) -> None:
    """Make functions of what the program of ``emit`` repeats, and calls of what is repeated."""
    while len(emit.source.body.lines()) > _LONG and _share(emit):  # each round leaves fewer lines
        pass


def _share(emit: Emitter) -> bool:
    """One round; whether there was anything to do."""
    program = _Program(emit)
    used: set[int] = set()
    new: dict[int, list[Statement]] = {}
    for repeat in sorted(program.repeats(), key=lambda one: -one.gain):
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


class _Item:
    """A statement of the program: its text without locals and floats, and these in their order."""

    def __init__(self, statement: Statement, number: int, one_name: dict[str, str]) -> None:
        self.statement, self.number = statement, number
        self.names: list[str] = []
        self.floats: list[str] = []

        def blank(x: Expr) -> Expr:
            def written(token: re.Match[str]) -> str:
                text = token[0]
                if text in locals_:
                    self.names.append(text)
                    return "#"
                if _is_float(text):
                    self.floats.append(text)
                    return "%"
                return one_name.get(text, text)

            locals_ = {*x.names}
            return Expr(_TOKEN.sub(written, x.text))

        lines = mapped(statement, blank).lines()
        self.skeleton, self.n_lines = "\n".join(lines), len(lines)
        self.last = number  # the number of the last statement in it


def _is_float(token: str) -> bool:
    return token[0] in "0123456789" and not token.isdigit()


@dataclass
class _Row:
    """The statements of a block, and where it is; what is assigned by which of them."""

    block: Block
    around: tuple[_Row, int] | None
    given: Sequence[str]
    items: list[_Item]

    @cached_property
    def defined(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for k, item in enumerate(self.items):
            flow = Flow()
            flow.follow([item.statement])
            for name in flow.defined:
                found.setdefault(name, k)
        return found

    def is_defined(self, name: str, k: int) -> bool:
        """Whether ``name`` has been assigned before statement ``k``, whichever way was taken."""
        if name in self.given or self.defined.get(name, k) < k:
            return True
        return self.around is not None and self.around[0].is_defined(name, self.around[1])


@dataclass
class _Window:
    """Statements one after the other."""

    row: _Row
    start: int
    length: int

    @property
    def items(self) -> list[_Item]:
        return self.row.items[self.start : self.start + self.length]

    @property
    def numbers(self) -> range:
        """Those of its statements, and of the statements in these."""
        return range(self.items[0].number, self.items[-1].last + 1)

    @cached_property
    def names(self) -> list[str]:
        return [name for item in self.items for name in item.names]

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(self.names)

    @cached_property
    def distinct(self) -> list[str]:
        return list(self.counts)

    @cached_property
    def floats(self) -> list[str]:
        return [x for item in self.items for x in item.floats]

    @cached_property
    def flow(self) -> Flow:
        flow = Flow()
        flow.follow(item.statement for item in self.items)
        return flow

    @property
    def pattern(self) -> tuple[int, ...]:
        """Which of its names are one: what windows of one text have in common if they are equal."""
        number = {name: k for k, name in enumerate(self.distinct)}
        return tuple(number[name] for name in self.names)


class _Program:
    """The statements of a program, in the order of its text, and what is repeated of them."""

    def __init__(self, emit: Emitter) -> None:
        self.globals = emit.namespace.keys()
        self.rows: list[_Row] = []
        self._count = 0
        first: dict[str, str] = {}  # of the globals of one key
        self._one_name = {name: first.setdefault(key, name) for name, key in emit.keys.items()}
        args = [x.text for x in emit.source.args]
        self._add(emit.source.body, None, [*args, *self.globals])
        self.uses = Counter(n for item in self.rows[-1].items for n in item.names)

    def _add(self, block: Block, around: tuple[_Row, int] | None, given: Sequence[str]) -> None:
        row = _Row(block, around, given, [])
        for statement in flattened(block):
            item = _Item(statement, self._count, self._one_name)
            self._count += 1
            row.items.append(item)
            for inner in blocks_in(statement):
                own = [statement.index.text] if isinstance(statement, For) else []
                self._add(inner, (row, len(row.items) - 1), own)
            item.last = self._count - 1
        self.rows.append(row)

    def repeats(self) -> Iterator[_Repeat]:
        """Windows that may be calls of one function."""
        runs = sorted(self._runs(), key=lambda run: -(len(run) - 1) * _n_lines(run[0]))
        for run in runs[:_CANDIDATES]:
            alike: dict[Any, list[_Window]] = defaultdict(list)
            for window in run:
                alike[window.pattern].append(window)
            for windows in alike.values():
                if len(windows) > 1 and not windows[0].flow.leaves:
                    repeat = _Repeat.of(windows, self)
                    if repeat is not None:
                        yield repeat

    def _runs(self) -> Iterator[list[_Window]]:
        """Windows of equal text that do not overlap, as long as all of them are equal."""
        places = [(row, k) for row in self.rows for k in range(len(row.items) + 1)]
        texts: dict[Any, int] = {}

        def text(k: int) -> int:
            row, at = places[k]
            end = at == len(row.items)  # which nothing else equals
            return texts.setdefault(k if end else row.items[at].skeleton, len(texts))

        whole = [text(k) for k in range(len(places))]
        seen = set()
        ranks, length = whole, 1
        while True:
            groups: dict[int, list[int]] = defaultdict(list)
            for k, rank in enumerate(ranks):
                if not groups[rank] or groups[rank][-1] + length <= k:
                    groups[rank].append(k)
            groups = {rank: starts for rank, starts in groups.items() if len(starts) > 1}
            if not groups:
                return
            for starts in groups.values():
                starts, n = _extended(whole, starts, length)
                if (key := (n, *starts)) not in seen:
                    seen.add(key)
                    yield [_Window(*places[k], n) for k in starts]
            # Twice as long: equal texts are pairs of equal texts.
            pairs: dict[tuple[int, int], int] = {}
            ranks = [
                pairs.setdefault((ranks[k], ranks[k + length]), len(pairs))
                for k in range(len(ranks) - length)
            ]
            length *= 2


def _n_lines(window: _Window) -> int:
    return sum(item.n_lines for item in window.items)


def _extended(texts: Sequence[int], starts: list[int], n: int) -> tuple[list[int], int]:
    """Windows of length ``n`` made longer at both ends, while they stay equal and apart."""
    room = int(np.diff(starts).min()) - n
    while room and starts[-1] + n < len(texts) and len({texts[k + n] for k in starts}) == 1:
        n, room = n + 1, room - 1
    while room and starts[0] and len({texts[k - 1] for k in starts}) == 1:
        starts, n, room = [k - 1 for k in starts], n + 1, room - 1
    return starts, n


@dataclass
class _Repeat:
    """Windows that are equal but for names and floats. Names are told by their number in a window.

    ``args`` are what they read and ``results`` what is read of them elsewhere; ``floats`` are those that
    differ.
    """

    windows: list[_Window]
    args: list[int]
    results: list[int]
    floats: list[int]

    @classmethod
    def of(cls, windows: list[_Window], program: _Program) -> _Repeat | None:
        flow, distinct = windows[0].flow, windows[0].distinct
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
        return (n - 1) * _n_lines(self.windows[0]) - n * one_call - _FUNCTION

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


def _is_read_elsewhere(window: _Window, k: int, program: _Program) -> bool:
    name = window.distinct[k]
    return program.uses[name] > window.counts[name]


def _with_floats(window: _Window, given: dict[int, Expr]) -> Iterator[Statement]:
    """The statements of ``window`` with locals in the place of some of its floats."""
    count = iter(range(len(window.floats)))

    def change(x: Expr) -> Expr:
        new: list[str] = []

        def written(token: re.Match[str]) -> str:
            text = token[0]
            if text in x.names or not _is_float(text):
                return text
            name = given.get(next(count))
            if name is None:
                return text
            new.append(name.text)
            return name.text

        text = _TOKEN.sub(written, x.text)
        return Expr(text, (*x.names, *new))

    for item in window.items:
        yield mapped(item.statement, change)
