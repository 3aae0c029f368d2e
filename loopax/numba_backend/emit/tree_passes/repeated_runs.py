"""Repeated runs of statements, equal in text up to locals and floats."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr
from loopax.numba_backend.emit.statements import (
    Block,
    For,
    Statement,
    blocks_in,
    flattened,
    has_loop,
    mapped,
)
from loopax.numba_backend.emit.tree_passes.liveness import Flow

_CANDIDATES = 100  # repeated runs that are tried, the longest first

# A string, a name or a number in the text of an expression.
TOKEN = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?<![\w.])(?:[^\W\d]\w*|[\d.]+(?:e[+-]?\d+)?)"""
)


class Item:
    """A statement of the program: its text without locals and floats, and both in order."""

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
                if is_float(text):
                    self.floats.append(text)
                    return "%"
                return one_name.get(text, text)

            locals_ = {*x.names}
            return Expr(TOKEN.sub(written, x.text))

        lines = mapped(statement, blank).lines()
        self.skeleton, self.n_lines = "\n".join(lines), len(lines)
        self.last = number  # the number of the last nested statement


def _is_vector_loop(statement: Statement) -> bool:
    """Whether LLVM may vectorize ``statement``: an innermost loop along an axis of an array.

    A call in it of a function that LLVM does not inline would prevent that: normal draws for the particles
    of a filter then took five times as long. The loop as a whole may still become a function.
    """
    return isinstance(statement, For) and not statement.is_steps and not has_loop(statement.body)


def is_float(token: str) -> bool:
    return token[0] in "0123456789" and not token.isdigit()


@dataclass
class Row:
    """The statements of a block, the place of the block, and the locals assigned at its start."""

    block: Block
    around: tuple[Row, int] | None
    assigned: Sequence[str]
    items: list[Item]

    @cached_property
    def defined(self) -> dict[str, int]:
        positions: dict[str, int] = {}
        for k, item in enumerate(self.items):
            flow = Flow()
            flow.follow([item.statement])
            for name in flow.defined:
                positions.setdefault(name, k)
        return positions

    def is_defined(self, name: str, k: int) -> bool:
        """Whether ``name`` is assigned on every path to statement ``k``."""
        if name in self.assigned or self.defined.get(name, k) < k:
            return True
        return self.around is not None and self.around[0].is_defined(name, self.around[1])


@dataclass
class Run:
    """A run of consecutive statements of a block."""

    row: Row
    start: int
    length: int

    @property
    def items(self) -> list[Item]:
        return self.row.items[self.start : self.start + self.length]

    @property
    def numbers(self) -> range:
        """The numbers of its statements, nested ones included."""
        return range(self.items[0].number, self.items[-1].last + 1)

    @cached_property
    def n_lines(self) -> int:
        return sum(item.n_lines for item in self.items)

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
        """The equalities among its names: runs of equal text are equal if their patterns are."""
        number = {name: k for k, name in enumerate(self.distinct)}
        return tuple(number[name] for name in self.names)


class Program:
    """The statements of a program in the order of its text, and their repetitions."""

    def __init__(self, emit: Emitter) -> None:
        self.globals = emit.namespace.keys()
        self.rows: list[Row] = []
        self._count = 0
        first: dict[str, str] = {}  # key -> first global with that key
        self._one_name = {name: first.setdefault(key, name) for name, key in emit.keys.items()}
        args = [x.text for x in emit.source.args]
        self._add(emit.source.body, None, [*args, *self.globals])
        self.uses = Counter(n for item in self.rows[-1].items for n in item.names)

    def _add(self, block: Block, around: tuple[Row, int] | None, assigned: Sequence[str]) -> None:
        row = Row(block, around, assigned, [])
        for statement in flattened(block):
            item = Item(statement, self._count, self._one_name)
            self._count += 1
            row.items.append(item)
            if _is_vector_loop(statement):
                continue
            for inner in blocks_in(statement):
                own = [statement.index.text] if isinstance(statement, For) else []
                self._add(inner, (row, len(row.items) - 1), own)
            item.last = self._count - 1
        self.rows.append(row)

    def repeated(self) -> Iterator[list[Run]]:
        """Yield groups of at least two runs that are equal up to names of locals and floats."""
        groups = sorted(self._equal_runs(), key=lambda runs: -(len(runs) - 1) * runs[0].n_lines)
        for group in groups[:_CANDIDATES]:
            alike: dict[Any, list[Run]] = defaultdict(list)
            for run in group:
                alike[run.pattern].append(run)
            yield from (runs for runs in alike.values() if len(runs) > 1)

    def _equal_runs(self) -> Iterator[list[Run]]:
        """Yield groups of disjoint runs of equal text, each extended as far as all stay equal."""
        places = [(row, k) for row in self.rows for k in range(len(row.items) + 1)]
        texts: dict[Any, int] = {}

        def text(k: int) -> int:
            row, at = places[k]
            end = at == len(row.items)  # a unique text
            return texts.setdefault(k if end else row.items[at].skeleton, len(texts))

        whole = [text(k) for k in range(len(places))]
        yielded = set()
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
                if (key := (n, *starts)) not in yielded:
                    yielded.add(key)
                    yield [Run(*places[k], n) for k in starts]
            # Double the length: equal texts are pairs of equal texts.
            pairs: dict[tuple[int, int], int] = {}
            ranks = [
                pairs.setdefault((ranks[k], ranks[k + length]), len(pairs))
                for k in range(len(ranks) - length)
            ]
            length *= 2


def _extended(texts: Sequence[int], starts: list[int], n: int) -> tuple[list[int], int]:
    """Extend runs of length ``n`` at both ends while they stay equal and disjoint."""
    room = int(np.diff(starts).min()) - n
    while room and starts[-1] + n < len(texts) and len({texts[k + n] for k in starts}) == 1:
        n, room = n + 1, room - 1
    while room and starts[0] and len({texts[k - 1] for k in starts}) == 1:
        starts, n, room = [k - 1 for k in starts], n + 1, room - 1
    return starts, n
