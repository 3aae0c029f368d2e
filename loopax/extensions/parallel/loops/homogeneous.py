"""The degree of each value: how it changes when all states are shifted or scaled by a number.

    ("add", d)   f(s + c) = f(s) + d c        for logarithmic states
    ("mul", d)   f(c s) = c^d f(s)            for plain states, and for exp of logarithmic ones

A value of degree 0 does not change at all, like a value that depends on no state. A forward pass that
normalises its carry is of degree 0; the maximum that a logsumexp subtracts and adds is of degree 1.
Comparisons with an infinity assume finite states.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isinf
from typing import Any

from loopax.extensions.parallel.loops.places import MOVES

Degree = tuple[str, Fraction] | None  # None: it has no degree
SAME = ("add", Fraction(0))

# These take operands of one degree, and return it.
LIKE_ITS_OPERANDS = frozenset(
    (*MOVES, "slice", "rev", "pad", "concatenate", "max", "min", "reduce_max", "reduce_min")
)
_COMPARED = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_SUMS = frozenset(("reduce_sum", "cumsum", "dot_general"))


def degree(eqn: Any, operands: Sequence[Degree], constants: Sequence[float | None]) -> Degree:
    """The degree of an operation's result, from the degrees of its operands and their constant values."""
    name = eqn.primitive.name
    if all(d == SAME for d in operands):
        return SAME
    if name == "is_finite" or (
        name in _COMPARED and any(c is not None and isinf(c) for c in constants)
    ):
        return SAME
    if None in operands:
        return None
    first, *others = operands
    kinds = {d[0] for d in operands if d is not None and d != SAME}
    kind = kinds.pop()
    if kinds:
        return None
    of = [d[1] for d in operands if d is not None]
    if name in LIKE_ITS_OPERANDS:
        return first if all(d == first for d in others) else None
    if name in _COMPARED:
        alike = of[0] == of[1] or (kind == "mul" and 0 in constants)
        return SAME if alike else None
    if name == "select_n":
        return others[0] if first == SAME and len(set(others)) == 1 else None
    if name in ("argmax", "argmin"):
        return SAME
    if name in ("add", "sub", "add_any"):
        if kind == "add":
            return _degree("add", of[0] - of[1] if name == "sub" else of[0] + of[1])
        return first if of[0] == of[1] else None
    if kind == "add":
        return {"neg": _degree("add", -of[0]), "exp": ("mul", of[0])}.get(name)
    if name in ("mul", "div"):
        return _degree("mul", of[0] + of[1] if name == "mul" else of[0] - of[1])
    if name in _SUMS:
        return _degree("mul", sum(of, Fraction(0)))
    if name == "integer_pow":
        return _degree("mul", of[0] * eqn.params["y"])
    half: Any = Fraction(1, 2)
    powers = {"neg": 1, "abs": 1, "square": 2, "sqrt": half, "rsqrt": -half}
    if name in powers:
        return _degree("mul", of[0] * powers[name])
    return {"log": _degree("add", of[0]), "sign": SAME}.get(name)


def _degree(kind: str, d: Fraction) -> Degree:
    return (kind, d) if d else SAME
