"""Indexing and ``switch`` on the other side of what is elementwise: what is computed for which entries.

``exp(a[i])`` of a short ``a`` and a long ``i`` is ``exp(a)[i]``; of a long ``a`` it is the other way round.
``switch(c, f(x), g(x))`` of a constant ``c`` computes both for all entries: of a sum over it, each is
needed for its own entries alone, and so it is where it is written as two `set_subtensor`. Which form is
taken is left to the cost: a gather where there was none keeps a loop from being one with its neighbours
(`../cost.py`).

The numbers of entries have to be known. A rule that moves an access over several operands asks that these
have one shape, or one entry, so that nothing is broadcast before that was not.
"""

from __future__ import annotations

from loopax.lowering.egraph.language import analysis
from loopax.lowering.egraph.op_table import SCALARS
from loopax.lowering.egraph.rules.rule import Rule

# e and x are what is behind and before an access: m and n entries.
_SIZES = ("(= n (count (shape x)))", "(= m (count (shape e)))")
_FEWER_BEFORE = (*_SIZES, "(< n m)")
_NO_MORE_BEFORE = (*_SIZES, "(<= n m)")
_FEWER_BEHIND = (*_SIZES, "(< m n)")
_SAME = ("(= s (shape x))", "(= s (shape y))")
_ONE = ("(= t (shape y))", "(Ones t)", "(Rows k)", "(= (Sh1 l) (shape x))", "(!= l 1)")

_BEFORE = (
    Rule("access behind a function", "(E1 f (S k x))", "(S k (E1 f x))", _NO_MORE_BEFORE),
    Rule(
        "access behind an operator",
        "(E2 f (S k x) (S k y))",
        "(S k (E2 f x y))",
        (*_FEWER_BEFORE, *_SAME),
    ),
    Rule(
        "access behind a constant on the right",
        "(E2 f (S k x) (Lit v))",
        "(S k (E2 f x (Lit v)))",
        _FEWER_BEFORE,
    ),
    Rule(
        "access behind a constant on the left",
        "(E2 f (Lit v) (S k x))",
        "(S k (E2 f (Lit v) x))",
        _FEWER_BEFORE,
    ),
    Rule(
        "access behind one entry on the right",
        "(E2 f (S k x) y)",
        "(S k (E2 f x y))",
        (*_FEWER_BEFORE, *_ONE),
    ),
    Rule(
        "access behind one entry on the left",
        "(E2 f y (S k x))",
        "(S k (E2 f y x))",
        (*_FEWER_BEFORE, *_ONE),
    ),
)

_BEHIND = (
    Rule("access before a function", "(S k (E1 f x))", "(E1 f (S k x))", _FEWER_BEHIND),
    Rule(
        "access before an operator",
        "(S k (E2 f x y))",
        "(E2 f (S k x) (S k y))",
        (*_FEWER_BEHIND, *_SAME),
    ),
    Rule(
        "access before a constant on the right",
        "(S k (E2 f x (Lit v)))",
        "(E2 f (S k x) (Lit v))",
        _FEWER_BEHIND,
    ),
    Rule(
        "access before a constant on the left",
        "(S k (E2 f (Lit v) x))",
        "(E2 f (Lit v) (S k x))",
        _FEWER_BEHIND,
    ),
    Rule(
        "access before one entry on the right",
        "(S k (E2 f x y))",
        "(E2 f (S k x) y)",
        (*_FEWER_BEHIND, *_ONE),
    ),
    Rule(
        "access before one entry on the left",
        "(S k (E2 f y x))",
        "(E2 f y (S k x))",
        (*_FEWER_BEHIND, *_ONE),
    ),
    Rule(
        "access before a switch",
        '(S k (E3 "Switch" x y z))',
        '(E3 "Switch" (S k x) (S k y) (S k z))',
        (*_FEWER_BEHIND, *_SAME, "(= s (shape z))"),
    ),
    Rule(
        "access before a switch to a constant",
        '(S k (E3 "Switch" x y (Lit v)))',
        '(E3 "Switch" (S k x) (S k y) (Lit v))',
        (*_FEWER_BEHIND, *_SAME),
    ),
    Rule(
        "access before a switch from a constant",
        '(S k (E3 "Switch" x (Lit v) y))',
        '(E3 "Switch" (S k x) (Lit v) (S k y))',
        (*_FEWER_BEHIND, *_SAME),
    ),
    Rule(
        "access before a check",
        "(S k (N2 f x c))",
        "(N2 f (S k x) c)",
        (*_FEWER_BEHIND, "(Checks f)"),
    ),
)

_CHECKS = (
    Rule("check behind a sum", '(N1 "sum" (N2 f x c))', '(N2 f (N1 "sum" x) c)', ("(Checks f)",)),
    Rule(
        "check behind a fill",
        '(E2 "Second" (N2 f x c) y)',
        '(N2 f (E2 "Second" x y) c)',
        ("(Checks f)",),
    ),
)

