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

from loopax.extensions.egraph.language import analysis
from loopax.extensions.egraph.op_table import SCALARS
from loopax.extensions.egraph.rules.notation import equations

_BEFORE = """
    access behind a function: f(x[k]) -> f(x)[k] if NO_MORE_BEFORE
    access behind an operator: f(x[k], y[k]) -> f(x, y)[k] if FEWER_BEFORE, SAME
    access behind a constant on the right: f(x[k], lit(v)) -> f(x, lit(v))[k] if FEWER_BEFORE
    access behind a constant on the left: f(lit(v), x[k]) -> f(lit(v), x)[k] if FEWER_BEFORE
    access behind one entry on the right: f(x[k], y) -> f(x, y)[k] if FEWER_BEFORE, ONE
    access behind one entry on the left: f(y, x[k]) -> f(y, x)[k] if FEWER_BEFORE, ONE
"""

_BEHIND = """
    access before a function: f(x)[k] -> f(x[k]) if FEWER_BEHIND
    access before an operator: f(x, y)[k] -> f(x[k], y[k]) if FEWER_BEHIND, SAME
    access before a constant on the right: f(x, lit(v))[k] -> f(x[k], lit(v)) if FEWER_BEHIND
    access before a constant on the left: f(lit(v), x)[k] -> f(lit(v), x[k]) if FEWER_BEHIND
    access before one entry on the right: f(x, y)[k] -> f(x[k], y) if FEWER_BEHIND, ONE
    access before one entry on the left: f(y, x)[k] -> f(y, x[k]) if FEWER_BEHIND, ONE
    access before a switch: Switch(x, y, z)[k] -> Switch(x[k], y[k], z[k])
        if FEWER_BEHIND, SAME, s == shape(z)
    access before a switch to a constant: Switch(x, y, lit(v))[k] -> Switch(x[k], y[k], lit(v))
        if FEWER_BEHIND, SAME
    access before a switch from a constant: Switch(x, lit(v), y)[k] -> Switch(x[k], lit(v), y[k])
        if FEWER_BEHIND, SAME
    access before a check: N2(f, x, c)[k] -> N2(f, x[k], c) if FEWER_BEHIND, Checks(f)
"""

_CHECKS = """
    check behind a sum: sum(N2(f, x, c)) -> N2(f, sum(x), c) if Checks(f)
    check behind a fill: Second(N2(f, x, c), y) -> N2(f, Second(x, y), c) if Checks(f)
"""

_SWITCH = """
    one function for both branches: Switch(c, f(x), f(y)) -> f(Switch(c, x, y)) if SAME
    always true: Switch(c, x, y) -> x if AllTrue(c), s == shape(e) == shape(x), Safe(y)
    never true: Switch(c, x, y) -> y if AllFalse(c), s == shape(e) == shape(y), Safe(x)
    two equal branches: Switch(c, x, x) -> x if shape(e) == shape(x)
    condition asked before, true: Switch(c, Switch(c, x, y), z) -> Switch(c, x, z)
        if Safe(y), shape(e) == shape(c)
    condition asked before, false: Switch(c, x, Switch(c, y, z)) -> Switch(c, x, z)
        if Safe(y), shape(e) == shape(c)
"""

# For a constant c, Parts(c, i, j): the i-th and j-th access of the table read where it is true, and where
# not.
_PARTS = """
    sum in two parts: sum(x) -> sum(x[i]) + sum(x[j])
        if Cut(x, c), Parts(c, i, j), s == shape(x) == shape(c)
    sum of one constant, false: sum(Switch(c, x, lit(v))) -> lit(v * to_f64(n))
        if AllFalse(c), Safe(x), shape(x) == shape(c), n == count(shape(c))
    sum of one constant, true: sum(Switch(c, lit(v), x)) -> lit(v * to_f64(n))
        if AllTrue(c), Safe(x), shape(x) == shape(c), n == count(shape(c))
    switch as two set_subtensor: Switch(c, x, y) -> N2(q, N2(p, z, x[i]), y[j])
        if Base(e, z), Parts(c, i, j), Put(i, p), Put(j, q), SAME
    switch as a set_subtensor, true: Switch(c, x, lit(v)) -> N2(p, lit(v) + z, x[i])
        if Base(e, z), Parts(c, i, j), Put(i, p), shape(x) == shape(c)
    switch as a set_subtensor, false: Switch(c, lit(v), x) -> N2(q, lit(v) + z, x[j])
        if Base(e, z), Parts(c, i, j), Put(j, q), shape(x) == shape(c)
    function behind a set_subtensor of constants: f(N2(p, x, y)) -> N2(p, f(x), f(y))
        if Put(k, p), Known(x), Keeps(f)
    function before a set_subtensor of constants: f(N2(p, x, y)) -> N2(p, f(x), f(y))
        if Put(k, p), Known(y), Keeps(f)
"""

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

# e and x are what is behind and before an access: m and n entries.
_SIZES = "n == count(shape(x)), m == count(shape(e))"
LIFTING = equations(
    _BEFORE + _BEHIND + _CHECKS + _SWITCH + _PARTS,
    FEWER_BEFORE=f"{_SIZES}, n < m",
    NO_MORE_BEFORE=f"{_SIZES}, n <= m",
    FEWER_BEHIND=f"{_SIZES}, m < n",
    SAME="s == shape(x) == shape(y)",
    ONE="t == shape(y), Ones(t), Rows(k), Sh1(l) == shape(x), l != 1",
)
