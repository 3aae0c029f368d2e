"""The language of programs in egglog: terms, and the analyses for conditions of rules.

Constructors of terms encode the kind of an op and its number of operands:

- ``(Atom k)`` is the k-th opaque variable: an input, a constant.
- ``(Lit v)`` is a float number: a constant of one entry, whatever dtype and rank its neighbours have.
- ``(E1 f x)``, ``(E2 f x y)``, ``(E3 f x y z)`` are elementwise. ``f`` is the name of the class of the
  scalar op, ``"Exp"``, where all operands are floats of one dtype (a comparison gives a bool, the
  condition of a ``"Switch"`` may be anything). It is ``"#k"``, the k-th op of the table, where they are
  not.
- ``(S k x)`` reads entries of ``x`` by a fixed rule, the k-th of the table: a slice, a gather, a
  transpose, a reshape. An elementwise function commutes with it.
- ``(N1 f x)``, ``(N2 f x y)``, ``(NN f (Cons x ... (Nil)))`` are all other ops: ``"dot"``, ``"inv"``
  and the like by name, ``"#k"`` for an op without rules. An op of several outputs has a term for each.

So properties that are awkward as terms (the slices of a subtensor, axes, dtypes, a composite, the body
of a loop) are not encoded: the op, frozen, is an entry of a table, and the term has its number.

``Few``, ``Lin`` and ``Quad`` are in no program (`rules/sufficient.py`).

An array of one entry and a number differ in shape, ``(Sh1 1)`` and ``(Sh0)``. A known length is its
number; an unknown one is a negative number, equal for equal `DimExpr`.
"""

from __future__ import annotations

TERMS = """
(datatype*
  (T
    (Atom i64)
    (Lit f64)
    (E1 String T) (E2 String T T) (E3 String T T T)
    (S i64 T)
    (N1 String T) (N2 String T T) (NN String L)
    (Few i64 T) (Lin i64 T) (Quad i64 T))
  (L (Nil) (Cons T L)))
(datatype Shape (Sh0) (Sh1 i64) (Sh2 i64 i64) (ShN i64))
"""

# Analyses of classes of equal terms. `Used` names the rules that added a term to a class.
ANALYSES = """
(function value (i64) T :no-merge)
(function shape (T) Shape :merge old)
(function count (Shape) i64 :merge old)
(function read (i64 Shape) Shape :merge old)
(relation Ones (Shape))
(relation Full (Shape))
(relation Total (i64 Shape))
(relation Known (T))
(relation Nonnegative (T))
(relation Nonpositive (T))
(relation Safe (T))
(relation AllTrue (T))
(relation AllFalse (T))
(relation Rows (i64))
(relation Parts (T i64 i64))
(relation Put (i64 String))
(relation Used (T String))
(ruleset facts)
(ruleset rules)
"""

