"""A scan in blocks: one after another inside a block, all blocks side by side.

    N steps   ->   B blocks of L: what each block does as a whole, L steps of all B at once;
                   the state that each block begins with, log B steps;
                   the steps again, from these states, L steps of all B at once

That is about twice the work of the plain loop, and ``2 L + log B`` steps one after another instead of
``N``; `jax.lax.associative_scan` alone is blocks of one step. Blocks are the last axis of all arrays: a
step inside them is one operation on vectors. Blelloch (1990), "Prefix sums and their applications".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.manual_axes import scan

# Steps inside a block. On an accelerator each is a kernel or a few, whose start takes longer than its work.
_INSIDE = 16
_MOST_BLOCKS = 4096  # beyond that an accelerator is full, and longer blocks cost nothing


def block_count(n: int) -> int:
    """Into how many blocks ``n`` steps are divided: a power of 2, which devices can share evenly."""
    most = max(1, min(_MOST_BLOCKS, n // _INSIDE))
    return 1 << (most.bit_length() - 1)


def scan_in_blocks(
    combine: Callable[[Any, Any], Any],
    act: Callable[[Any, Any], Any],
    rows: Any,
    start: Any,
    reverse: bool = False,
    element: Callable[[Any], Any] = lambda row: row,
) -> Any:
    """The states behind each step, ``s[t] = act(element(rows[t]), s[t - 1])`` from ``s[-1] = start``.

    Parameters
    ----------
    combine
        ``combine(first, second)``: what two elements do one after the other, an associative operation:
        ``act(combine(e, f), s) == act(f, act(e, s))``.
    act
        As above. All that these functions take and return has an axis of blocks last.
    rows
        A pytree of arrays, of a row for each step.
    element
        What the step of a row does. Its axis of blocks may have length 1 where all blocks do the same.
    start
        The state before the first step, a pytree of arrays.
    reverse
        Whether the steps are taken from the last row to the first, as ``lax.scan`` has it.
    """
    n = jax.tree.leaves(rows)[0].shape[0]
    count = block_count(n)
    length = -(-n // count)
    rows = jax.tree.map(lambda x: _in_blocks(x, count, length, reverse), rows)
    first = element(jax.tree.map(lambda x: x[0], rows))
    later = jax.tree.map(lambda x: x[1:], rows)
    if count > 1:
        whole, _ = scan(lambda e, x: (combine(e, element(x)), None), first, later)
        # What the last block does is of no interest, and it may have steps that are not there.
        before = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (*x.shape[:-1], count))[..., :-1], whole
        )
        before = _prefixes(combine, before)
        begun = act(before, jax.tree.map(lambda x: x[..., None], start))
        begins = jax.tree.map(lambda s, x: jnp.concatenate([s[..., None], x], -1), start, begun)
    else:
        begins = jax.tree.map(lambda x: x[..., None], start)
    # The first step by hand: what it gives has the type of all that follow, on a mesh too.
    second = act(first, begins)
    _, states = scan(lambda s, x: (act(element(x), s),) * 2, second, later)
    states = jax.tree.map(lambda s, x: jnp.concatenate([s[None], x]), second, states)
    return jax.tree.map(lambda x: _in_a_row(x, n, reverse), states)


def _prefixes(combine: Callable[[Any, Any], Any], elements: Any) -> Any:
    """Products of the blocks up to each, in ``log B`` rounds, each with the product so far before it.

    Hillis and Steele (1986), as a loop: `jax.lax.associative_scan` writes each of its levels out. Where an
    operation is more than a few lines, as of Kalman filters, XLA took twice the time to compile that.
    """
    count = jax.tree.leaves(elements)[0].shape[-1]
    distances = 2 ** np.arange((count - 1).bit_length())

    def level(so_far: Any, distance: Any) -> Any:
        before = jax.tree.map(lambda x: jnp.roll(x, distance, axis=-1), so_far)
        has_one = jnp.arange(count) >= distance
        longer = combine(before, so_far)
        return jax.tree.map(lambda x, y: jnp.where(has_one, x, y), longer, so_far), None

    return scan(level, elements, distances)[0]


def _in_blocks(x: Any, count: int, length: int, reverse: bool) -> Any:
    """Rows as ``(length, ..., count)``, in the order of the steps; what is missing repeats the last."""
    if reverse:
        x = jnp.flip(x, 0)
    missing = count * length - x.shape[0]
    if missing:
        x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))])
    return jnp.moveaxis(x.reshape(count, length, *x.shape[1:]), 0, -1)


def _in_a_row(x: Any, n: int, reverse: bool) -> Any:
    x = jnp.moveaxis(x, -1, 0)
    x = x.reshape(-1, *x.shape[2:])[:n]
    return jnp.flip(x, 0) if reverse else x
