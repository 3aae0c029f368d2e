"""A scan in blocks: sequential inside a block, with all blocks in parallel.

    N steps   ->   B blocks of L: the combined effect of each block, L steps of all B at once;
                   the initial state of each block, log B steps;
                   the steps again, from these states, L steps of all B at once

That is about twice the work of the plain loop, and ``2 L + log B`` sequential steps instead of ``N``;
`jax.lax.associative_scan` alone is blocks of one step. Blocks are the last axis of all arrays: a step
inside them is one operation on vectors. Blelloch (1990), "Prefix sums and their applications".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.manual_axes import scan

# Steps inside a block. On an accelerator each is a few kernels, whose launch takes longer than their work.
_INSIDE = 16
_MOST_BLOCKS = 4096  # with more an accelerator is busy, and longer blocks cost nothing


def block_count(n: int) -> int:
    """The number of blocks for ``n`` steps: a power of 2, which devices can share evenly."""
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
    """The states after each step: ``s[t] = act(element(rows[t]), s[t - 1])`` with ``s[-1] = start``.

    Parameters
    ----------
    combine
        ``combine(first, second)``: the combined effect of two consecutive elements, an associative
        operation: ``act(combine(e, f), s) == act(f, act(e, s))``.
    act
        As above. All arguments and results of these functions have the axis of blocks last.
    rows
        A pytree of arrays, with a row for each step.
    element
        The element of a row's step. Its axis of blocks may have length 1 if all blocks are equal.
    start
        The state before the first step, a pytree of arrays.
    reverse
        Whether the steps are taken from the last row to the first, as in ``lax.scan``.
    """
    n = jax.tree.leaves(rows)[0].shape[0]
    count = block_count(n)
    length = -(-n // count)
    rows = jax.tree.map(lambda x: _in_blocks(x, count, length, reverse), rows)
    first = element(jax.tree.map(lambda x: x[0], rows))
    later = jax.tree.map(lambda x: x[1:], rows)
    if count > 1:
        whole, _ = scan(lambda e, x: (combine(e, element(x)), None), first, later)
        # The state after the last block is not needed, and padding may follow the last step in it.
        before = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (*x.shape[:-1], count))[..., :-1], whole
        )
        before = _prefixes(combine, before)
        begun = act(before, jax.tree.map(lambda x: x[..., None], start))
        begins = jax.tree.map(lambda s, x: jnp.concatenate([s[..., None], x], -1), start, begun)
    else:
        begins = jax.tree.map(lambda x: x[..., None], start)
    # Take the first step outside the scan: its result has the type of all later ones, on a mesh too.
    second = act(first, begins)
    _, states = scan(lambda s, x: (act(element(x), s),) * 2, second, later)
    states = jax.tree.map(lambda s, x: jnp.concatenate([s[None], x]), second, states)
    return jax.tree.map(lambda x: _in_a_row(x, n, reverse), states)


def _prefixes(combine: Callable[[Any, Any], Any], elements: Any) -> Any:
    """Combine all blocks before and up to each block, in ``log B`` rounds.

    This is Hillis and Steele (1986) as a loop: `jax.lax.associative_scan` unrolls its levels. For
    operations of more than a few lines, as in Kalman filters, XLA took twice the time to compile those.
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
    """Reshape rows to ``(length, ..., count)``, in the order of the steps; the last row pads them."""
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
