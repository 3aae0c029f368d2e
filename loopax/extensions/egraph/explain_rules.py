"""Report of the rules in use: those that added the selected term to its class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from loopax.extensions.egraph.extract import Choice
from loopax.extensions.egraph.rules import RULES_BY_NAME
from loopax.extensions.egraph.saturate import Saturated


def used_rules(egraph: Saturated, choice: Choice, changed: Iterable[int]) -> list[str]:
    """Count the rules that added the selected terms of classes ``changed``: ``"log1mexp (2)"``.

    The most frequent rule comes first. An e-graph stores equalities without their reasons: of several
    rules that added terms of one op to a class, each is named.
    """
    counts = Counter(
        name
        for c in changed
        for name in egraph.used.get(c, ())
        if RULES_BY_NAME[name].gives(choice[c])
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [name if n == 1 else f"{name} ({n})" for name, n in ordered]
