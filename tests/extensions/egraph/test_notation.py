"""Rules as one reads them, and as egglog does."""

from loopax.extensions.egraph.rules.notation import equations
from loopax.extensions.egraph.rules.rule import Rule


def test_terms_and_conditions():
    (rule,) = equations(
        "common: x / a + -y @ z -> Exp(2.0 * x) if s == shape(x) == shape(y), Ones(t)"
    )
    assert rule == Rule(
        "common",
        '(E2 "Add" (E2 "TrueDiv" x a) (N2 "dot" (E1 "Neg" y) z))',
        '(E1 "Exp" (E2 "Mul" (Lit 2.0) x))',
        ("(= s (shape x))", "(= s (shape y))", "(Ones t)"),
    )


def test_both_directions():
    assert equations("order: f(x[k].T) <-> sum(N2(g, x, y))") == (
        Rule("order", "(E1 f (S 0 (S k x)))", '(N1 "sum" (N2 g x y))'),
        Rule("order, back", '(N1 "sum" (N2 g x y))', "(E1 f (S 0 (S k x)))"),
    )


def test_numbers_are_computed_of_numbers():
    (rule,) = equations("n times: sum(lit(a)) -> lit(a * to_f64(n)) if v != 0.0, n == count(s)")
    assert rule.after == "(Lit (* a (to-f64 n)))"
    assert rule.when == ("(!= v 0.0)", "(= n (count s))")


def test_a_table_names_its_conditions_and_says_what_digits_there_are():
    one, other = equations(
        """
        # of x >= 0
        one, of two lines: Abs(x) -> x
            if KNOWN, s == shape(x); stable 2
        other: Abs(x) -> x >= -1.0; as_stable
        """,
        KNOWN="Known(x), Nonnegative(x)",
    )
    assert one.when == ("(Known x)", "(Nonnegative x)", "(= s (shape x))")
    assert (one.stable, one.as_stable) == (2, False)
    assert (other.stable, other.as_stable) == (0, True)
    assert other.after == '(E2 "GE" x (Lit -1.0))'