_SWITCH = (
    Rule(
        "one function for both branches",
        '(E3 "Switch" c (E1 f x) (E1 f y))',
        '(E1 f (E3 "Switch" c x y))',
        _SAME,
    ),
    Rule(
        "always true",
        '(E3 "Switch" c x y)',
        "x",
        ("(AllTrue c)", "(= s (shape e))", "(= s (shape x))", "(Safe y)"),
    ),
    Rule(
        "never true",
        '(E3 "Switch" c x y)',
        "y",
        ("(AllFalse c)", "(= s (shape e))", "(= s (shape y))", "(Safe x)"),
    ),
    Rule("two equal branches", '(E3 "Switch" c x x)', "x", ("(= (shape e) (shape x))",)),
    Rule(
        "condition asked before, true",
        '(E3 "Switch" c (E3 "Switch" c x y) z)',
        '(E3 "Switch" c x z)',
        ("(Safe y)", "(= (shape e) (shape c))"),
    ),
    Rule(
        "condition asked before, false",
        '(E3 "Switch" c x (E3 "Switch" c y z))',
        '(E3 "Switch" c x z)',
        ("(Safe y)", "(= (shape e) (shape c))"),
    ),
)

# For a constant c, (Parts c i j): the i-th and j-th access of the table read where it is true, and
# where not.
_PARTS = (
    Rule(
        "sum in two parts",
        '(N1 "sum" x)',
        '(E2 "Add" (N1 "sum" (S i x)) (N1 "sum" (S j x)))',
        ("(Cut x c)", "(Parts c i j)", "(= s (shape x))", "(= s (shape c))"),
    ),
    Rule(
        "sum of one constant, false",
        '(N1 "sum" (E3 "Switch" c x (Lit v)))',
        "(Lit (* v (to-f64 n)))",
        ("(AllFalse c)", "(Safe x)", "(= (shape x) (shape c))", "(= n (count (shape c)))"),
    ),
    Rule(
        "sum of one constant, true",
        '(N1 "sum" (E3 "Switch" c (Lit v) x))',
        "(Lit (* v (to-f64 n)))",
        ("(AllTrue c)", "(Safe x)", "(= (shape x) (shape c))", "(= n (count (shape c)))"),
    ),
    Rule(
        "switch as two set_subtensor",
        '(E3 "Switch" c x y)',
        "(N2 q (N2 p z (S i x)) (S j y))",
        ("(Base e z)", "(Parts c i j)", "(Put i p)", "(Put j q)", *_SAME),
    ),
    Rule(
        "switch as a set_subtensor, true",
        '(E3 "Switch" c x (Lit v))',
        '(N2 p (E2 "Add" (Lit v) z) (S i x))',
        ("(Base e z)", "(Parts c i j)", "(Put i p)", "(= (shape x) (shape c))"),
    ),
    Rule(
        "switch as a set_subtensor, false",
        '(E3 "Switch" c (Lit v) x)',
        '(N2 q (E2 "Add" (Lit v) z) (S j x))',
        ("(Base e z)", "(Parts c i j)", "(Put j q)", "(= (shape x) (shape c))"),
    ),
    Rule(
        "function behind a set_subtensor of constants",
        "(E1 f (N2 p x y))",
        "(N2 p (E1 f x) (E1 f y))",
        ("(Put k p)", "(Known x)", "(Keeps f)"),
    ),
    Rule(
        "function before a set_subtensor of constants",
        "(E1 f (N2 p x y))",
        "(N2 p (E1 f x) (E1 f y))",
        ("(Put k p)", "(Known y)", "(Keeps f)"),
    ),
)

# Which sums a constant condition cuts: (Cut x c). Which functions keep the dtype: (Keeps f).
RELATIONS = """
(relation Cut (T T))
(relation Base (T T))
(relation Checks (String))
(relation Keeps (String))
"""
_CUTS = (
    ('(= e (E3 "Switch" c x y)) (Parts c i j)', "(Cut e c)"),
    ("(= e (E1 f x)) (Cut x c)", "(Cut e c)"),
    ("(= e (E2 f x y)) (Cut x c)", "(Cut e c)"),
    ("(= e (E2 f x y)) (Cut y c)", "(Cut e c)"),
    ("(= e (E3 f x y z)) (Cut y c)", "(Cut e c)"),
    ("(= e (E3 f x y z)) (Cut z c)", "(Cut e c)"),
    ("(= e (N2 f x y)) (Cut x c) (Checks f)", "(Cut e c)"),
)
CUTS = "\n".join(
    [
        RELATIONS,
        *(f'(Keeps "{name}")' for name in SCALARS),  # what has a name is of floats of one dtype
        *(analysis(*rule) for rule in _CUTS),
    ]
)

LIFTING = (*_BEFORE, *_BEHIND, *_CHECKS, *_SWITCH, *_PARTS)
