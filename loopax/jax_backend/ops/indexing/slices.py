"""Writes to a static slice without a scatter.

``x.at[1:].add(y)`` is a scatter in JAX, which XLA on CPU expands into a loop: it is slower to compile, and
to run, than the simple write that it expresses. Here it is a pad, ``x + pad(y)``, an update in place, or a
selection between the pad and ``x``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from loopax.jax_backend.staging.symbolic import span

_SMALL = 4  # an update of less than 1/4 of the array is written in place, not added as a whole


def is_basic(index: Sequence[Any]) -> bool:
    """Whether ``index`` has static integers and slices only."""
    return all(isinstance(k, slice | int | np.integer) and not isinstance(k, bool) for k in index)


def write_slices(
    x: jax.Array,
    y: jax.Array,
    index: Sequence[int | slice],
    sets: bool,
    from_zero: bool,
    in_place: Callable[[], bool],
) -> jax.Array:
    """Set or add ``y`` at a basic ``index`` of ``x``.

    Parameters
    ----------
    from_zero
        Whether ``x`` is known to be zero, so that adding is padding.
    in_place
        Whether several elements may be written in place; called only if there are several.
    """
    starts, lengths, steps, kept = _extent(x, index)
    y = jnp.broadcast_to(y, tuple(lengths[k] for k in kept))
    y = y.reshape(lengths)
    flipped = [k for k, s in enumerate(steps) if s < 0]
    if flipped:
        y = jax.lax.rev(y, flipped)
        starts = [
            a + (n - 1) * s if s < 0 and n else a
            for a, n, s in zip(starts, lengths, steps, strict=True)
        ]
    strides = [abs(s) for s in steps]
    if 0 in lengths:
        return x
    dense = all(s == 1 or n == 1 for s, n in zip(strides, lengths, strict=True))
    # With symbolic lengths, in an exported program, it is unknown which size is small.
    small = not any(map(is_symbolic_dim, (x.size, y.size))) and y.size * _SMALL < x.size
    in_part = dense and (sets or (not from_zero and small))
    if in_part and (all(n == 1 for n in lengths) or in_place()):
        if not sets:
            y = y + jax.lax.slice(x, starts, [a + n for a, n in zip(starts, lengths, strict=True)])
        return jax.lax.dynamic_update_slice(x, y, starts)
    config = [
        (a, size - a - (n - 1) * s - 1, s - 1)
        for a, n, s, size in zip(starts, lengths, strides, x.shape, strict=True)
    ]
    zero = np.zeros((), y.dtype) if sets or from_zero else neutral_of_addition(y.dtype)
    padded = jax.lax.pad(y, zero, config)
    if sets:
        return jnp.where(_positions(starts, lengths, strides, x.shape), padded, x)
    return padded if from_zero else x + padded


def neutral_of_addition(dtype: Any) -> np.ndarray:
    """The neutral element of addition: -0.0 for floats, since 0.0 would change -0.0 to 0.0."""
    zero = np.zeros((), dtype)
    return -zero if jnp.issubdtype(zero.dtype, jnp.inexact) else zero


def _positions(
    starts: list[int], lengths: list[int], strides: list[int], shape: tuple[int, ...]
) -> Any:
    """A mask of the written elements, with length 1 along axes that are written completely."""
    mask: Any = np.ones((1,) * len(shape), bool)
    for axis, (a, n, s, size) in enumerate(zip(starts, lengths, strides, shape, strict=True)):
        if s == 1 and not is_symbolic_dim(size) and n == size:
            continue
        steps = jax.lax.iota(int, size) - a
        is_written = (steps >= 0) & (steps < n * s) & (steps % s == 0)
        mask = mask & jnp.expand_dims(is_written, [k for k in range(len(shape)) if k != axis])
    return mask


def _extent(
    x: jax.Array, index: Sequence[int | slice]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Per axis of ``x``: first position, number of positions, step; and the axes that remain."""
    starts, lengths, steps, kept = [], [], [], []
    for axis, size in enumerate(x.shape):
        k = index[axis] if axis < len(index) else slice(None)
        if isinstance(k, slice):
            start, length, step = span(k, size)
            starts.append(start)
            lengths.append(length)
            steps.append(step)
            kept.append(axis)
        else:
            starts.append(int(k) if k >= 0 else int(k) + size)
            lengths.append(1)
            steps.append(1)
    return starts, lengths, steps, kept
