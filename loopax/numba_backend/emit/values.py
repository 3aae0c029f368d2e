"""What a variable is in the emitted program: `Small`, `Array` or `Virtual` if it is a tensor.

The three have a ``shape``, whose dimensions are integers where they are known when the source is
written and locals (of int64) where they are not, and a ``dtype``. A trace of tensors is `Rows`.
All else (random generators, sparse matrices, lists, slices) is `Opaque`, as Numba holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from loopax.numba_backend.emit.expressions import Dim, Expr, Index


@dataclass(frozen=True)
class Position:
    """The index of an element in C order: one loop over all elements in the place of one for each axis."""

    index: Expr


At = Sequence[Index] | Position


@dataclass(frozen=True)
class Small:
    """A scalar, or a small array of static shape: one local (or literal) for each element.

    ``elements`` is an array of expressions, so that NumPy itself transposes, slices and joins them while
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
    and be returned as it is. ``compact`` says that Numba knows it to be in C order.
    """

    name: Expr
    shape: tuple[Dim, ...]
    dtype: str
    fresh: bool = False
    compact: bool = False


@dataclass(frozen=True)
class Virtual:
    """An array that is nowhere: ``at(index)`` writes what computes one element, and names it.

    ``cheap`` says that this is only arithmetic on indices (a slice, a transpose), so that reading an
    element twice costs next to nothing. ``empty`` is an array that nobody has written to yet. ``view``
    is an expression for it as an array, in C or Fortran order, where that copies nothing; ``flat`` is an
    array with the same elements in the same order, and other axes of length 1. ``element`` is the local or
    literal that all elements are, where that is known. ``light`` says that computing an element again costs
    about what reading it from memory would. ``cost`` is how many cycles an element takes, where computing
    one raises nothing. ``reads_at_positions`` says that ``at`` takes a `Position`, too. ``has_functions``
    says that an element takes a function that is slow but in vector code, ``is_gathered`` that elements are
    not read one after the other, so that a loop that stores them is none. No value is both.
    """

    shape: tuple[Dim, ...]
    dtype: str
    at: Callable[[Any], Expr] = field(repr=False)
    cheap: bool = True
    empty: bool = False
    view: Expr | None = None
    flat: Array | None = None
    element: Expr | None = None
    light: bool = False
    cost: float | None = None
    reads_at_positions: bool = False
    has_functions: bool = False
    is_gathered: bool = False


@dataclass(frozen=True)
class Rows:
    """A typed list of arrays of rank ``ndim``: the first ``count`` rows of the buffer ``name``.

    Both are locals. The buffer has no shape until the first row decides it.
    """

    name: Expr
    count: Expr
    ndim: int
    dtype: str


@dataclass(frozen=True)
class Opaque:
    """What the emitter does not look into: a local, or an expression without a call.

    A generator and a list change when they are drawn from or appended to. ``fresh`` says that nothing
    else can see this one, as it does of an `Array`: where the node that changes it is its only reader,
    it is changed itself, and a copy otherwise (`Site.owned`).
    """

    name: Expr
    fresh: bool = False


Value = Small | Array | Virtual


def traits(value: Value) -> dict[str, bool]:
    """What a `Virtual` of the elements of ``value``, at other indices, says of them."""
    if not isinstance(value, Virtual):
        return {"cheap": True, "has_functions": False, "is_gathered": False}
    return {
        "cheap": value.cheap,
        "has_functions": value.has_functions,
        "is_gathered": value.is_gathered,
    }


def small(elements: Any, dtype: str) -> Small:
    """`Small` of a list of expressions or of one."""
    array = np.empty(np.shape(elements), dtype=object)
    array[...] = elements
    return Small(array, dtype)


def shared(value: Any) -> Any:
    """``value`` as it is passed into an inner graph, which runs many times, or not alone: not fresh."""
    return replace(value, fresh=False) if isinstance(value, Array | Opaque) else value


def is_static(shape: Sequence[Any]) -> bool:
    return all(isinstance(n, int) for n in shape)


LONGEST = 8  # an axis of more elements is looped over


def is_small(shape: Sequence[Any], largest: int) -> bool:
    """Whether an array of this shape is held in locals, where ``largest`` elements may be."""
    return is_static(shape) and max(shape, default=0) <= LONGEST and prod(shape) <= largest
