"""Rules that replace sums over many rows of constants by sums over few (`../sufficient_statistics`).

For the p-th set of rows, ``(Few p x)`` is the coefficient ``x``, uniform in each group, on fewer rows;
``(Lin p x)`` is ``x``, of degree 1, in coordinates; ``(Quad p x)`` has the same sums over groups as
``x``, of degree 2 or less. No program contains these terms: they are pushed inwards to constants, which
are computed in advance, and to indices.

The constants are treated as independent: a term equals any of its polynomials, and all have the sums of
``x``.
"""

from __future__ import annotations

from loopax.extensions.egraph.language import analysis
from loopax.extensions.egraph.rules.notation import equations

# Coef, Span, Form: degrees of at most 0, 1, 2. One: a number, or an array of one entry.
RELATIONS = """
(relation Coef (i64 T))
(relation Span (i64 T))
(relation Form (i64 T))
(relation One (T))
(relation Columns (i64 T))
(relation Across (i64 T T))
(relation Ones1 (i64 Shape T))
(relation FewerRows (i64 i64 i64))
(relation FewerWritten (i64 String String))
(relation Layout (i64))
(function short (i64 Shape) Shape :merge old)
"""

_ADD, _SUB, _MUL, _DIV = (f'(E2 "{name}" x y)' for name in ("Add", "Sub", "Mul", "TrueDiv"))
_NEG, _SQR = '(E1 "Neg" x)', '(E1 "Sqr" x)'
_SAME = "(= s (shape x)) (= s (shape y))"


def _degree(relation: str, term: str, *facts: str) -> tuple[str, str]:
    return f"(= e {term}) {' '.join(facts)}", f"({relation} p e)"


_NUMBERS = (
    ("(= e (Lit v))", "(One e)"),
    ("(= t (shape e)) (Ones t)", "(One e)"),
    ("(FewerRows p k l) (= e (S k x))", "(Coef p e)"),
    ('(Columns p x) (= e (N2 "dot" x y)) (= (shape e) (Sh2 n 1))', "(Span p e)"),
    ('(Columns p x) (= e (N2 "dot" x y)) (= (shape e) (Sh1 n))', "(Span p e)"),
    ("(Coef p e)", "(Span p e)"),
    ("(Span p e)", "(Form p e)"),
)
_COEF = (
    _degree("Coef", "(E1 f x)", "(Coef p x)"),
    _degree("Coef", "(E2 f x y)", "(Coef p x)", "(Coef p y)", _SAME),
    _degree("Coef", "(E2 f x y)", "(Coef p x)", "(One y)"),
    _degree("Coef", "(E2 f x y)", "(One x)", "(Coef p y)"),
    _degree("Coef", "(S k x)", "(Layout k)", "(Coef p x)"),
)
_SPAN_FORM = tuple(
    rule
    for kind in ("Span", "Form")
    for rule in (
        *(_degree(kind, t, f"({kind} p x)", f"({kind} p y)", _SAME) for t in (_ADD, _SUB)),
        *(_degree(kind, t, f"({kind} p x)", "(One y)") for t in (_ADD, _SUB, _MUL, _DIV)),
        *(_degree(kind, t, "(One x)", f"({kind} p y)") for t in (_ADD, _SUB, _MUL)),
        _degree(kind, _MUL, f"({kind} p x)", "(Coef p y)", _SAME),
        _degree(kind, _MUL, "(Coef p x)", f"({kind} p y)", _SAME),
        _degree(kind, _DIV, f"({kind} p x)", "(Coef p y)", _SAME),
        _degree(kind, _NEG, f"({kind} p x)"),
        _degree(kind, "(S k x)", "(Layout k)", f"({kind} p x)"),
    )
)
_FORM = (
    _degree("Form", _MUL, "(Span p x)", "(Span p y)", _SAME),
    _degree("Form", _SQR, "(Span p x)"),
    _degree("Form", '(E2 "Second" x y)', "(Form p x)", "(One y)"),
    _degree("Form", "(N2 f x y)", "(Form p x)", "(Checks f)"),
)


def _push(before: str, after: str, *facts: str) -> tuple[str, str]:
    return f"(= e {before}) {' '.join(facts)}", f"(union e {after})"


