"""The index of a node in JAX's form: static parts as Python numbers, traced parts as arrays.

A traced slice works where its *length* is static: ``x[i : i + 3]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Variable

from loopax.base.errors import describe
from loopax.base.upstream.pytensor import indices_from_subtensor
from loopax.facts.elementwise import function_of, uncast
from loopax.jax_backend.staging.checked import Failure, check_when_run
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.intervals import known_interval
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.staging.symbolic import as_length, span
from loopax.numerics.arrays import Array


class Window(NamedTuple):
    """A slice of ``length`` elements with a traced start, which counts from the end if it is negative.

    ``may_cross``: whether the slice may cross an end of the axis.
    """

    start: Any
    length: int
    may_cross: bool


@dataclass(frozen=True)
class Index:
    """An index in JAX's form.

    ``axes`` maps an axis of the array to the entry that indexes it, if that entry indexes no other axis;
    ``slices`` says which of them are slices with traced bounds, as arrays of positions, and ``windows``
    has these slices; ``open`` are the traced integers that are not known to be in range, by axis.
    """

    entries: tuple[Any, ...]
    axes: dict[int, int]
    slices: dict[int, int]
    open: dict[int, int]
    windows: dict[int, Window]

    @property
    def dynamic(self) -> bool:
        return any(map(is_traced, self.entries))

    @property
    def row(self) -> Any:
        """The traced integer, if it is the whole index, else None."""
        if len(self.entries) == 1 and not self.slices and jnp.ndim(self.entries[0]) == 0:
            return self.entries[0]
        return None

    def is_whole(self, x: Array) -> bool:
        """Whether the index selects all of ``x``, in order."""
        return len(self.entries) <= jnp.ndim(x) and all(
            isinstance(s, slice) and span(s, n) == (0, n, 1)
            for s, n in zip(self.entries, jnp.shape(x), strict=False)
        )


def index_of(site: Site, x: Array, first: int, values: Sequence[Any]) -> Index:
    """The index of a node; ``values`` are its inputs from position ``first`` on."""
    entries: list[Any] = []
    axes: dict[int, int] = {}
    slices: dict[int, int] = {}
    unproven: dict[int, int] = {}
    windows: dict[int, Window] = {}
    axis = 0
    for entry in indices_from_subtensor(range(len(values)), idx_list(site)):
        if isinstance(entry, slice):
            entry_index, n_axes = slice_of(site, entry, first, values, jnp.shape(x)[axis]), 1
            if isinstance(entry_index, Window):
                slices[axis], windows[axis] = len(entries), entry_index
                entry_index = _positions(entry_index, jnp.shape(x)[axis])
        elif entry is None or values[entry] is None:  # np.newaxis
            entry_index, n_axes = None, 0
        else:
            entry_index, n_axes = _entry(site, values[entry], first + entry, axis, jnp.shape(x))
            if is_traced(entry_index):
                length = jnp.shape(x)[axis]
                if not _is_proven(site, first + entry, length):
                    unproven[axis] = len(entries)
                entry_index = _narrowed(site, entry_index, first + entry, length)
        if n_axes == 1:
            axes[axis] = len(entries)
        entries.append(entry_index)
        axis += n_axes
    return Index(tuple(entries), axes, slices, unproven, windows)


def idx_list(site: Site) -> Any:
    form = getattr(site.op, "idx_list", None)
    return (0,) if form is None else form  # AdvancedSubtensor1 of 3.0 has none: one index


def _entry(
    site: Site, value: Array | np.generic, k: int, axis: int, shape: Sequence[int]
) -> tuple[Any, int]:
    """An integer, index array or mask along ``axis``, and the number of axes that it takes."""
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") == "b":
        # The number of elements that a mask selects depends on its values.
        mask = np.asarray(site.static(k))
        check_mask_fits(site, mask, axis, shape)
        return (mask if mask.ndim else bool(mask)), mask.ndim
    if not isinstance(value, jax.Array):
        index = np.asarray(value)
        check_in_bounds(site, index, axis, shape[axis])
        return (int(value) if index.ndim == 0 else index), 1
    return value, 1


def check_open(
    site: Site, index: Index, x: Array, result: jax.Array, whole: Sequence[int] = ()
) -> Any:
    """Add a check of the indices that are not known to be in range to ``result``, a read or write of ``x``.

    The windows along the axes ``whole`` must not cross an end. Only a direct call can raise, and it runs
    the checks only if a result is not a number: see `Variant`. A write to an axis without elements leaves
    no such number, so it is checked at once.
    """
    context = site.context
    if not (index.open or whole) or context.checks != "flag":
        return result
    nowhere = any(
        jnp.shape(x)[axis] == 0 and jnp.size(index.entries[k]) for axis, k in index.open.items()
    )
    if not (context.checks_indices or nowhere):
        context.open_indices.add(str(site.op))
        return result
    inside = jnp.asarray(True)
    for axis, k in index.open.items():
        n, at = jnp.shape(x)[axis], index.entries[k].astype(int)
        inside = inside & jnp.all((at >= -n) & (at < n))
    if index.open:
        message = f"An index is out of bounds, in {site.op} for {describe(site.out)}."
        result = check_when_run(context, result, inside, Failure(IndexError, message))
    for axis in whole:
        window = index.windows[axis]
        first, last = clipped_bounds(window, jnp.shape(x)[axis])
        message = (
            f"A slice of {window.length} elements crosses an end of axis {axis}, and is shorter than the "
            f"array that is written to it, in {site.op} for {describe(site.out)}."
        )
        fits = last - first == window.length
        result = check_when_run(context, result, fits, Failure(ValueError, message))
    return result


def _is_proven(site: Site, k: int, length: int) -> bool:
    """Whether the traced index in input ``k`` is known to be in range."""
    return isinstance(length, int) and _is_within(site, k, -length, length - 1)


def is_place(site: Site, k: int, length: int) -> bool:
    """Whether the index in input ``k`` is known to be in range, and not to count from the end."""
    return isinstance(length, int) and _is_within(site, k, 0, length - 1)


def _is_within(site: Site, k: int, least: int, most: int) -> bool:
    """Whether the integers in input ``k`` are known to be in an interval."""
    known = known_interval(site.frame, site.node.inputs[k])
    return known is not None and least <= known[0] and known[1] <= most


def _narrowed(site: Site, at: jax.Array, k: int, length: int) -> Any:
    """Clip the traced index ``at``, input ``k`` of a node, so that JAX may cast it to 32 bits."""
    fits = _is_within(site, k, np.iinfo(np.int32).min, _INT32)
    return _at_least_32_bits(at) if fits else keep_outside(at, length)


def check_in_bounds(site: Site, index: np.ndarray, axis: int, length: int) -> None:
    """Raise IndexError unless all of ``index``, known integers, lie in ``axis``."""
    if index.size and (index.min() < -length or index.max() >= length):
        raise IndexError(
            f"Index {index.min() if index.min() < -length else index.max()} is out of bounds for "
            f"axis {axis} of length {length}, in {site.op} for {describe(site.out)}."
        )


def check_mask_fits(site: Site, mask: Array, axis: int, shape: Sequence[int]) -> None:
    """Raise IndexError unless ``mask``, which begins at ``axis``, has the lengths of these axes."""
    at = tuple(shape[axis : axis + mask.ndim])
    if mask.shape != at:
        raise IndexError(
            f"A mask of shape {mask.shape} does not fit axes {axis} to {axis + mask.ndim - 1} of "
            f"shape {at}, in {site.op} for {describe(site.out)}."
        )


def slice_of(site: Site, entry: slice, first: int, values: Sequence[Any], length: int) -> Any:
    """A static slice; for traced bounds at a fixed distance, a `Window`."""

    def static(k: int | None) -> int | None:
        return None if k is None else as_length(site.static(first + k))

    def traced(k: int | None) -> bool:
        return k is not None and values[k] is not None and is_traced(values[k])

    def step() -> int | None:
        by = static(entry.step)
        return None if by is None else short_step(by, length)

    if not (traced(entry.start) or traced(entry.stop)):
        return slice(static(entry.start), static(entry.stop), step())
    if isinstance(length, int) and length == 0:
        return slice(0, 0, step())
    if entry.start is not None and entry.stop is not None and static(entry.step) in (None, 1):
        start, stop = (site.node.inputs[first + k] for k in (entry.start, entry.stop))
        # The last batch ``x[2 * i : 2 * (i + 1)]`` may be shorter: a direct call makes ``i`` static.
        is_shifted = _unshifted(site, start) is _unshifted(site, stop)
        n = site.frame.distance(start, stop) if is_shifted else None
        if n is not None:
            n = max(n, 0)
            begin: Any = jnp.asarray(values[entry.start])
            begin = keep_outside(begin, length, below=n).astype(int)
            is_inside = isinstance(length, int) and _is_within(
                site, first + entry.start, 0, length - n
            )
            return Window(begin, n, not is_inside)
    # A traced value may still be known, if it depends only on lengths; otherwise this raises.
    return slice(static(entry.start), static(entry.stop), step())


def _unshifted(site: Site, v: Variable) -> Variable:
    """The traced variable beneath conversions and static summands of ``v``: ``i`` for ``i + 3``."""
    while (node := (v := uncast(v)).owner) is not None:
        function = function_of(node.op)
        if not isinstance(function, ps.Add | ps.Sub):
            break
        traced = [u for u in node.inputs if is_traced(site.frame.read(u))]
        if len(traced) != 1 or (isinstance(function, ps.Sub) and node.inputs[1] in traced):
            break
        (v,) = traced
    return v


def clipped_bounds(window: Window, length: int) -> tuple[jax.Array, jax.Array]:
    """The bounds of a window as in NumPy, which clips it at the ends of the axis."""
    bounds = window.start, window.start + window.length
    first, last = (jnp.clip(from_front(b, length), 0, length) for b in bounds)
    return first, jnp.maximum(first, last)


def _positions(window: Window, length: int) -> jax.Array:
    """The positions of a window as in NumPy; ``length`` stands for those that are not there."""
    if not window.may_cross:
        return window.start + np.arange(window.length)
    first, last = clipped_bounds(window, length)
    at = first + np.arange(window.length)
    return jnp.where(at < last, at, length)


def short_step(step: int, length: int) -> int:
    """Limit ``step`` to the length of the axis: JAX computes with it in 64 bits, where it may overflow."""
    if not isinstance(length, int):
        return step
    return max(-max(length, 1), min(step, max(length, 1)))


_INT32 = np.iinfo(np.int32).max


def keep_outside(at: Array, length: Array | int, below: int = 1) -> Array:
    """Clip ``at``, in a dtype of 32 bits or more, to just outside of an axis of ``length``.

    JAX casts an index to int32 wherever the length of the axis fits there, and checks its bounds only
    afterwards: ``x[2**32]`` would be ``x[0]``, and an unsigned ``2**64 - 1`` the last element. To an index
    of 8 bits it adds the length in 8 bits. Indices out of range stay so; ``below`` is the number of values
    kept below the least valid index.
    """
    at = _at_least_32_bits(at)
    if at.dtype == bool or np.iinfo(at.dtype).max <= _INT32:
        return at
    high = (
        np.asarray(length, at.dtype) if isinstance(length, int) else jnp.asarray(length, at.dtype)
    )
    at = jnp.minimum(at, high)
    return at if at.dtype.kind == "u" else jnp.maximum(at, -high - max(below, 1))


def _at_least_32_bits(at: Array) -> Array:
    return at.astype(np.int32) if at.dtype in (np.int8, np.int16) else at


def from_front(at: Array, length: Array | int) -> jax.Array:
    """The positions ``at`` along an axis of ``length``, counted from its start, as 64-bit integers.

    Positions out of range stay so: negative, or ``length`` or more. ``length`` may be traced.
    """
    at = keep_outside(jnp.asarray(at), length).astype(int)
    return jnp.where(at < 0, at + length, at)
