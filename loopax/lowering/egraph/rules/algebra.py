"""Sums, products and the stable forms of logarithms and exponentials, in whatever order they are found.

A rule changes no value by more than rounding where the form before is exact to rounding. Where it is not
(``log(1 - exp(x))`` near 0), the form after is the better one, and the cost says so (`../cost.py`).
"""

from __future__ import annotations

from loopax.lowering.egraph.rules.rule import Rule, both

COMMUTE = "Add", "Mul", "AND", "OR"
_ORDER = tuple(
    Rule(f"{name.lower()} in any order", f'(E2 "{name}" x y)', f'(E2 "{name}" y x)')
    for name in COMMUTE
)

# One form of signs and differences, so that the rules below need to know one.
_SIGNS = (
    *both("negation as a product", '(E1 "Neg" x)', '(E2 "Mul" (Lit -1.0) x)'),
    *both("difference as a sum", '(E2 "Sub" x y)', '(E2 "Add" x (E1 "Neg" y))'),
    Rule("two negations", '(E1 "Neg" (E1 "Neg" x))', "x"),
    Rule("negated difference", '(E1 "Neg" (E2 "Sub" x y))', '(E2 "Sub" y x)'),
    Rule("negated factor", '(E2 "Mul" (E1 "Neg" x) y)', '(E1 "Neg" (E2 "Mul" x y))'),
    Rule("negated numerator", '(E2 "TrueDiv" (E1 "Neg" x) y)', '(E1 "Neg" (E2 "TrueDiv" x y))'),
    Rule("square of a negation", '(E1 "Sqr" (E1 "Neg" x))', '(E1 "Sqr" x)'),
    Rule("abs of a negation", '(E1 "Abs" (E1 "Neg" x))', '(E1 "Abs" x)'),
    Rule("abs of what has no sign", '(E1 "Abs" x)', "x", ("(Nonnegative x)",)),
)

_LITERALS = (
    Rule("factor 1", '(E2 "Mul" (Lit 1.0) x)', "x"),
    Rule("add 0", '(E2 "Add" (Lit 0.0) x)', "x"),
    Rule("sum of constants", '(E2 "Add" (Lit a) (Lit b))', "(Lit (+ a b))"),
    Rule("product of constants", '(E2 "Mul" (Lit a) (Lit b))', "(Lit (* a b))"),
    Rule("negated constant", '(E1 "Neg" (Lit a))', "(Lit (- 0.0 a))"),
    Rule(
        "constant factors meet",
        '(E2 "Mul" (Lit a) (E2 "Mul" (Lit b) x))',
        '(E2 "Mul" (Lit (* a b)) x)',
    ),
    Rule(
        "constant factor outside",
        '(E2 "Mul" (E2 "Mul" (Lit a) x) y)',
        '(E2 "Mul" (Lit a) (E2 "Mul" x y))',
    ),
    Rule(
        "constant terms meet",
        '(E2 "Add" (Lit a) (E2 "Add" (Lit b) x))',
        '(E2 "Add" (Lit (+ a b)) x)',
    ),
)

_SHARED = (
    Rule("square", '(E2 "Mul" x x)', '(E1 "Sqr" x)'),
    Rule("square, twice", '(E2 "Mul" x (E2 "Mul" x y))', '(E2 "Mul" (E1 "Sqr" x) y)'),
    Rule(
        "common factor",
        '(E2 "Add" (E2 "Mul" a x) (E2 "Mul" a y))',
        '(E2 "Mul" a (E2 "Add" x y))',
        ("(= s (shape x))", "(= s (shape y))"),
    ),
    Rule(
        "common divisor",
        '(E2 "Add" (E2 "TrueDiv" x a) (E2 "TrueDiv" y a))',
        '(E2 "TrueDiv" (E2 "Add" x y) a)',
        ("(= s (shape x))", "(= s (shape y))"),
    ),
    # A division by one number: the reciprocal is computed once, for all entries and all quotients.
    Rule(
        "divisor as a factor",
        '(E2 "TrueDiv" x y)',
        '(E2 "Mul" x (E1 "Reciprocal" y))',
        ("(= t (shape y))", "(Ones t)", "(= s (shape x))", "(!= s t)"),
    ),
    Rule(
        "product of factors of one entry",
        '(E2 "Mul" (E2 "Mul" x a) b)',
        '(E2 "Mul" x (E2 "Mul" a b))',
        (
            "(= t (shape a))",
            "(Ones t)",
            "(= t (shape b))",
            "(= s (shape x))",
            "(!= s t)",
        ),
    ),
    Rule("reciprocal of exp", '(E1 "Reciprocal" (E1 "Exp" x))', '(E1 "Exp" (E1 "Neg" x))'),
    Rule("quotient of 1", '(E2 "TrueDiv" (Lit 1.0) x)', '(E1 "Reciprocal" x)'),
)