_ONES = "(Ones1 p (shape {}) o)"
_SHAPES = tuple(
    (f"(= e ({kind} p x)) (= s (short p (shape x)))", "(set (shape e) s)")
    for kind in ("Few", "Lin", "Quad")
)
_FEW = (
    _push("(Few p (S k x))", "(S l x)", "(FewerRows p k l)"),
    _push("(Few p (S k x))", "(S k (Few p x))", "(Layout k)", "(Coef p x)"),
    _push("(Few p (E1 f x))", "(E1 f (Few p x))", "(Coef p x)"),
    _push("(Few p (E2 f x y))", "(E2 f (Few p x) (Few p y))", "(Coef p x)", "(Coef p y)", _SAME),
    _push("(Few p (E2 f x y))", "(E2 f (Few p x) y)", "(Coef p x)", "(One y)"),
    _push("(Few p (E2 f x y))", "(E2 f x (Few p y))", "(One x)", "(Coef p y)"),
)


def _pushes(head: str, relation: str, ones: str) -> tuple[tuple[str, str], ...]:
    """The rules of ``Lin`` or ``Quad``; ``ones`` replaces a vector of ones."""

    def form_of(term: str) -> str:
        return f"({head} p {term})"

    x, y, is_x, is_y = form_of("x"), form_of("y"), f"({relation} p x)", f"({relation} p y)"
    few_x, few_y = "(Few p x)", "(Few p y)"
    ones_x, ones_y = _ONES.format("x"), _ONES.format("y")

    def binary(name: str, a: str, b: str) -> str:
        return f'(E2 "{name}" {a} {b})'

    times_x, times_y = binary("Mul", "x", ones), binary("Mul", "y", ones)
    return (
        *(
            _push(form_of(binary(name, "x", "y")), binary(name, x, y), is_x, is_y, _SAME)
            for name in ("Add", "Sub")
        ),
        *(
            _push(
                form_of(binary(name, "x", "y")), binary(name, x, times_y), is_x, "(One y)", ones_x
            )
            for name in ("Add", "Sub")
        ),
        *(
            _push(
                form_of(binary(name, "x", "y")), binary(name, times_x, y), "(One x)", is_y, ones_y
            )
            for name in ("Add", "Sub")
        ),
        _push(form_of(_MUL), binary("Mul", x, "y"), is_x, "(One y)"),
        _push(form_of(_MUL), binary("Mul", "x", y), "(One x)", is_y),
        _push(form_of(_MUL), binary("Mul", x, few_y), is_x, "(Coef p y)", _SAME),
        _push(form_of(_MUL), binary("Mul", few_x, y), "(Coef p x)", is_y, _SAME),
        _push(form_of(_DIV), binary("TrueDiv", x, "y"), is_x, "(One y)"),
        _push(form_of(_DIV), binary("TrueDiv", x, few_y), is_x, "(Coef p y)", _SAME),
        _push(form_of(_NEG), f'(E1 "Neg" {x})', is_x),
        _push(form_of("(S k x)"), f"(S k {x})", "(Layout k)", is_x),
        _push(form_of("x"), binary("Mul", few_x, ones), "(Coef p x)", ones_x),
    )


_LIN = (
    *_pushes("Lin", "Span", "o"),
    _push('(Lin p (N2 "dot" x y))', '(N2 "dot" (Lin p x) y)', "(Columns p x)"),
)
_QUAD = (
    *_pushes("Quad", "Form", '(E1 "Sqr" o)'),
    _push("(Quad p x)", '(E2 "Mul" o (Lin p x))', "(Span p x)", _ONES.format("x")),
    _push(f"(Quad p {_MUL})", '(E2 "Mul" (Lin p x) (Lin p y))', "(Span p x)", "(Span p y)", _SAME),
    _push(f"(Quad p {_SQR})", '(E1 "Sqr" (Lin p x))', "(Span p x)"),
    _push(
        '(Quad p (E2 "Second" x y))',
        '(E2 "Second" (Quad p x) (E2 "Mul" y (E1 "Sqr" o)))',
        "(Form p x)",
        "(One y)",
        _ONES.format("x"),
    ),
    _push("(Quad p (N2 f x y))", "(N2 f (Quad p x) y)", "(Checks f)", "(Form p x)"),
)
PUSHES = RELATIONS + "\n".join(
    analysis(*rule)
    for rule in (*_NUMBERS, *_COEF, *_SPAN_FORM, *_FORM, *_SHAPES, *_FEW, *_LIN, *_QUAD)
)

SUFFICIENT = equations(
    """
    sum of sufficient statistics: sum(x) -> sum(Quad(p, x)) if Form(p, x)
    product with sufficient statistics: c @ x -> d @ Lin(p, x) if Across(p, c, d), Span(p, x)
    sufficient statistics of groups: N2(f, b, x) -> N2(g, b, Quad(p, x))
        if FewerWritten(p, f, g), Form(p, x)
    """
)
