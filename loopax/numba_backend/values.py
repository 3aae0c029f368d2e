"""What a variable is in the emitted program: `Small`, `Array` or `Virtual`; `Rows` for a typed list.

The three have a ``shape``, whose dimensions are integers where they are known when the source is
written and names (of int64 locals) where they are not, and a ``dtype``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Dim = int | str
Index = int | str


@dataclass(frozen=True)
class Small:
    """A scalar, or a small array of static shape: one local (or literal) for each element.

    ``elements`` is an array of names, so that NumPy itself transposes, slices and joins them while
    the source is written, and nothing of that is left in the program.
    """

    elements: np.ndarray
    dtype: str

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.elements.shape


@dataclass(frozen=True)
class Array:
    """A NumPy array in the local ``name``.

    ``fresh`` says that it was allocated here and that nothing else can see it: it may be written to,
    and be returned as it is.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    fresh: bool = False


@dataclass(frozen=True)
class Virtual:
    """An array that is nowhere: ``at(index)`` writes what computes one element, and names it.

    ``cheap`` says that this is only arithmetic on indices (a slice, a transpose), so that reading an
    element twice costs next to nothing. ``empty`` is an array that nobody has written to yet.
    """

    shape: tuple[Dim, ...]
    dtype: str
    at: Callable[[Sequence[Index]], str] = field(repr=False)
    cheap: bool = True
    empty: bool = False


@dataclass(frozen=True)
class Rows:
    """A typed list of arrays of rank ``ndim``: the first ``count`` rows of the buffer ``name``.

    Both are locals. The buffer has no shape until the first row decides it.
    """

    name: str
    count: str
    ndim: int
    dtype: str


Value = Small | Array | Virtual


def small(elements: Any, dtype: str) -> Small:
    """`Small` of a list of names or of one name."""
    array = np.empty(np.shape(elements), dtype=object)
    array[...] = elements
    return Small(array, dtype)


def shared(value: Any) -> Any:
    """``value`` as it is passed into an inner graph, which runs many times, or not alone: not fresh."""
    return replace(value, fresh=False) if isinstance(value, Array) else value


def is_static(shape: Sequence[Dim]) -> bool:
    return all(isinstance(n, int) for n in shape)
