"""Which locals statements read before they assign them, and which are assigned whichever way is taken."""

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
    """What runs one statement after the other.

    ``needed`` are the locals that have to be there before it, ``defined`` those that are there behind it in
    any case, ``assigned`` those that may be. It may end a loop around it where it ``leaves``, and where it
    ``returns`` the function.

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
        """Go on with ``statements``."""
        for statement in statements:
            self._follow(statement)

    def _follow(self, statement: Statement) -> None:
        match statement:
            case Assign(targets, value, operator):
                # Elements of arrays: the arrays stay what they are.
                elements = [x for x in targets if not x.is_name]
                self._read(value, *elements, *(targets if operator != "=" else ()))
                self._define(x.text for x in targets if x.is_name)
            case Do(asked):
                self._read(asked)
            case If(condition, body, orelse):
                self._read(condition)
                ways = [self._inside(body), self._inside(orelse)]
                self.defined |= ways[0].defined & ways[1].defined
            case For(index, count, body):
                self._read(count)
                self.leaves |= self._inside(body, index).returns
            case Block():
                self.follow(statement.statements)
            case Region(body, made):
                self.follow(body.statements if made is None else [made])
            case Return(values):
                self._read(values)
                self.leaves = self.returns = True
            case Break():
                self.leaves = True

    def _inside(self, block: Block, *given: Expr) -> Flow:
        """A branch or a loop, with ``given`` defined in it."""
        inner = Flow(self.needed, {*self.defined}, self.assigned)
        inner._define(x.text for x in given)
        inner.follow(block.statements)
        self.returns |= inner.returns
        if not given:
            self.leaves |= inner.leaves
        return inner

    def _read(self, *expressions: object) -> None:
        self.needed.update(name for name in names_of(expressions) if name not in self.defined)

    def _define(self, names: Iterable[str]) -> None:
        for name in names:
            self.defined.add(name)
            self.assigned.add(name)
