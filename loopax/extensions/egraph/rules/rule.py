"""``Rule``: an equation between two terms, under conditions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Rule:
    """An equation, in the language of `loopax.extensions.egraph.language`."""

    name: str  # the name in the report of `loopax.explain`
    # Two terms of the same variables.
    before: str
    after: str
    when: tuple[str, ...] = ()  # further facts that have to hold; ``e`` is the class of ``before``
    # The grade of the precision of ``after``: a form of a lower grade in the class is never
    # selected, at any cost.
    stable: int = 0
    as_stable: bool = False  # whether ``after`` has the precision of the best form of its class

    @property
    def text(self) -> str:
        """The rule in egglog's syntax: it adds ``after`` and its name to the class of ``before``."""
        facts = " ".join([f"(= e {self.before})", *self.when])
        acts = f'(union e {self.after}) (Used e "{self.name}")'
        return f'(rule ({facts}) ({acts}) :ruleset rules :name "{self.name}")'

    @cached_property
    def head(self) -> tuple[str, ...]:
        """The head of ``after``: ``("E1", '"Exp"')``; empty where it is a variable."""
        words = self.after.replace("(", " ( ").replace(")", " ) ").split()
        if words[0] != "(":
            return ()
        name = words[2] if words[2].startswith('"') else ""
        return words[1], name

    def gives(self, node: Any) -> bool:
        """Whether ``(head, name, operands)`` matches the head of ``after``; a variable matches all."""
        if not self.head:
            return True
        return self.head[0] == node[0] and self.head[1] in ("", f'"{node[1]}"')
