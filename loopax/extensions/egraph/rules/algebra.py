"""Rules of sums and products, and of the stable forms of logarithms and exponentials.

If the old form is exact to rounding, a rule changes no value by more than rounding. Otherwise
(``log(1 - exp(x))`` near 0) the new form is the better one, and its cost is lower (`../cost.py`).
"""

from __future__ import annotations

from loopax.extensions.egraph.rules.notation import equations

COMMUTE = "Add", "Mul", "AND", "OR"
_ORDER = "\n".join(f"{op.lower()} in any order: {op}(x, y) -> {op}(y, x)" for op in COMMUTE)

# One form of signs and differences, on which the rules below rely.
_SIGNS = """
    negation as a product: -x <-> -1.0 * x
    difference as a sum: x - y <-> x + -y
    two negations: -(-x) -> x
    negated difference: -(x - y) -> y - x
    negated factor: -x * y -> -(x * y)
    negated numerator: -x / y -> -(x / y)
    square of a negation: Sqr(-x) -> Sqr(x)
    abs of a negation: Abs(-x) -> Abs(x)
    abs of what has no sign: Abs(x) -> x if Nonnegative(x)
"""

_LITERALS = """
    factor 1: 1.0 * x -> x
    add 0: 0.0 + x -> x
    sum of constants: lit(a) + lit(b) -> lit(a + b)
    product of constants: lit(a) * lit(b) -> lit(a * b)
    negated constant: -lit(a) -> lit(0.0 - a)
    constant factors meet: lit(a) * (lit(b) * x) -> lit(a * b) * x
    constant factor outside: (lit(a) * x) * y -> lit(a) * (x * y)
    constant terms meet: lit(a) + (lit(b) + x) -> lit(a + b) + x
"""

_SHARED = """
    square: x * x -> Sqr(x)
    square, twice: x * (x * y) -> Sqr(x) * y
    common factor: a * x + a * y -> a * (x + y) if s == shape(x) == shape(y)
    common divisor: x / a + y / a -> (x + y) / a if s == shape(x) == shape(y)
    # A division by one number: the reciprocal is computed once, for all entries and all quotients.
    divisor as a factor: x / y -> x * Reciprocal(y) if t == shape(y), Ones(t), s == shape(x), s != t
    product of factors of one entry: (x * a) * b -> x * (a * b)
        if t == shape(a), Ones(t), t == shape(b), s == shape(x), s != t
    reciprocal of exp: Reciprocal(Exp(x)) -> Exp(-x)
    quotient of 1: 1.0 / x -> Reciprocal(x)
"""

_STABLE = """
    log of exp: Log(Exp(x)) -> x; stable 3
    log1p: Log(1.0 + x) -> Log1p(x); stable 1
    log1p of a difference: Log(1.0 - x) -> Log1p(-x); stable 1
    expm1: -1.0 + Exp(x) -> Expm1(x); stable 1
    expm1 of a difference: Exp(x) - 1.0 -> Expm1(x); stable 1
    log1mexp: Log1p(-Exp(x)) -> Log1mexp(x); stable 2
    log1mexp of expm1: Log(-Expm1(x)) -> Log1mexp(x); stable 2
    1 - exp as expm1: 1.0 - Exp(x) -> -Expm1(x); stable 1
    softplus: Log1p(Exp(x)) -> Softplus(x); stable 2
    softplus of log: Softplus(Log(x)) -> Log1p(x) if Nonnegative(x)
    exp of softplus: Exp(Softplus(x)) -> 1.0 + Exp(x)
    log of sigmoid: Log(Sigmoid(x)) -> -Softplus(-x); stable 2
    log1p of sigmoid: Log1p(-Sigmoid(x)) -> -Softplus(x); stable 2
    1 - sigmoid: 1.0 - Sigmoid(x) -> Sigmoid(-x)
    sigmoid: Reciprocal(1.0 + Exp(-x)) -> Sigmoid(x)
    product of exponentials: Exp(x) * Exp(y) -> Exp(x + y)
    square of exp: Sqr(Exp(x)) -> Exp(2.0 * x)
    exp of a double: Exp(2.0 * x) -> Sqr(Exp(x))
    root of a square: Sqrt(Sqr(x)) -> Abs(x)
"""

_SUMS = """
    factor out of a sum: sum(lit(a) * x) -> lit(a) * sum(x)
    sign out of a sum: sum(-x) -> -sum(x)
    constant out of a sum: sum(lit(a) + x) -> lit(a * to_f64(n)) + sum(x) if s == shape(x), n == count(s)
    factor of one entry out of a sum: sum(z) -> sum(y) * sum(x) if z == x * y, ONE_OF_MANY
    divisor of one entry out of a sum: sum(z) -> sum(x) / sum(y) if z == x / y, ONE_OF_MANY
    term of one entry out of a sum: sum(z) -> sum(x) + lit(to_f64(n)) * sum(y) if z == x + y, ONE_OF_MANY
    term of one entry out of a sum of differences: sum(z) -> sum(x) - lit(to_f64(n)) * sum(y)
        if z == x - y, ONE_OF_MANY
    sum of one number: sum(Second(x, lit(a))) -> lit(a * to_f64(n)) if Safe(x), n == count(shape(x))
    a number filled with a number: Second(x, lit(a)) -> lit(a) if Safe(x), Ones(shape(x))
    sum of one entry: sum(x) -> x if Sh0() == shape(x)
"""

ALGEBRA = equations(
    _ORDER + _SIGNS + _LITERALS + _SHARED + _STABLE + _SUMS,
    # A factor or term y of one entry leaves a sum over n entries.
    ONE_OF_MANY="t == shape(y), Ones(t), s == shape(x), s == shape(z), n == count(s), n > 1",
)