_STABLE = (
    Rule("log of exp", '(E1 "Log" (E1 "Exp" x))', "x", stable=3),
    Rule("log1p", '(E1 "Log" (E2 "Add" (Lit 1.0) x))', '(E1 "Log1p" x)', stable=1),
    Rule(
        "log1p of a difference",
        '(E1 "Log" (E2 "Sub" (Lit 1.0) x))',
        '(E1 "Log1p" (E1 "Neg" x))',
        stable=1,
    ),
    Rule("expm1", '(E2 "Add" (Lit -1.0) (E1 "Exp" x))', '(E1 "Expm1" x)', stable=1),
    Rule("expm1 of a difference", '(E2 "Sub" (E1 "Exp" x) (Lit 1.0))', '(E1 "Expm1" x)', stable=1),
    Rule("log1mexp", '(E1 "Log1p" (E1 "Neg" (E1 "Exp" x)))', '(E1 "Log1mexp" x)', stable=2),
    Rule(
        "log1mexp of expm1", '(E1 "Log" (E1 "Neg" (E1 "Expm1" x)))', '(E1 "Log1mexp" x)', stable=2
    ),
    Rule(
        "1 - exp as expm1",
        '(E2 "Sub" (Lit 1.0) (E1 "Exp" x))',
        '(E1 "Neg" (E1 "Expm1" x))',
        stable=1,
    ),
    Rule("softplus", '(E1 "Log1p" (E1 "Exp" x))', '(E1 "Softplus" x)', stable=2),
    Rule("softplus of log", '(E1 "Softplus" (E1 "Log" x))', '(E1 "Log1p" x)', ("(Nonnegative x)",)),
    Rule("exp of softplus", '(E1 "Exp" (E1 "Softplus" x))', '(E2 "Add" (Lit 1.0) (E1 "Exp" x))'),
    Rule(
        "log of sigmoid",
        '(E1 "Log" (E1 "Sigmoid" x))',
        '(E1 "Neg" (E1 "Softplus" (E1 "Neg" x)))',
        stable=2,
    ),
    Rule(
        "log1p of sigmoid",
        '(E1 "Log1p" (E1 "Neg" (E1 "Sigmoid" x)))',
        '(E1 "Neg" (E1 "Softplus" x))',
        stable=2,
    ),
    Rule("1 - sigmoid", '(E2 "Sub" (Lit 1.0) (E1 "Sigmoid" x))', '(E1 "Sigmoid" (E1 "Neg" x))'),
    Rule(
        "sigmoid",
        '(E1 "Reciprocal" (E2 "Add" (Lit 1.0) (E1 "Exp" (E1 "Neg" x))))',
        '(E1 "Sigmoid" x)',
    ),
    Rule(
        "product of exponentials",
        '(E2 "Mul" (E1 "Exp" x) (E1 "Exp" y))',
        '(E1 "Exp" (E2 "Add" x y))',
    ),
    Rule("square of exp", '(E1 "Sqr" (E1 "Exp" x))', '(E1 "Exp" (E2 "Mul" (Lit 2.0) x))'),
    Rule("exp of a double", '(E1 "Exp" (E2 "Mul" (Lit 2.0) x))', '(E1 "Sqr" (E1 "Exp" x))'),
    Rule("root of a square", '(E1 "Sqrt" (E1 "Sqr" x))', '(E1 "Abs" x)'),
)

# What has one entry, y, leaves the sum over many, of which there are n.
_ONE_OF_MANY = (
    "(= t (shape y))",
    "(Ones t)",
    "(= s (shape x))",
    "(= s (shape z))",
    "(= n (count s))",
    "(> n 1)",
)
_SUMS = (
    Rule(
        "factor out of a sum", '(N1 "sum" (E2 "Mul" (Lit a) x))', '(E2 "Mul" (Lit a) (N1 "sum" x))'
    ),
    Rule("sign out of a sum", '(N1 "sum" (E1 "Neg" x))', '(E1 "Neg" (N1 "sum" x))'),
    Rule(
        "constant out of a sum",
        '(N1 "sum" (E2 "Add" (Lit a) x))',
        '(E2 "Add" (Lit (* a (to-f64 n))) (N1 "sum" x))',
        ("(= s (shape x))", "(= n (count s))"),
    ),
    Rule(
        "factor of one entry out of a sum",
        '(N1 "sum" z)',
        '(E2 "Mul" (N1 "sum" y) (N1 "sum" x))',
        ('(= z (E2 "Mul" x y))', *_ONE_OF_MANY),
    ),
    Rule(
        "divisor of one entry out of a sum",
        '(N1 "sum" z)',
        '(E2 "TrueDiv" (N1 "sum" x) (N1 "sum" y))',
        ('(= z (E2 "TrueDiv" x y))', *_ONE_OF_MANY),
    ),
    Rule(
        "term of one entry out of a sum",
        '(N1 "sum" z)',
        '(E2 "Add" (N1 "sum" x) (E2 "Mul" (Lit (to-f64 n)) (N1 "sum" y)))',
        ('(= z (E2 "Add" x y))', *_ONE_OF_MANY),
    ),
    Rule(
        "term of one entry out of a sum of differences",
        '(N1 "sum" z)',
        '(E2 "Sub" (N1 "sum" x) (E2 "Mul" (Lit (to-f64 n)) (N1 "sum" y)))',
        ('(= z (E2 "Sub" x y))', *_ONE_OF_MANY),
    ),
    Rule(
        "sum of one number",
        '(N1 "sum" (E2 "Second" x (Lit a)))',
        "(Lit (* a (to-f64 n)))",
        ("(Safe x)", "(= n (count (shape x)))"),
    ),
    Rule(
        "a number filled with a number",
        '(E2 "Second" x (Lit a))',
        "(Lit a)",
        ("(Safe x)", "(Ones (shape x))"),
    ),
    Rule("sum of one entry", '(N1 "sum" x)', "x", ("(= (Sh0) (shape x))",)),
)

ALGEBRA = (*_ORDER, *_SIGNS, *_LITERALS, *_SHARED, *_STABLE, *_SUMS)
