"""Statements of a native function, and the names, lengths and checks known at each place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from loopax.numba_backend.emit.expressions import Dim, Expr, Operand, as_dim, call, expr, local
from loopax.numba_backend.emit.scopes import Scope, Scopes
from loopax.numba_backend.emit.statements import (
    Assign,
    Block,
    Do,
    For,
    Function,
    If,
    Raise,
    Statement,
)
from loopax.numba_backend.runtime.checks import FUNCTIONS


class Writer:
    """Writer of one function. Loop invariants are written in front of the loop.

    Parameters
    ----------
    source
        The function, without statements yet.
    """

    def __init__(self, source: Function) -> None:
        self.source = source
        self.namespace: dict[str, Any] = {"np": np, **FUNCTIONS}
        self.keys: dict[str, str] = {}  # keys of globals for the cache on disk
        self.scopes = Scopes(source.body)

    # -- statements ------------------------------------------------------------------------------

    def add(self, statement: Statement) -> None:
        self.scopes.innermost.block.add(statement)

    def place(self) -> Block:
        """Open a place here for later statements."""
        block = Block()
        self.add(block)
        return block

    def set(self, target: Expr, value: Any, operator: str = "=") -> None:
        """Write ``target = value``, for a local or an element of an array."""
        self.add(Assign((target,), value, operator))

    def do(self, function: str, *operands: Operand) -> None:
        """Write a call for its effect."""
        self.add(Do(call(function, *operands)))

    def fail(self, error: str, message: str) -> None:
        self.add(Raise(error, message))

    def assign(self, targets: Sequence[Expr], values: Sequence[Expr]) -> None:
        """Assign all ``values`` simultaneously."""
        pairs = [(n, v) for n, v in zip(targets, values, strict=True) if n != v]
        changed = {n for n, _ in pairs}
        for name, value in [(n, self.temp(v) if v in changed else v) for n, v in pairs]:
            self.set(name, value)

    # -- blocks ----------------------------------------------------------------------------------

    @contextmanager
    def inside(self, scope: Scope) -> Iterator[None]:
        """Append statements to ``scope`` while the context is open."""
        self.scopes.open.append(scope)
        yield
        self.scopes.open.pop()

    def branches(self, condition: Expr, is_uniform: bool = False) -> tuple[Scope, Scope]:
        """Write an ``if``; returns the scopes of both branches.

        ``is_uniform``: the condition is equal for all elements of the innermost loop.
        """
        return self.branches_of(If(condition), is_uniform)

    def branches_of(self, statement: If, is_uniform: bool = False) -> tuple[Scope, Scope]:
        """Write ``statement``; returns the scopes of both branches."""
        self.add(statement)
        body, orelse = (
            Scope(block, chosen=True, is_uniform=is_uniform)
            for block in (statement.body, statement.orelse)
        )
        return body, orelse

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """Write statements that run where ``condition`` holds."""
        with self.inside(self.branches(condition)[0]):
            yield

    @contextmanager
    def repeated(
        self, count: Expr, n: Dim, is_steps: bool = False, **scope_fields: Any
    ) -> Iterator[None]:
        """Write statements that run ``n`` times; ``scope_fields`` are further fields of the `Scope`."""
        loop = For(count, n, is_steps=is_steps)
        self.add(loop)
        with self.inside(Scope(loop.body, **scope_fields)):
            yield

    @contextmanager
    def frame(self, count: Expr, bound: Dim) -> Iterator[None]:
        """Open a loop of ``bound`` steps with the index ``count``."""
        before, steps = self.place(), If(expr("{} > 0", bound))
        self.add(steps)
        self.scopes.frames.append(len(self.scopes.open))
        with self.repeated(count, bound, is_steps=True, before=before, checks=steps.body):
            yield
        self.scopes.frames.pop()

    # -- names -----------------------------------------------------------------------------------

    def local(self, hint: str) -> Expr:
        """Define a new local."""
        name = local(self.source.fresh(hint))
        self.scopes.define([name])
        return name

    def temp(self, value: Operand, hint: str = "t") -> Expr:
        """Assign ``value`` to a new local."""
        name = self.local(hint)
        self.set(name, value)
        return name

    def number(self, value: Dim, hint: str = "k", may_raise: bool = False) -> Any:
        """A local for index arithmetic, assigned once in a block, or in front of a loop.

        An expression that ``may_raise`` is not hoisted, since a loop may take no step. Integers and
        locals are returned unchanged.
        """
        scopes = self.scopes
        if isinstance(value, int) or value.is_name:
            return value
        if existing := scopes.local_of(value):
            return existing
        level = scopes.depth if may_raise else scopes.level(value)
        if level >= scopes.depth:
            scopes.innermost.local_of[value] = name = self.temp(value, hint)
            return name
        (around, loop), name = scopes.frame(level), local(self.source.fresh(hint))
        loop.before.add(Assign((name,), value))
        scopes.define([name], level)
        around.local_of[value] = name
        return name

    def bind(self, thing: object, hint: str, key: str | None = None) -> str:
        """Bind an object to a global of the function; objects of equal ``key`` are equal."""
        name = self.source.fresh(hint)
        self.namespace[name] = thing
        if key is not None:
            self.keys[name] = key
        return name

    # -- checks ----------------------------------------------------------------------------------

    def check(self, function: str, *operands: Operand) -> None:
        """Write a call that raises or does nothing, once.

        An invariant check is hoisted in front of the innermost loop, under the condition of a step.
        """
        scopes, check = self.scopes, call(function, *operands)
        if scopes.is_checked(check):
            return
        loop = scopes.surely_reached_by(check)
        block = scopes.innermost.block if loop is None else loop.checks
        block.add(Do(check))
        (loop or scopes.innermost).checked.add(check)

    def agree(self, *dims: Dim) -> Dim:
        """The common length of ``dims``, with checks where equality is unknown."""
        first, *lengths = sorted({self.scopes.canonical(n) for n in dims}, key=self.scopes.order)
        for n in lengths:
            if isinstance(n, int):
                self.fail("ValueError", "Input dimension mismatch: two lengths differ")
            else:
                self.equate("agree", n, first)
        return first

    def equate(self, function: str, n: Dim, m: Dim) -> None:
        """Check by ``function`` that two lengths, one of them dynamic, are equal, and record it."""
        if not isinstance(n, Expr):
            n, m = m, n
        assert isinstance(n, Expr)
        self.check(function, n, m)
        self.scopes.unify(n, m, self.scopes.surely_reached_by(call(function, n, m)))

    def are_equal(self, *numbers: Expr) -> None:
        """Record that two dimensions are equal in this block, after a check."""
        dims = [self.scopes.canonical(as_dim(x)) for x in numbers]
        if len({*dims}) == 2 and not {*dims} & self.scopes.changing:
            first, n = sorted(dims, key=self.scopes.order)
            if isinstance(n, Expr):
                self.scopes.unify(n, first)

    def size(self, n: Dim) -> Dim:
        """Convert ``n`` to a length, checked not to be negative."""
        if isinstance(n, int):
            if n < 0:
                self.fail("ValueError", "negative dimensions are not allowed")
            return max(n, 0)
        if n in self.scopes.changing:
            n = self.number(n.astype("int64"), "n")
        if n not in self.scopes.lengths:
            self.check("size", n)
        return n

    def position(self, k: Expr, n: Dim) -> Expr:
        """Convert ``k`` to an index into an axis of length ``n``, checked unless known to fit."""
        bound = self.scopes.bounded.get(k)
        if bound is not None and self.scopes.same(bound, n):
            return k
        return self.number(call("index", k, n), may_raise=True)
