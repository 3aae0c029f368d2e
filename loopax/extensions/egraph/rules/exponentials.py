"""Rules that share one exponential among several functions, and rules on the range of a function.

``softplus(x)``, ``softplus(-x)``, ``sigmoid(x)`` and ``sigmoid(-x)``, two or more of which are in the
log-density of zeros and ones with its gradient, all follow from ``exp(-abs(x))``, without loss of
digits. A single one is as cheap in its own form.
"""

from __future__ import annotations

from loopax.extensions.egraph.rules.notation import equations

_ONE_EXPONENTIAL = """
    softplus by exp(-abs): Softplus(x) -> Maximum(0.0, x) + Log1p(Exp(-Abs(x))); as_stable
    softplus of what is 0 or less: Softplus(x) -> Log1p(Exp(x)) if Nonpositive(x); as_stable
    sigmoid by exp(-abs): Sigmoid(x)
        -> Switch(x >= 0.0, 1.0, Exp(-Abs(x))) / (1.0 + Exp(-Abs(x))); as_stable
"""

# ``x`` for some entries and ``-x`` for the others.
_SIGNS = """
    abs of either sign, minus second: Abs(Switch(c, x, -x)) -> Abs(x) if shape(x) == shape(c)
    abs of either sign, minus first: Abs(Switch(c, -x, x)) -> Abs(x) if shape(x) == shape(c)
    sqr of either sign, minus second: Sqr(Switch(c, x, -x)) -> Sqr(x) if shape(x) == shape(c)
    sqr of either sign, minus first: Sqr(Switch(c, -x, x)) -> Sqr(x) if shape(x) == shape(c)
"""

# A comparison that every number satisfies is a test for nan: one comparison in place of two.
_RANGES = """
    sigmoid is 0 or more: Sigmoid(x) >= lit(v) -> x == x if v <= 0.0
    exp is 0 or more: Exp(x) >= lit(v) -> x == x if v <= 0.0
    softplus is 0 or more: Softplus(x) >= lit(v) -> x == x if v <= 0.0
    sqr is 0 or more: Sqr(x) >= lit(v) -> x == x if v <= 0.0
    abs is 0 or more: Abs(x) >= lit(v) -> x == x if v <= 0.0
    sigmoid is 1 or less: Sigmoid(x) <= lit(v) -> x == x if v >= 1.0
"""

EXPONENTIALS = equations(_ONE_EXPONENTIAL + _SIGNS + _RANGES)
