"""Well-known origins of numbers that are not finite, by op, and forms to write instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from loopax.diagnosis.numbers import Numbers, number_in_words


class Trap(NamedTuple):
    """The reason for a result that is not finite, and a form to write instead."""

    why: str
    instead: str = ""


_BRANCH = (
    "A gradient passes through both arguments of a switch. Give the argument that is not taken a value at "
    "which it has a derivative: pt.sqrt(pt.switch(x > 0, x, 1.0)) inside of pt.switch(x > 0, ..., 0)."
)
_FLOOR = (
    "Keep the argument away from 0, pt.maximum(x, 1e-12), or write a form that has no pole there."
)
_LOGS = (
    "Work with logarithms all the way, with pt.logsumexp and with sums in place of products, or scale the "
    "numbers at each step."
)


def explain_value(name: str, numbers: Sequence[Any], result: Numbers) -> Trap:
    """Explain why the op ``name`` of ``numbers``, or arrays, gives the non-finite ``result``."""
    rule = _VALUES.get(name)
    try:
        trap = rule(result, *numbers) if rule is not None else None
    except (TypeError, ValueError, IndexError, np.linalg.LinAlgError):  # operands of another kind
        trap = None
    if trap is not None:
        return trap
    if any(np.size(x) and np.any(np.isnan(x)) for x in numbers if _is_number(x)):
        return Trap(f"{name} of an operand that is nan is {number_in_words(result)}.")
    if any(np.size(x) and not np.all(np.isfinite(x)) for x in numbers if _is_number(x)):
        return Trap(f"{name} of an infinite operand is {number_in_words(result)}.")
    return Trap(f"{name} has no finite value for these operands.")


def explain_gradient(name: str, numbers: Sequence[Any], cotangent: object, untaken: bool) -> Trap:
    """Explain why the derivative of the op ``name`` at ``numbers`` is not finite.

    ``cotangent`` belongs to the output; ``untaken``: it is 0 because a switch discards the value.
    """
    x = numbers[0] if numbers else np.nan
    pole = _POLES.get(name)
    why = pole(*numbers) if pole is not None and _are_numbers(numbers) else ""
    why = (
        why or f"the derivative of {name} is not finite at {number_in_words(x)}"
        if _is_scalar(x)
        else why
    )
    why = why or f"the derivative of {name} is not finite here"
    if untaken:
        return Trap(
            f"{why}, and the cotangent of a branch that was not taken is 0: 0 * inf is nan.",
            _BRANCH,
        )
    if _is_scalar(cotangent) and cotangent == 0:
        return Trap(f"{why}, and 0 * inf is nan.", _FLOOR)
    return Trap(f"{why}.", _FLOOR)


def _is_number(x: object) -> bool:
    return isinstance(x, np.ndarray | np.generic | float | int) and np.asarray(x).dtype.kind in "fc"


def _is_scalar(x: object) -> bool:
    return isinstance(x, np.ndarray | np.generic | float | int) and np.ndim(x) == 0


def _are_numbers(numbers: Sequence[Any]) -> bool:
    return all(map(_is_scalar, numbers))


# -- values ------------------------------------------------------------------------------------------


def _log(result: Numbers, x: Numbers) -> Trap | None:
    if x < 0:
        return Trap(
            f"the logarithm of a negative number, {number_in_words(x)}, is nan.",
            "Find out why it is negative: constrain the parameters, or bound the value from below.",
        )
    if x == 0:
        return Trap(
            "the logarithm of 0 is -inf: a probability or a product of small numbers has underflowed, or "
            "is 0.",
            _LOGS,
        )
    return None


def _sqrt(result: Numbers, x: Numbers) -> Trap | None:
    if x < 0:
        return Trap(
            f"the square root of a negative number, {number_in_words(x)}, is nan.",
            "Rounding can make a difference negative: pt.sqrt(pt.maximum(x, 0)).",
        )
    return None


def _divide(result: Numbers, x: Numbers, y: Numbers) -> Trap | None:
    if y == 0 and x == 0:
        return Trap(
            "0 / 0 is nan.", "Define the value at 0: pt.switch(pt.eq(y, 0), ..., x / safe_y)."
        )
    if y == 0:
        return Trap(f"{number_in_words(x)} / 0 is infinite.", _FLOOR)
    return _infinities(result, x, y) or Trap("the quotient overflows.")


def _power(result: Numbers, x: Numbers, y: Numbers) -> Trap | None:
    if x < 0 and y != int(y):
        return Trap(
            f"a negative number, {number_in_words(x)}, has no power {number_in_words(y)}.",
            "Write abs(x) ** y with the sign in front, or use a base that is never negative.",
        )
    if x == 0 and y < 0:
        return Trap("0 to a negative power is infinite.", _FLOOR)
    return _overflow(result, x, y)


def _exp(result: Numbers, x: Numbers) -> Trap | None:
    most = np.log(np.finfo(np.asarray(result).dtype).max)
    return Trap(
        f"exp({number_in_words(x)}) overflows: the largest argument of {np.asarray(result).dtype} is "
        f"{most:.6g}.",
        "Subtract the largest exponent first, as pt.logsumexp does, or stay with the logarithm.",
    )


def _infinities(result: Numbers, *numbers: Numbers) -> Trap | None:
    if not np.isnan(result):
        return None
    if any(np.isinf(x) for x in numbers) and any(x == 0 for x in numbers):
        return Trap(
            "0 * inf is nan.",
            "If one factor is 0, leave the other out: pt.switch(pt.eq(x, 0), 0, x * pt.log(safe_x)).",
        )
    return None


def _sum(result: Numbers, *numbers: Numbers) -> Trap | None:
    flat = np.concatenate([np.ravel(x) for x in numbers])
    if np.isnan(result) and np.isinf(flat).any():
        return Trap("inf - inf is nan.")
    return _overflow(result, *numbers)


def _overflow(result: Numbers, *numbers: Numbers) -> Trap | None:
    if not np.isinf(result) or not all(np.all(np.isfinite(x)) for x in numbers):
        return None
    dtype = np.asarray(result).dtype
    return Trap(
        f"the result overflows: it is above {np.finfo(dtype).max:.3g}, the largest {dtype}.",
        "An unstable recurrence or a step size that is too large lets values grow without bound.",
    )


def _outside(low: float, high: float) -> Callable[..., Trap | None]:
    def rule(result: Numbers, x: Numbers) -> Trap | None:
        if low <= x <= high:
            return None
        return Trap(
            f"{number_in_words(x)} is outside of [{low:g}, {high:g}], where the function is defined.",
            f"If only rounding takes it there, use pt.clip(x, {low:g}, {high:g}).",
        )

    return rule


def _chosen(result: Numbers, condition: Numbers, *_: object) -> Trap | None:
    if not np.isinf(result) or np.ndim(condition):
        return None
    return Trap(
        f"the condition is {bool(condition)}, for which the program has {number_in_words(result)}: the "
        "value is out of its domain.",
        "Pass a value inside it, or choose another prior or support.",
    )


def _gammaln(result: Numbers, x: Numbers) -> Trap | None:
    if x <= 0 and x == int(x):
        return Trap(f"the gamma function has a pole at {number_in_words(x)}.", _FLOOR)
    return None


def _cholesky(result: Numbers, a: np.ndarray, *_: object) -> Trap | None:
    eigenvalues = np.linalg.eigvalsh(np.asarray(a, "float64"))
    return Trap(
        "the matrix is not positive definite: its smallest eigenvalue is "
        f"{number_in_words(eigenvalues.min())}.",
        "Add to its diagonal, a + 1e-6 * pt.eye(n), or parametrize it by its Cholesky factor.",
    )


def _singular(result: Numbers, a: np.ndarray, *_: object) -> Trap | None:
    values = np.linalg.svd(np.asarray(a, "float64"), compute_uv=False)
    return Trap(
        f"the matrix is singular: its smallest singular value is {number_in_words(values.min())}, its "
        f"largest {number_in_words(values.max())}.",
        "Add to its diagonal, or solve a least-squares problem.",
    )


_VALUES: dict[str, Callable[..., Trap | None]] = {
    **dict.fromkeys(("Log", "Log2", "Log10"), _log),
    "Log1p": lambda result, x: _log(result, 1 + x),
    "Sqrt": _sqrt,
    "True_div": _divide,
    "Reciprocal": lambda result, x: _divide(result, np.float64(1.0), x),
    "Pow": _power,
    **dict.fromkeys(("Exp", "Exp2", "Expm1", "Sinh", "Cosh"), _exp),
    **dict.fromkeys(
        ("Mul", "Sqr", "Dot", "Prod", "MulWithoutZeros"),
        lambda result, *x: _infinities(result, *x) or _overflow(result, *x),
    ),
    **dict.fromkeys(("Add", "Sub", "Sum"), _sum),
    "Switch": _chosen,
    "Gammaln": _gammaln,
    "Cholesky": _cholesky,
    **dict.fromkeys(("Solve", "MatrixInverse", "Inv", "MatrixPinv", "SLogDet", "Det"), _singular),
    **dict.fromkeys(("Arcsin", "Arccos", "Arctanh", "Erfinv"), _outside(-1, 1)),
    "Log1mexp": _outside(-np.inf, 0),
}


# -- derivatives -------------------------------------------------------------------------------------


_POLES: dict[str, Callable[..., str]] = {
    "Sqrt": lambda x: (
        "the derivative of sqrt is infinite at 0 (a norm at 0 has it inside)" if x == 0 else ""
    ),
    **dict.fromkeys(
        ("Log", "Log2", "Log10"),
        lambda x: "the derivative of log is infinite at 0" if x == 0 else "",
    ),
    "Log1p": lambda x: "the derivative of log1p is infinite at -1" if x == -1 else "",
    "Pow": lambda x, y: (
        f"the derivative of x ** {number_in_words(y)} is infinite at 0" if x == 0 and y < 1 else ""
    ),
    "True_div": lambda x, y: "the derivative of x / y is infinite at y = 0" if y == 0 else "",
    "Reciprocal": lambda x: "the derivative of 1 / x is infinite at 0" if x == 0 else "",
    **dict.fromkeys(
        ("Arcsin", "Arccos", "Arctanh"),
        lambda x: "the derivative is infinite at -1 and 1" if abs(x) == 1 else "",
    ),
}
