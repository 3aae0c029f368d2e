"""Entries of a value that are not finite, and values as text."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Entry = tuple[int, ...]
# An array, or the scalar that NumPy returns for one without axes.
Numbers: TypeAlias = np.ndarray | np.number | np.bool_
_SHOWN = 4  # printed entries of a larger value


def is_inexact(value: object) -> bool:
    """Whether ``value`` is an array that can hold a nan."""
    return isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "fc"


def bad_entries(value: Any) -> Any:
    """Flags of the entries that are nan or infinite; None for a type that can hold neither.

    A sparse matrix has flags for its stored entries.
    """
    if hasattr(value, "data") and not isinstance(value, np.ndarray | np.generic):
        value = value.data if isinstance(value.data, np.ndarray) else value
    if not is_inexact(value):
        return None
    return ~np.isfinite(value)


def is_bad(value: object) -> bool:
    flags = bad_entries(value)
    return flags is not None and bool(flags.any())


def first_true(flags: Numbers) -> Entry | None:
    """The position of the first flag that is set, in C order."""
    flags = np.asarray(flags)
    if not flags.any():
        return None
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(flags)), flags.shape))


def kind_of(number: np.number) -> str:
    """Name a number that is not finite: ``nan``, ``inf``, ``-inf``; an empty string for others."""
    if np.isnan(number):
        return "nan"
    if np.isinf(number):
        return "-inf" if np.real(number) < 0 else "inf"
    return ""


def at_entry(value: object, entry: Entry | None) -> Any:
    """The number at ``entry`` of an array; the value itself where it has no such entry."""
    array = np.asarray(value)
    if entry is None or len(entry) != array.ndim:
        return value
    return array[entry]


def entry_in_words(entry: Entry | None) -> str:
    """Format an index: ``[3]``, ``[1, 2]``; empty for a scalar."""
    return f"[{', '.join(map(str, entry))}]" if entry else ""


def number_in_words(x: npt.ArrayLike) -> str:
    """Format a number with six digits, a flag or an integer in full."""
    x = np.asarray(x)[()]
    if x.dtype.kind not in "fc":
        return str(x)
    return f"{x:.6g}"


def value_in_words(value: object, entry: Entry | None = None) -> str:
    """Format a number, the number at ``entry``, or a few entries of an array with its shape."""
    if not isinstance(value, np.ndarray | np.generic | int | float | complex):
        return f"a {type(value).__name__}"
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        return f"an array of {array.dtype}"
    if entry is not None and len(entry) == array.ndim:
        return number_in_words(array[entry])
    if array.ndim == 0:
        return number_in_words(array)
    shown = ", ".join(number_in_words(x) for x in array.ravel()[:_SHOWN])
    more = ", …" if array.size > _SHOWN else ""
    return f"[{shown}{more}] of shape {array.shape}"


def without_subnormals(value: object) -> Any:
    """Flush subnormal numbers to 0, as XLA does on a CPU."""
    if not is_inexact(value):
        return value
    array = np.asarray(value)
    tiny = np.finfo(array.dtype).tiny
    if array.dtype.kind == "c":
        return value
    small = (np.abs(array) < tiny) & (array != 0)
    return np.where(small, array.dtype.type(0), array) if small.any() else value
