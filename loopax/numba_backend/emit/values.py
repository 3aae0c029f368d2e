"""Values of variables in the emitted program: a tensor is `Small`, `Array` or `Virtual`.

These three have a ``dtype`` and a ``shape``, whose dimensions are integers where they are known at
emission and int64 locals elsewhere. A trace of tensors is `Rows`. All other values (random generators,
sparse matrices, lists, slices) are `Opaque`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeGuard

import numpy as np

from loopax.numba_backend.emit.expressions import Dim, Expr, Index


@dataclass(frozen=True)
class Position:
    """The index of an element in C order, for one loop over all elements."""

    index: Expr


At = Sequence[Index] | Position


@dataclass(frozen=True)
class Small:
    """A scalar, or a small array of static shape: one local (or literal) for each element.

    ``elements`` is an array of expressions, so that NumPy itself transposes, slices and joins them at
    emission, without statements in the program.
    """

    elements: np.ndarray
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape


@dataclass(frozen=True)
class Array:
    """A NumPy array in the local ``name``.

    ``fresh`` says that it was allocated here and is unshared: it may be overwritten, and returned
    without a copy. ``compact`` says that Numba knows it to be in C order.
    """

    name: Expr
    shape: tuple[Dim, ...]
    dtype: str
    fresh: bool = False
    compact: bool = False


@dataclass(frozen=True)
class Run:
    """Consecutive elements, in C order, of the array ``name`` from ``start`` on."""

    name: Expr
    start: Dim = 0


@dataclass(frozen=True)
class View:
    """The array ``name``, in C order, or its transpose."""

    name: Expr
    is_transposed: bool = False

    @property
    def T(self) -> View:
        return View(self.name, not self.is_transposed)


@dataclass(frozen=True)
class Virtual:
    """A deferred array: ``at(index)`` emits the computation of one element, and returns its local.

    ``cheap``: ``at`` is arithmetic on indices alone (a slice, a transpose), so that a second read is nearly
    free. ``empty``: an uninitialised array. ``view``: the place of the array in memory, if it is there.
    ``flat``: an array with equal elements in equal order, and other axes of length 1. ``run``: the place of
    the elements in memory, if they are consecutive. ``element``: the local or literal that all elements
    equal. ``light``: to recompute an element costs about as much as to load it. ``cost``: cycles for an
    element, if its computation cannot raise. ``reads_at_positions``: ``at`` also accepts a `Position`.
    ``has_functions``: an element calls a function that is slow except in vector code. ``is_gathered``:
    elements are read out of order, or each is a loop, so that a loop that stores them is not vectorized. No
    value has both of the last two.
    """

    shape: tuple[Dim, ...]
    dtype: str
    at: Callable[[Any], Expr] = field(repr=False)
    cheap: bool = True
    empty: bool = False
    view: View | None = None
    flat: Array | None = None
    run: Run | None = None
    element: Expr | None = None
    light: bool = False
    cost: float | None = None
    reads_at_positions: bool = False
    has_functions: bool = False
    is_gathered: bool = False


@dataclass(frozen=True)
class Rows:
    """A typed list of arrays of rank ``ndim``: the first ``count`` rows of the buffer ``name``.

    Both are locals. The first row decides the shape of the buffer.
    """

    name: Expr
    count: Expr
    ndim: int
    dtype: str


@dataclass(frozen=True)
class Opaque:
    """A value that the emitter passes on as a whole: a local, or an expression without a call.

    Generators and lists are mutable. ``fresh`` says that the value is unshared, as for an `Array`: a
    node that is its only reader changes it in place, any other node a copy (`Site.owned`).
    """

    name: Expr
    fresh: bool = False


Value = Small | Array | Virtual
EmittedValue = Value | Rows | Opaque  # of a variable of any type


def is_cheap(value: Value) -> bool:
    """Whether a second read of an element of ``value`` is nearly free."""
    return not isinstance(value, Virtual) or value.cheap


def has_functions(value: Value) -> bool:
    return isinstance(value, Virtual) and value.has_functions


def is_gathered(value: Value) -> bool:
    return isinstance(value, Virtual) and value.is_gathered


def reindexed(x: Value, shape: Sequence[Dim], at: Callable[[Any], Expr], **fields: Any) -> Virtual:
    """A `Virtual` that reads the elements of ``x`` at other indices, with its own ``fields`` otherwise."""
    shared_fields = {
        "cheap": is_cheap(x),
        "has_functions": has_functions(x),
        "is_gathered": is_gathered(x),
    }
    return Virtual(tuple(shape), x.dtype, at, **(shared_fields | fields))


def small(elements: Any, dtype: str) -> Small:
    """A `Small` from an expression or a list of expressions."""
    array = np.empty(np.shape(elements), dtype=object)
    array[...] = elements
    return Small(array, dtype)


def shared(value: EmittedValue) -> Any:
    """Mark ``value`` as shared, for an inner graph that runs many times or beside other readers."""
    return replace(value, fresh=False) if isinstance(value, Array | Opaque) else value


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """The outputs that a rule returns, as a tuple even if there is only one."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def index_before(at: Sequence[Index], stretched: Sequence[bool]) -> list[Index]:
    """Convert an index into a ``stretched`` array to an index into the array before broadcasting."""
    return [0 if is_stretched else i for i, is_stretched in zip(at, stretched, strict=True)]


def shape_before(shape: Sequence[Dim], stretched: Sequence[bool]) -> list[Dim]:
    """Convert the lengths of a ``stretched`` array to the lengths before broadcasting."""
    return [1 if is_stretched else n for n, is_stretched in zip(shape, stretched, strict=True)]


def is_static(shape: Sequence[Dim | None]) -> TypeGuard[Sequence[int]]:
    return all(isinstance(n, int) for n in shape)


def indices_of(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The indices of the elements of an array of ``shape``, in C order."""
    return np.ndindex(*shape)


LONGEST = 8  # a longer axis has a loop


def is_small(shape: Sequence[Dim | None], largest: int) -> bool:
    """Whether an array of ``shape`` is stored in locals, of which there are at most ``largest``."""
    return is_static(shape) and max(shape, default=0) <= LONGEST and prod(shape) <= largest
