"""One exponential for several functions of a number, and what follows from the range of a function.

``softplus(x)``, ``softplus(-x)``, ``sigmoid(x)`` and ``sigmoid(-x)``, of which the log-density of zeros
and ones has two or more with its gradient, all follow from ``exp(-abs(x))``, none with fewer digits than
alone. One alone is as cheap as it is.
"""

from __future__ import annotations

from loopax.lowering.egraph.rules.rule import Rule

_T = '(E1 "Exp" (E1 "Neg" (E1 "Abs" x)))'

_ONE_EXPONENTIAL = (
    Rule(
        "softplus by exp(-abs)",
        '(E1 "Softplus" x)',
        f'(E2 "Add" (E2 "Maximum" (Lit 0.0) x) (E1 "Log1p" {_T}))',
        as_stable=True,
    ),
    Rule(
        "softplus of what is 0 or less",
        '(E1 "Softplus" x)',
        '(E1 "Log1p" (E1 "Exp" x))',
        ("(Nonpositive x)",),
        as_stable=True,
    ),
    Rule(
        "sigmoid by exp(-abs)",
        '(E1 "Sigmoid" x)',
        f'(E2 "TrueDiv" (E3 "Switch" (E2 "GE" x (Lit 0.0)) (Lit 1.0) {_T}) (E2 "Add" (Lit 1.0) {_T}))',
        as_stable=True,
    ),
)

# A comparison that holds for every number holds for all but nan: one question in place of two.
_RANGES = (
    *(
        Rule(
            f"{name.lower()} is {least} or more",
            f'(E2 "GE" (E1 "{name}" x) (Lit v))',
            '(E2 "EQ" x x)',
            (f"(<= v {least}.0)",),
        )
        for name, least in (("Sigmoid", 0), ("Exp", 0), ("Softplus", 0), ("Sqr", 0), ("Abs", 0))
    ),
    Rule(
        "sigmoid is 1 or less",
        '(E2 "LE" (E1 "Sigmoid" x) (Lit v))',
        '(E2 "EQ" x x)',
        ("(>= v 1.0)",),
    ),
)

# ``x`` for some entries and ``-x`` for the others.
_SIGNS = tuple(
    Rule(
        f"{name.lower()} of either sign, {order}",
        f'(E1 "{name}" (E3 "Switch" c {a} {b}))',
        f'(E1 "{name}" x)',
        ("(= (shape x) (shape c))",),
    )
    for name in ("Abs", "Sqr")
    for order, a, b in (("minus second", "x", '(E1 "Neg" x)'), ("minus first", '(E1 "Neg" x)', "x"))
)

EXPONENTIALS = (*_ONE_EXPONENTIAL, *_SIGNS, *_RANGES)
