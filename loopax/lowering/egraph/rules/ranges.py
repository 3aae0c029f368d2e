"""What follows from the range of a function, and from its symmetry."""

from __future__ import annotations

from loopax.lowering.egraph.rules.rule import Rule

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

RANGES = (*_SIGNS, *_RANGES)