# Facts of terms, and their consequences.
_SHAPES = (
    ("(= s (Sh1 n)) (>= n 0)", "(set (count s) n)"),
    ("(= s (Sh2 n m)) (>= n 0) (>= m 0)", "(set (count s) (* n m))"),
    ("(= e (E1 f x)) (= s (shape x))", "(set (shape e) s)"),
    ("(= e (E2 f x y)) (= s (shape x)) (= s (shape y))", "(set (shape e) s)"),
    ("(= e (E2 f x y)) (= s (shape x)) (= t (shape y)) (Ones t)", "(set (shape e) s)"),
    ("(= e (E2 f x y)) (= s (shape y)) (= t (shape x)) (Ones t)", "(set (shape e) s)"),
    ("(= e (E2 f x (Lit v))) (= s (shape x))", "(set (shape e) s)"),
    ("(= e (E2 f (Lit v) y)) (= s (shape y))", "(set (shape e) s)"),
    (
        "(= e (E2 f x y)) (= (Sh2 n 1) (shape x)) (= (Sh2 1 m) (shape y))",
        "(set (shape e) (Sh2 n m))",
    ),
    (
        "(= e (E2 f x y)) (= (Sh2 1 m) (shape x)) (= (Sh2 n 1) (shape y))",
        "(set (shape e) (Sh2 n m))",
    ),
    ("(= s (Sh1 n)) (!= n 1)", "(Full s)"),
    ("(= s (Sh2 n m)) (!= n 1) (!= m 1)", "(Full s)"),
    ("(= e (E3 f x y z)) (= s (shape x)) (Full s)", "(set (shape e) s)"),
    ("(= e (E3 f x y z)) (= s (shape y)) (Full s)", "(set (shape e) s)"),
    ("(= e (E3 f x y z)) (= s (shape z)) (Full s)", "(set (shape e) s)"),
    ("(= e (S k x)) (= t (read k (shape x)))", "(set (shape e) t)"),
    ("(= e (S 0 x)) (= (Sh2 n m) (shape x))", "(set (shape e) (Sh2 m n))"),
    ('(= e (N1 "inv" x)) (= s (shape x))', "(set (shape e) s)"),
    ('(= e (N1 "diag" x)) (= (Sh2 n n) (shape x))', "(set (shape e) (Sh1 n))"),
    ('(= e (N1 "sum" x))', "(set (shape e) (Sh0))"),
    ('(= e (N1 "det" x))', "(set (shape e) (Sh0))"),
    ('(= e (N1 "logdet" x))', "(set (shape e) (Sh0))"),
    ('(= e (N1 "signdet" x))', "(set (shape e) (Sh0))"),
    (
        '(= e (N2 "kron" x y)) (= (Sh2 n m) (shape x)) (= (Sh2 p q) (shape y)) '
        "(> n 0) (> m 0) (> p 0) (> q 0)",
        "(set (shape e) (Sh2 (* n p) (* m q)))",
    ),
    (
        '(= e (N2 "dot" x y)) (= (Sh2 n k) (shape x)) (= (Sh2 l m) (shape y))',
        "(set (shape e) (Sh2 n m))",
    ),
    (
        '(= e (N2 "dot" x y)) (= (Sh2 n k) (shape x)) (= (Sh1 l) (shape y))',
        "(set (shape e) (Sh1 n))",
    ),
    (
        '(= e (N2 "dot" x y)) (= (Sh1 k) (shape x)) (= (Sh2 l m) (shape y))',
        "(set (shape e) (Sh1 m))",
    ),
    ('(= e (N2 "dot" x y)) (= (Sh1 k) (shape x)) (= (Sh1 l) (shape y))', "(set (shape e) (Sh0))"),
    ('(= e (N2 "solve1" x y)) (= s (shape y))', "(set (shape e) s)"),
    ('(= e (N2 "solve2" x y)) (= s (shape y))', "(set (shape e) s)"),
)


# Constants, values that are zero or more (or nan), and terms that raise nothing for any values.
_SIGNS = "Exp Sqr Abs Sqrt Sigmoid Softplus".split()
_VALUES = (
    ("(= e (Lit v))", "(Known e) (Safe e)"),
    ("(= e (Lit v)) (>= v 0.0)", "(Nonnegative e)"),
    ("(= e (E1 f x)) (Known x)", "(Known e)"),
    ("(= e (E2 f x y)) (Known x) (Known y)", "(Known e)"),
    ("(= e (E3 f x y z)) (Known x) (Known y) (Known z)", "(Known e)"),
    ("(= e (S k x)) (Known x)", "(Known e)"),
    ("(= e (S k x)) (Nonnegative x)", "(Nonnegative e)"),
    ("(= e (E1 f x)) (Safe x)", "(Safe e)"),
    ("(= e (E2 f x y)) (Safe x) (Safe y) (= (shape x) (shape y))", "(Safe e)"),
    ("(= e (E2 f x y)) (Safe x) (Safe y) (Ones (shape y))", "(Safe e)"),
    ("(= e (E2 f x y)) (Safe x) (Safe y) (Ones (shape x))", "(Safe e)"),
    ("(= e (E2 f x (Lit v))) (Safe x)", "(Safe e)"),
    ("(= e (E2 f (Lit v) x)) (Safe x)", "(Safe e)"),
    (
        '(= e (N2 "dot" x y)) (Safe x) (Safe y) (= (Sh2 n k) (shape x)) (= (Sh2 k m) (shape y))',
        "(Safe e)",
    ),
    ("(= e (S k x)) (Safe x) (Total k (shape x))", "(Safe e)"),
    ('(= e (E1 "Neg" x)) (Nonnegative x)', "(Nonpositive e)"),
    ('(= e (E2 "Add" x y)) (Nonnegative x) (Nonnegative y)', "(Nonnegative e)"),
    ('(= e (E2 "Mul" x y)) (Nonnegative x) (Nonnegative y)', "(Nonnegative e)"),
    ('(= e (E2 "TrueDiv" x y)) (Nonnegative x) (Nonnegative y)', "(Nonnegative e)"),
    *((f'(= e (E1 "{name}" x))', "(Nonnegative e)") for name in _SIGNS),
)


def analysis(facts: str, then: str) -> str:
    """A rule that adds facts of classes, and no term."""
    return f"(rule ({facts}) ({then}) :ruleset facts)"


LANGUAGE = TERMS + ANALYSES + "\n".join(analysis(*rule) for rule in (*_SHAPES, *_VALUES))
