"""Classification of a step's values: fixed, a linear form in a semiring, or neither."""

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
    """A value that depends on no state.

    ``value`` is the common value of its elements, if known; ``is_nonnegative`` says that none is
    known to be negative.
    """

    is_nonnegative: bool = False
    value: float | None = None

    @classmethod
    def of(cls, x: Any) -> Fixed:
        """Classify a value that is known while JAX traces."""
        numbers = np.asarray(x).ravel()
        equal = numbers.size > 0 and bool((numbers == numbers[0]).all())
        return cls(bool((numbers >= 0).all()), float(numbers[0]) if equal else None)


@dataclass(frozen=True)
class Other:
    """A value that depends on states in some other way.

    ``place`` is the value that it is a move of, with the source of each axis, or None. ``true_where`` marks
    a flag that tells whether an extreme of several numbers is infinite, or finite: a safe logsumexp tests
    that, and the infinite case is the semiring's zero.
    """

    place: Place
    degree: Degree = None
    true_where: str | None = None
    is_extreme: bool = False


@dataclass(frozen=True)
class Form:
    """A linear form, or its logarithm, times ``factors``, which map each factor to its axes and power.

    ``place`` is as in `Other`. A factor is a root value, and a flag whether that is the factor's logarithm.
    ``linear`` is the variable of the form without factors, if there is one, and ``moves`` are the
    operations that have moved it since. With ``is_negative`` the value is minus such a form, so that minima
    become maxima. With ``is_constant`` only its factors depend on states.
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
        """The key of forms that can be added."""
        return self.is_log, self.factors, self.is_negative


Value = Fixed | Other | Form


@dataclass(frozen=True)
class Linear:
    """The dependence of the next states on the states: the variable ``of`` is linear in them."""

    semiring: str  # one of `SEMIRINGS`
    # The variable, and the unary operations that compute the next states from it.
    of: Any
    moves: tuple[Any, ...]
    # Whether the next states equal that up to a factor, and do not depend on the scale of the states.
    projective: bool
    # Constant operands that are added: number of an operation -> position of the operand.
    offsets: Mapping[int, int]
    # Whether a coefficient may be negative, for which a matrix of logarithms has nan.
    is_unsure: bool = False
    # Whether the step branches on whether the largest number is infinite.
    asks_for_infinity: bool = False


def degrees(operands: Sequence[Value]) -> list[Degree]:
    return [SAME if isinstance(x, Fixed) else x.degree for x in operands]


def extent(x: Form) -> int:
    """The number of axes along which the form varies."""
    return sum(a is not None for a in x.place.axes)


def constants(operands: Sequence[Value]) -> list[float | None]:
    return [x.value if isinstance(x, Fixed) else None for x in operands]


def all_alike(operands: Sequence[Value]) -> bool:
    """Whether all operands are forms with equal factors."""
    first = operands[0]
    return isinstance(first, Form) and all(
        isinstance(x, Form) and x.kind == first.kind and x.is_constant == first.is_constant
        for x in operands
    )


def with_axes(x: Form, moved: Sequence[Axes | None]) -> Form | None:
    """Move the factors of ``x`` to these axes; None if one of them is lost."""
    if any(axes is None for axes in moved):
        return None
    factors = {
        root: (axes, power)
        for (root, (_, power)), axes in zip(x.factors.items(), moved, strict=True)
        if axes is not None
    }
    return replace(x, factors=factors)


def true_where(eqn: Any, operands: Sequence[Value]) -> str | None:
    """The numbers for which a flag is true, if it tests whether an extreme is infinite."""
    name = eqn.primitive.name
    if not any(isinstance(x, Other) and x.is_extreme for x in operands):
        return None
    if name == "is_finite":
        return FINITE
    infinities = [c for c in constants(operands) if c is not None and np.isinf(c)]
    return {"eq": INFINITE, "ne": FINITE}.get(name) if infinities else None


def flipped(where: str | None) -> str | None:
    """The meaning of the negated flag."""
    return {INFINITE: FINITE, FINITE: INFINITE}.get(where or "")


_NEVER_NEGATIVE = ("exp", "exp2", "abs", "square", "logistic", "sqrt", "iota", "is_finite")
_SUMS_AND_EXTREMES = ("add", "add_any", "mul", "div", "max", "min", "reduce_max", "reduce_min")
_NONNEGATIVE_OF_SUCH = (
    *("reduce_sum", "cumsum", "dot_general", "convert_element_type", "gather", "dynamic_slice"),
    *("select_n", *_SUMS_AND_EXTREMES, *MOVES, *PARTS),
)


def fixed(eqn: Any, operands: Sequence[Any]) -> Fixed:
    """Classify the result of an operation on values that depend on no state."""
    name = eqn.primitive.name
    same = all(x.is_nonnegative for x in (operands[1:] if name == "select_n" else operands))
    never = name in _NEVER_NEGATIVE or (name in _NONNEGATIVE_OF_SUCH and same)
    values = {x.value for x in operands}
    return Fixed(never, values.pop() if name in LIKE_ITS_OPERANDS and len(values) == 1 else None)
