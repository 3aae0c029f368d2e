"""Knowledge of a value of a step: that it is fixed, a linear form in a semiring, or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from loopax.extensions.parallel.loops.homogeneous import LIKE_ITS_OPERANDS, SAME, Degree
from loopax.extensions.parallel.loops.places import MOVES, Axes, Place

SEMIRINGS = ("logs", "max", "min", "linear")
ZEROS = {"logs": -np.inf, "max": -np.inf, "min": np.inf, "linear": 0.0}
PARTS = ("slice", "rev", "concatenate", "pad")
INFINITE, FINITE = "infinite", "finite"
EXTREMES = ("max", "min", "reduce_max", "reduce_min")


@dataclass(frozen=True)
class Fixed:
    """A value that follows from no state.

    ``value`` is the one number that all its elements are, if that is known, ``is_nonnegative`` whether it
    is known that none is negative.
    """

    is_nonnegative: bool = False
    value: float | None = None

    @classmethod
    def of(cls, x: Any) -> Fixed:
        """A value that is known while JAX traces."""
        numbers = np.asarray(x).ravel()
        equal = numbers.size > 0 and bool((numbers == numbers[0]).all())
        return cls(bool((numbers >= 0).all()), float(numbers[0]) if equal else None)


@dataclass(frozen=True)
class Other:
    """A value that follows from states in another way.

    ``place`` is which value it is, moved, and which of its axes each axis is, or None. ``true_where`` says
    of a flag that it is one of whether an extreme of several numbers is infinite, or finite: that is asked
    where a logsumexp is made safe, of which the infinite case is the semiring's zero.
    """

    place: Place
    degree: Degree = None
    true_where: str | None = None
    is_extreme: bool = False


@dataclass(frozen=True)
class Form:
    """A linear form, or its logarithm, times ``factors``: of each its axes and its power.

    ``place`` is as that of what is no form. A factor is a root, and whether that is its logarithm.
    ``linear`` is the variable that the form is without factors, if there is one, and ``moves`` the
    operations that have put it elsewhere since. With ``is_negative`` it is minus such a form, of which
    minima are maxima. With ``is_constant`` no state is in it but for its factors.
    """

    is_log: bool
    place: Place
    degree: Degree
    factors: Mapping[Any, tuple[tuple[int | None, ...], int]] = field(default_factory=dict)
    linear: Any = None
    moves: tuple[Any, ...] = ()
    is_negative: bool = False
    is_constant: bool = False

    @property
    def kind(self) -> Any:
        """The key of forms that may be added up."""
        return self.is_log, self.factors, self.is_negative


Value = Fixed | Other | Form


@dataclass(frozen=True)
class Linear:
    """How the next states follow from the states: ``of`` is the variable that is linear in them."""

    semiring: str  # one of `SEMIRINGS`
    # The variable, and the operations of one operand that make of it the next states.
    of: Any
    moves: tuple[Any, ...]
    # Whether the next states are that up to a factor, and do not depend on the states' own.
    projective: bool
    # Where operands that follow from no state are added: of an operation, by number, which operand.
    offsets: Mapping[int, int]
    # Whether a coefficient may be negative, of which a matrix in logarithms has nan.
    is_unsure: bool = False
    # Whether the step chooses by whether the largest number is infinite.
    asks_for_infinity: bool = False


def degrees(operands: Sequence[Value]) -> list[Degree]:
    return [SAME if isinstance(x, Fixed) else x.degree for x in operands]


def extent(x: Form) -> int:
    """Along how many axes it varies."""
    return sum(a is not None for a in x.place.axes)


def constants(operands: Sequence[Value]) -> list[float | None]:
    return [x.value if isinstance(x, Fixed) else None for x in operands]


def all_alike(operands: Sequence[Value]) -> bool:
    """Whether all are forms with the same factors."""
    first = operands[0]
    return isinstance(first, Form) and all(
        isinstance(x, Form) and x.kind == first.kind and x.is_constant == first.is_constant
        for x in operands
    )


def with_axes(x: Form, moved: Sequence[Axes | None]) -> Form | None:
    """``x`` with its factors along these axes; None where one of them has none."""
    if any(axes is None for axes in moved):
        return None
    factors = {
        root: (axes, power)
        for (root, (_, power)), axes in zip(x.factors.items(), moved, strict=True)
        if axes is not None
    }
    return replace(x, factors=factors)


def true_where(eqn: Any, operands: Sequence[Value]) -> str | None:
    """The numbers for which a flag is true, if it says whether an extreme is infinite."""
    name = eqn.primitive.name
    if not any(isinstance(x, Other) and x.is_extreme for x in operands):
        return None
    if name == "is_finite":
        return FINITE
    infinities = [c for c in constants(operands) if c is not None and np.isinf(c)]
    return {"eq": INFINITE, "ne": FINITE}.get(name) if infinities else None


def flipped(where: str | None) -> str | None:
    """The meaning of the opposite flag."""
    return {INFINITE: FINITE, FINITE: INFINITE}.get(where or "")


_NEVER_NEGATIVE = ("exp", "exp2", "abs", "square", "logistic", "sqrt", "iota", "is_finite")
_SUMS_AND_EXTREMES = ("add", "add_any", "mul", "div", "max", "min", "reduce_max", "reduce_min")
_NONNEGATIVE_OF_SUCH = (
    *("reduce_sum", "cumsum", "dot_general", "convert_element_type", "gather", "dynamic_slice"),
    *("select_n", *_SUMS_AND_EXTREMES, *MOVES, *PARTS),
)


def fixed(eqn: Any, operands: Sequence[Any]) -> Fixed:
    """The results of an operation on values that follow from no state."""
    name = eqn.primitive.name
    same = all(x.is_nonnegative for x in (operands[1:] if name == "select_n" else operands))
    never = name in _NEVER_NEGATIVE or (name in _NONNEGATIVE_OF_SUCH and same)
    values = {x.value for x in operands}
    return Fixed(never, values.pop() if name in LIKE_ITS_OPERANDS and len(values) == 1 else None)
