"""A rule: ``before`` is ``after`` as well, where its conditions hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Rule:
    """An equation, in the language of `loopax.extensions.egraph.language`.

    Parameters
    ----------
    name
        What `loopax.explain` says.
    before, after
        Two terms of the same variables.
    when
        Facts that have to hold besides; ``e`` is the class of ``before``.
    stable
        How much better the digits of ``after`` are than those of any form of the class that has less of it:
        what costs more and loses none is taken all the same.
    as_stable
        ``after`` has the digits of the best form of its class.
    """

    name: str
    before: str
    after: str
    when: tuple[str, ...] = ()
    stable: int = 0
    as_stable: bool = False

    @property
    def text(self) -> str:
        """The rule as egglog reads it: a class that has ``before`` gets ``after``, and its name."""
        facts = " ".join([f"(= e {self.before})", *self.when])
        acts = f'(union e {self.after}) (Used e "{self.name}")'
        return f'(rule ({facts}) ({acts}) :ruleset rules :name "{self.name}")'

    @cached_property
    def head(self) -> tuple[str, ...]:
        """What ``after`` begins with: ``("E1", '"Exp"')``; nothing where it is one of the variables."""
        words = self.after.replace("(", " ( ").replace(")", " ) ").split()
        if words[0] != "(":
            return ()
        name = words[2] if words[2].startswith('"') else ""
        return words[1], name

    def gives(self, node: Any) -> bool:
        """Whether ``(head, name, operands)`` begins as ``after``; any does where that is a variable."""
        if not self.head:
            return True
        return self.head[0] == node[0] and self.head[1] in ("", f'"{node[1]}"')
