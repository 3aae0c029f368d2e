"""Rules that move indexing and ``switch`` across elementwise functions, to compute fewer entries.

``exp(a[i])`` with a short ``a`` and a long ``i`` becomes ``exp(a)[i]``; with a long ``a`` it is the
reverse. ``switch(c, f(x), g(x))`` with a constant ``c`` computes both branches for all entries: a sum
over it needs each branch only for its own entries, and so do two `set_subtensor`. The cost selects the
form: an added gather prevents the fusion of a loop with its neighbours (`../cost.py`).

The numbers of entries have to be known. A rule that moves an access across several operands requires
one shape, or one entry, so that it introduces no broadcasting.
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

# Parts(c, i, j), for a constant c: the i-th access of the table reads where it is true, the j-th
# elsewhere.
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

# (Cut x c): the constant condition c splits sums over x. (Keeps f): the function f keeps the dtype.
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
        *(f'(Keeps "{name}")' for name in SCALARS),  # named ops take floats of one dtype
        *(analysis(*rule) for rule in _CUTS),
    ]
)

# e and x are the terms after and before an access, with m and n entries.
_SIZES = "n == count(shape(x)), m == count(shape(e))"
LIFTING = equations(
    _BEFORE + _BEHIND + _CHECKS + _SWITCH + _PARTS,
    FEWER_BEFORE=f"{_SIZES}, n < m",
    NO_MORE_BEFORE=f"{_SIZES}, n <= m",
    FEWER_BEHIND=f"{_SIZES}, m < n",
    SAME="s == shape(x) == shape(y)",
    ONE="t == shape(y), Ones(t), Rows(k), Sh1(l) == shape(x), l != 1",
)
