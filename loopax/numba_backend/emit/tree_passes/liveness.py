"""Liveness of locals: those read before an assignment, and those assigned on every path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from loopax.numba_backend.emit.expressions import Expr, names_of
from loopax.numba_backend.emit.statements import (
    Assign,
    Block,
    Break,
    Do,
    For,
    If,
    Region,
    Return,
    Statement,
)


@dataclass
class Flow:
    """Data flow of a sequence of statements.

    ``needed`` are the locals that it reads from outside, ``defined`` those assigned on every path,
    ``assigned`` those assigned on some path. ``leaves`` says that it may end an enclosing loop,
    ``returns`` that it may end the function.

    >>> from loopax.numba_backend.emit.expressions import local
    >>> x, y, z = map(local, "xyz")
    >>> flow = Flow()
    >>> flow.follow([Assign((y,), 2 * x), If(y, Block([Assign((z,), y)]))])
    >>> flow.needed, flow.defined, sorted(flow.assigned)
    ({'x'}, {'y'}, ['y', 'z'])
    """

    needed: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    leaves: bool = False
    returns: bool = False

    def follow(self, statements: Iterable[Statement]) -> None:
        """Append ``statements`` to the sequence."""
        for statement in statements:
            self._follow(statement)

    def _follow(self, statement: Statement) -> None:
        match statement:
            case Assign(targets, value, operator):
                # An assignment to an element reads its array.
                elements = [x for x in targets if not x.is_name]
                self._read(value, *elements, *(targets if operator != "=" else ()))
                self._define(x.text for x in targets if x.is_name)
            case Do(call):
                self._read(call)
            case If(condition, body, orelse):
                self._read(condition)
                branches = [self._inside(body), self._inside(orelse)]
                self.defined |= branches[0].defined & branches[1].defined
            case For(index, count, body):
                self._read(count)
                self.leaves |= self._inside(body, index).returns
            case Block():
                self.follow(statement.statements)
            case Region(body, call):
                self.follow(body.statements if call is None else [call])
            case Return(values):
                self._read(values)
                self.leaves = self.returns = True
            case Break():
                self.leaves = True

    def _inside(self, block: Block, *assigned: Expr) -> Flow:
        """Follow a branch, or a loop that assigns ``assigned`` at each step."""
        inner = Flow(self.needed, {*self.defined}, self.assigned)
        inner._define(x.text for x in assigned)
        inner.follow(block.statements)
        self.returns |= inner.returns
        if not assigned:
            self.leaves |= inner.leaves
        return inner

    def _read(self, *expressions: object) -> None:
        self.needed.update(name for name in names_of(expressions) if name not in self.defined)

    def _define(self, names: Iterable[str]) -> None:
        for name in names:
            self.defined.add(name)
            self.assigned.add(name)
