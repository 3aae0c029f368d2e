"""The rules, as tables of equations."""

from __future__ import annotations

from loopax.extensions.egraph.rules.algebra import ALGEBRA, COMMUTE
from loopax.extensions.egraph.rules.exponentials import EXPONENTIALS
from loopax.extensions.egraph.rules.kronecker import KRONECKER
from loopax.extensions.egraph.rules.kronecker import RELATIONS as OF_KRONECKER
from loopax.extensions.egraph.rules.lifting import CUTS, LIFTING
from loopax.extensions.egraph.rules.linalg import LINALG
from loopax.extensions.egraph.rules.rule import Rule
from loopax.extensions.egraph.rules.sufficient import PUSHES, SUFFICIENT

RULES: tuple[Rule, ...] = (*ALGEBRA, *EXPONENTIALS, *LIFTING, *LINALG, *KRONECKER, *SUFFICIENT)
# Facts for the conditions of rules, besides the analyses of the language.
FACTS = "\n".join([CUTS, PUSHES, OF_KRONECKER])
RULES_BY_NAME = {rule.name: rule for rule in RULES}

__all__ = ["COMMUTE", "FACTS", "RULES", "RULES_BY_NAME", "Rule"]
