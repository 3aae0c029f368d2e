"""The types whose values go into a program, and the conversions that no backend does in its own way."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import ScalarType
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.type_other import NoneTypeT, SliceType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError

NO_ARRAYS = SliceType | NoneTypeT


def crosses(t: Any) -> bool:
    """Whether values of the type ``t`` can go into a program and come out of it."""
    if isinstance(t, TypedListType):
        return crosses(t.ttype) and not isinstance(t.ttype, NO_ARRAYS)
    return isinstance(t, DenseTensorType | ScalarType | RandomType | SparseTensorType | NO_ARRAYS)


def refuse_variable(x: Any, what: str) -> None:
    """Raise where ``x`` is a PyTensor variable. ``what`` says whose value it is."""
    if isinstance(x, Variable):
        raise LoopTypeError(
            f"{what} is the PyTensor variable {x}: a jaxified function takes arrays. To use it in a "
            "graph, call the PyTensor function that it was made from."
        )


def filtered(x: Any, expected: Any, what: str) -> np.ndarray:
    """``x`` as an array of the tensor type ``expected``.

    PyTensor's own rules: no rank is added, no precision lost, Python numbers fit any float. What is
    already such an array is returned as it is.

    Raises
    ------
    LoopTypeError
        It has another rank or static shape, or a dtype that the type cannot hold.
    """
    if isinstance(x, np.ndarray) and not x.flags.aligned:
        x = x.copy()  # a field of records, say, which PyTensor refuses without a word about that
    try:
        return expected.filter(x, strict=False, allow_downcast=None)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:  # the last: of objects
        raise LoopTypeError(misfit(x, expected, what)) from error


def misfit(x: Any, expected: Any, what: str) -> str:
    """The message that ``x`` is no value of the tensor type ``expected``, with what to give instead."""
    start = f"{what} must be {described(expected)}, but "
    if isinstance(x, Mapping):
        return f"{start}a {type(x).__name__} was given. A dict gives inputs by their names: f(**values)."
    if x is None:
        return f"{start}None was given. Give an array, or a number."
    if isinstance(x, str | bytes) or getattr(getattr(x, "dtype", None), "kind", "") in ("U", "S"):
        return f"{start}text was given. Make numbers of it first, float({x!r}) for instance."
    try:
        array = x if hasattr(x, "dtype") and hasattr(x, "shape") else np.asarray(x)
        dtype, shape = array.dtype, tuple(array.shape)
    except ValueError:  # NumPy refuses rows of unequal lengths
        return f"{start}rows of unequal lengths were given. Fill them up to one length."
    if getattr(dtype, "kind", "") == "O":
        return f"{start}{type(x).__name__} of objects was given, not of numbers."
    given = f"{start}{dtype}, shape {shape} was given. "
    more = len(shape) - expected.ndim
    if more > 0:
        axes = "axis" if more == 1 else "axes"
        return (
            f"{given}It has {more} {axes} more: for a call with each row use loopax.vmap(f), for all "
            "numbers in one row x.ravel(), or give the input that rank."
        )
    if more < 0:
        return (
            f"{given}It lacks {-more} of its axes: x[None] adds one, or give the input that rank."
        )
    if any(n not in (None, m) for n, m in zip(expected.shape, shape, strict=True)):
        return (
            f"{given}Lengths are part of the input's type: give such an array, or leave them open."
        )
    return (
        f"{given}It would lose something. Convert it yourself, x.astype({expected.dtype!r}), or give the "
        "input another type."
    )


def accept_slice(x: Any, what: str, why: str = "integers or None") -> slice:
    """``x``, a slice of integers. ``why`` says what its parts must be.

    Raises
    ------
    LoopTypeError
        It is none.
    """
    if not isinstance(x, slice):
        raise LoopTypeError(
            f"{what} must be a slice, but {x!r} of type {type(x).__name__} was given."
        )
    try:
        parts = [None if k is None else operator.index(k) for k in (x.start, x.stop, x.step)]
    except TypeError as error:
        raise LoopTypeError(f"{what} is {x}, but the parts of a slice must be {why}.") from error
    return slice(*parts)


def accept_none(x: Any, what: str) -> None:
    """Raise `LoopTypeError` where ``x`` is not None."""
    if x is not None:
        raise LoopTypeError(f"{what} must be None, but {x!r} was given.")


def refuse_rows(x: Any, expected: Any, what: str) -> None:
    """Raise `LoopTypeError` where ``x`` has no rows that a typed list could have."""
    if not isinstance(x, list | tuple) and not np.ndim(x):
        raise LoopTypeError(
            f"{what} must be {described(expected)}, but {type(x).__name__} was given. Give the rows as "
            "[first, second], or as an array with one row after the other along its leading axis."
        )


def described(expected: Any) -> str:
    """A type in words: ``float64 of rank 1, shape (?)``."""
    if isinstance(expected, TypedListType):
        return f"a list of rows, each {described(expected.ttype)}"
    shape = ", ".join("?" if n is None else str(n) for n in getattr(expected, "shape", ()))
    kind = f"{expected.format} matrix of " if isinstance(expected, SparseTensorType) else ""
    return f"{kind}{expected.dtype} of rank {expected.ndim}, shape ({shape})"
