"""Which rules were used: those that gave a class the term that was taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from loopax.extensions.egraph.extract import Choice
from loopax.extensions.egraph.rules import RULES_BY_NAME
from loopax.extensions.egraph.saturate import Saturated


def used_rules(found: Saturated, choice: Choice, changed: Iterable[int]) -> list[str]:
    """``"log1mexp (2)"``: the rules that gave the classes ``changed`` what was taken, the commonest first.

    An e-graph keeps what is equal and not why: of several rules that gave a class terms of one op, each
    is named.
    """
    counts = Counter(
        name
        for c in changed
        for name in found.used.get(c, ())
        if RULES_BY_NAME[name].gives(choice[c])
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [name if n == 1 else f"{name} ({n})" for name, n in ordered]
