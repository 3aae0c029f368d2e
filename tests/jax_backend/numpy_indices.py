"""JAX's slices, gathers and scatters, window by window in NumPy; `numpy_primitives` has the other rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from tests.jax_backend.numpy_primitives import RULES, rule


def _clipped(start: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    every = zip(start, sizes, shape, strict=True)
    return [min(max(int(s), 0), n - size) for s, size, n in every]


def _window(start: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, sizes, strict=True))


@rule("dynamic_slice")
def dynamic_slice(x: Any, *start: Any, slice_sizes: Any, **_: Any) -> Any:
    return x[_window(_clipped(start, slice_sizes, x.shape), slice_sizes)]


@rule("dynamic_update_slice")
def dynamic_update_slice(x: Any, update: Any, *start: Any, **_: Any) -> Any:
    out = np.array(x)
    out[_window(_clipped(start, update.shape, x.shape), update.shape)] = update
    return out


def _places(
    at: Any, shape: Any, sizes: Any, mapped: Any, of_batch: Any, by_batch: Any, clips: bool
) -> Any:
    """For each index vector its place in the indices, and the window; None where it is not inside."""
    for b in np.ndindex(at.shape[:-1]):
        start = [0] * len(shape)
        for k, i in zip(mapped, at[b], strict=True):
            start[k] = int(i)
        for k, axis in zip(of_batch, by_batch, strict=True):
            start[k] = b[axis]
        clipped = _clipped(start, sizes, shape)
        yield b, _window(clipped, sizes) if clips or clipped == start else None


@rule("gather")
def gather(
    x: Any,
    at: Any,
    *,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Any:
    d = dimension_numbers
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    rest = [n for k, n in enumerate(slice_sizes) if k not in gone]
    out = np.empty((*at.shape[:-1], *rest), x.dtype)
    fills = GatherScatterMode.from_any(mode) == GatherScatterMode.FILL_OR_DROP
    batches = d.operand_batching_dims, d.start_indices_batching_dims
    for b, window in _places(at, x.shape, slice_sizes, d.start_index_map, *batches, not fills):
        out[b] = _filler(x.dtype, fill_value) if window is None else x[window].reshape(rest)
    return np.moveaxis(out, range(at.ndim - 1, out.ndim), d.offset_dims)


def _filler(dtype: Any, value: Any) -> Any:
    """As `jax.lax.gather` says of ``fill_value``."""
    if value is not None:
        return value
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if dtype.kind == "i" else limits.max
    return True if dtype.kind == "b" else np.nan


def _scatter(name: str, combine: Callable[[Any, Any], Any]) -> None:
    def run(x: Any, at: Any, updates: Any, *, dimension_numbers: Any, mode: Any, **_: Any) -> Any:
        d = dimension_numbers
        window_axes = d.update_window_dims
        rows = np.moveaxis(
            updates, window_axes, range(updates.ndim - len(window_axes), updates.ndim)
        )
        lengths = iter(rows.shape[at.ndim - 1 :])
        gone = {*d.inserted_window_dims, *d.operand_batching_dims}
        sizes = [1 if k in gone else next(lengths) for k in range(x.ndim)]
        clips = GatherScatterMode.from_any(mode) == GatherScatterMode.CLIP
        batches = d.operand_batching_dims, d.scatter_indices_batching_dims
        out = np.array(x)
        to = d.scatter_dims_to_operand_dims
        for b, window in _places(at, x.shape, sizes, to, *batches, clips):
            if window is not None:
                out[window] = combine(out[window], rows[b].reshape(sizes))
        return out

    RULES[name] = run


_scatter("scatter", lambda old, new: new)
_scatter("scatter-add", np.add)
_scatter("scatter-mul", np.multiply)
_scatter("scatter-min", np.minimum)
_scatter("scatter-max", np.maximum)
