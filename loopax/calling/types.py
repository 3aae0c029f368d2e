"""The types of values that programs take and return, and conversions that all backends share."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.type_other import NoneTypeT, SliceType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import LoopTypeError

NO_ARRAYS = SliceType | NoneTypeT


def crosses(t: Type) -> bool:
    """Whether values of the type ``t`` can go into a program and come out of it."""
    if isinstance(t, TypedListType):
        return crosses(t.ttype) and not isinstance(t.ttype, NO_ARRAYS)
    return isinstance(t, DenseTensorType | ScalarType | RandomType | SparseTensorType | NO_ARRAYS)


def has_shape(shape: Sequence[int], declared: Sequence[int | None]) -> bool:
    """Whether ``shape`` has the rank of ``declared``, and its lengths where these are not None."""
    return len(shape) == len(declared) and all(
        n is None or n == m for n, m in zip(declared, shape, strict=True)
    )


def refuse_variable(x: object, label: str) -> None:
    """Raise where ``x`` is a PyTensor variable. ``label`` says whose value it is."""
    if isinstance(x, Variable):
        raise LoopTypeError(
            f"{label} is the PyTensor variable {x}, but a jaxified function takes arrays. To use it in "
            "a graph, call the original PyTensor function."
        )


def filtered(x: object, expected: DenseTensorType, label: str) -> np.ndarray:
    """``x`` as an array of the tensor type ``expected``.

    PyTensor's own rules hold: no rank is added, no precision lost, Python numbers fit any float. An
    array of that type is returned as it is.

    Raises `LoopTypeError` if the value has another rank or static shape, or a dtype that the type
    cannot hold.
    """
    x = without_mask(x, label)
    if isinstance(x, np.ndarray) and not x.flags.aligned:
        # For example a field of records, which PyTensor refuses with an unrelated error.
        x = x.copy()
    try:
        return expected.filter(x, strict=False, allow_downcast=None)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:  # the last: of objects
        raise LoopTypeError(misfit(x, expected, label)) from error


def without_mask(x: Any, label: str) -> Any:
    """``x``, or of a masked array the data, if all that is masked is NaN: so PyMC holds data with gaps.

    Raises `LoopTypeError` if numbers are masked.
    """
    if not isinstance(x, np.ma.MaskedArray):
        return x
    masked = x.data[np.ma.getmaskarray(x)]
    if not np.all(masked != masked):
        raise LoopTypeError(
            f"{label} is a masked array, but a program has no masks. Fill it, x.filled(np.nan) for "
            "example, or pass the mask as a separate argument."
        )
    return x.data


def misfit(x: object, expected: DenseTensorType, label: str) -> str:
    """The message for a value ``x`` that the tensor type ``expected`` cannot hold, with a fix."""
    start = f"{label} must be {described(expected)}, but "
    if isinstance(x, Mapping):
        return f"{start}a {type(x).__name__} was given. A dict gives inputs by their names: f(**values)."
    if x is None:
        return f"{start}None was given. Give an array, or a number."
    if isinstance(x, str | bytes) or getattr(getattr(x, "dtype", None), "kind", "") in ("U", "S"):
        return f"{start}text was given. Make numbers of it first, float({x!r}) for instance."
    try:
        array = x if hasattr(x, "dtype") and hasattr(x, "shape") else np.asarray(x)
        dtype, shape = array.dtype, tuple(array.shape)
    except (TypeError, ValueError):  # NumPy refuses rows of unequal lengths
        return f"{start}rows of unequal lengths were given. Fill them up to one length."
    if getattr(dtype, "kind", "") == "O":
        return f"{start}{type(x).__name__} of objects was given, not of numbers."
    intro = f"{start}{dtype}, shape {shape} was given. "
    extra = len(shape) - expected.ndim
    if extra > 0:
        axes = "axis" if extra == 1 else "axes"
        return (
            f"{intro}It has {extra} {axes} more: for a call with each row use loopax.vmap(f), for all "
            "numbers in one row x.ravel(), or give the input that rank."
        )
    if extra < 0:
        return (
            f"{intro}It lacks {-extra} of its axes: x[None] adds one, or give the input that rank."
        )
    if not has_shape(shape, expected.shape):
        return (
            f"{intro}Lengths are part of the input's type: give such an array, or leave them open."
        )
    return (
        f"{intro}It would lose something. Convert it yourself, x.astype({expected.dtype!r}), or give the "
        "input another type."
    )


def accept_slice(x: object, label: str, requirement: str = "integers or None") -> slice:
    """``x``, a slice of integers. ``requirement`` says what its parts must be.

    Raises `LoopTypeError` if ``x`` is no such slice.
    """
    if not isinstance(x, slice):
        raise LoopTypeError(
            f"{label} must be a slice, got {x!r} of type {type(x).__name__}. Pass slice(start, stop)."
        )
    try:
        bounds = [None if k is None else operator.index(k) for k in (x.start, x.stop, x.step)]
    except TypeError as error:
        raise LoopTypeError(
            f"{label} is {x}, but the parts of a slice must be {requirement}."
        ) from error
    return slice(*bounds)


def accept_none(x: object, label: str) -> None:
    """Raise `LoopTypeError` where ``x`` is not None."""
    if x is not None:
        raise LoopTypeError(f"{label} must be None, got {x!r}.")


def refuse_rows(x: Any, expected: TypedListType, label: str) -> None:
    """Raise `LoopTypeError` where ``x`` has no rows that a typed list could have."""
    if not isinstance(x, list | tuple) and not np.ndim(x):
        raise LoopTypeError(
            f"{label} must be {described(expected)}, got a {type(x).__name__}. Pass the rows as a "
            "list, [first, second], or as an array with one row after the other along its leading "
            "axis."
        )


def described(expected: Any) -> str:
    """A type in words: ``float64 of rank 1, shape (?)``."""
    if isinstance(expected, TypedListType):
        return f"a list of rows, each {described(expected.ttype)}"
    shape = ", ".join("?" if n is None else str(n) for n in getattr(expected, "shape", ()))
    kind = f"{expected.format} matrix of " if isinstance(expected, SparseTensorType) else ""
    return f"{kind}{expected.dtype} of rank {expected.ndim}, shape ({shape})"
