"""Statements of a function, as a tree that is emitted, and printed at the end.

    Statement = Assign(targets, value) | Do(call) | Raise(error) | Break | Return(values)
              | If(condition, body, orelse) | For(index, count, body) | Block(statements) | Region(body)

A `Block` is also a place: a block in front of a loop is filled while the loop is emitted. Empty
statements are not printed. A loop runs from 0 to ``count``, exclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loopax.numba_backend.emit.expressions import Dim, Expr, text_of
from loopax.numba_backend.emit.source import function_of


@dataclass(frozen=True)
class Assign:
    """``targets = value``; a single target, which may be an element of an array, allows ``+=``."""

    targets: tuple[Expr, ...]
    value: Expr
    operator: str = "="

    def lines(self) -> list[str]:
        return [f"{', '.join(map(text_of, self.targets))} {self.operator} {text_of(self.value)}"]


@dataclass(frozen=True)
class Do:
    """A call for its effect: it raises, or writes into an array."""

    call: Expr

    def lines(self) -> list[str]:
        return [text_of(self.call)]


@dataclass(frozen=True)
class Raise:
    error: str
    message: str

    def lines(self) -> list[str]:
        return [f"raise {self.error}({self.message!r})"]


@dataclass(frozen=True)
class Break:
    def lines(self) -> list[str]:
        return ["break"]


@dataclass(frozen=True)
class Return:
    values: Expr

    def lines(self) -> list[str]:
        return [f"return {text_of(self.values)}"]


@dataclass
class Block:
    """A sequence of statements, possibly empty."""

    statements: list[Statement] = field(default_factory=list)

    def add(self, statement: Statement) -> None:
        self.statements.append(statement)

    def lines(self) -> list[str]:
        return [line for statement in self.statements for line in statement.lines()]


@dataclass
class If:
    """A conditional; once its condition is ``decided``, only the lines of that branch are printed."""

    condition: Expr
    body: Block = field(default_factory=Block)
    orelse: Block = field(default_factory=Block)
    decided: bool | None = None

    def lines(self) -> list[str]:
        if self.decided is not None:
            return (self.body if self.decided else self.orelse).lines()
        body, orelse = self.body.lines(), self.orelse.lines()
        if not body and not orelse:
            return []
        head = [f"if {text_of(self.condition)}:", *_indented(body or ["pass"])]
        return [*head, "else:", *_indented(orelse)] if orelse else head


@dataclass
class For:
    """A loop; ``is_steps`` marks a loop over the steps of a `Scan`, not along an axis."""

    index: Expr
    count: Dim
    body: Block = field(default_factory=Block)
    is_steps: bool = False

    def lines(self) -> list[str]:
        head = f"for {text_of(self.index)} in range({text_of(self.count)}):"
        return [head, *_indented(self.body.lines() or ["pass"])]


@dataclass
class Region:
    """A block that may be a ``call`` of a function with the same results: see `outlining`."""

    body: Block = field(default_factory=Block)
    call: Assign | None = None

    def lines(self) -> list[str]:
        return self.body.lines() if self.call is None else self.call.lines()


Statement = Assign | Do | Raise | Break | Return | Block | If | For | Region


class SizeTest(NamedTuple):
    """A conditional that asks whether the product of ``lengths`` is at most ``most``."""

    statement: If
    lengths: tuple[Dim, ...]
    most: int


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def flattened(block: Block) -> Iterator[Statement]:
    """Yield the statements of ``block``, with nested places and regions replaced by their contents."""
    for statement in block.statements:
        if isinstance(statement, Region):
            statement = statement.body if statement.call is None else statement.call
        if isinstance(statement, Block):
            yield from flattened(statement)
        else:
            yield statement


def blocks_in(statement: Statement) -> list[Block]:
    """The blocks of a loop or of a conditional."""
    if isinstance(statement, For):
        return [statement.body]
    return [statement.body, statement.orelse] if isinstance(statement, If) else []


def has_loop(block: Block) -> bool:
    """Whether a statement of ``block`` or one inside it is a loop."""
    return any(isinstance(s, For) or any(map(has_loop, blocks_in(s))) for s in flattened(block))


def mapped(statement: Statement, change: Callable[[Expr], Expr]) -> Statement:
    """Apply ``change`` to the expressions of ``statement``, in the order of the text."""

    def new(x: Expr | int) -> Any:
        return change(x) if isinstance(x, Expr) else x

    def block(old: Block) -> Block:
        return Block([mapped(inner, change) for inner in flattened(old)])

    match statement:
        case Assign(targets, value, operator):
            return Assign(tuple(map(new, targets)), new(value), operator)
        case Do(call):
            return Do(new(call))
        case Return(values):
            return Return(new(values))
        case If(condition, body, orelse):
            return If(new(condition), block(body), block(orelse))
        case For(index, count, body, is_steps):
            return For(new(index), new(count), block(body), is_steps)
        case _:
            return statement


class Function:
    """A function of native code.

    >>> from loopax.numba_backend.emit.expressions import expr, local
    >>> x = local("x")
    >>> double = Function("double", [x])
    >>> double.body.add(If(expr("{} > 0", x), Block([Assign((x,), 2 * x)])))
    >>> double.body.add(Return(x))
    >>> print(double)
    def double(x):
        if x > 0:
            x = 2 * x
        return x
    """

    def __init__(self, name: str, args: Sequence[Expr]) -> None:
        self.name, self.args = name, args
        self.body = Block()
        self._args = {*map(text_of, args)}
        self._counts: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A name that no earlier call returned."""
        self._counts[hint] = self._counts.get(hint, -1) + 1
        name = f"{hint}{self._counts[hint]}"
        return self.fresh(hint) if name in self._args else name

    def __str__(self) -> str:
        head = f"def {self.name}({', '.join(map(text_of, self.args))}):"
        return "\n".join([head, *_indented(self.body.lines())])

    def function(self, namespace: Mapping[str, Any], keys: Mapping[str, str]) -> Any:
        """Define the Python function, with the globals ``namespace``; see `function_of`."""
        return function_of(str(self), self.name, namespace, keys)
