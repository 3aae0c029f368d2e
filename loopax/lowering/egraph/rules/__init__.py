"""The rules, as tables of equations."""

from __future__ import annotations

from loopax.lowering.egraph.rules.algebra import ALGEBRA, COMMUTE
from loopax.lowering.egraph.rules.exponentials import EXPONENTIALS
from loopax.lowering.egraph.rules.lifting import CUTS, LIFTING
from loopax.lowering.egraph.rules.linalg import LINALG
from loopax.lowering.egraph.rules.rule import Rule
from loopax.lowering.egraph.rules.sufficient import PUSHES, SUFFICIENT

RULES: tuple[Rule, ...] = (*ALGEBRA, *EXPONENTIALS, *LIFTING, *LINALG, *SUFFICIENT)
RULES_BY_NAME = {rule.name: rule for rule in RULES}

__all__ = ["COMMUTE", "CUTS", "PUSHES", "RULES", "RULES_BY_NAME", "Rule"]
