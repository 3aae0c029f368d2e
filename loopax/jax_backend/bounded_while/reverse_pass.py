"""Cotangents of a loop that stops early: back through only the steps that were taken.

    forward    keep the states before every k-th step, k about the root of the bound
    backward   block by block from the last: run its steps again, keep their states, then pull back

Every loop here is a ``lax.while_loop`` over the steps taken, so that the time is proportional to these and
the memory to twice the root of the bound (Griewank 1992, one level). In a batch all rows take their k-th
step at the same time: a loop goes on while any row does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim

from loopax.ir.sequences import with_items
from loopax.jax_backend.bounded_while.bounded_steps import (
    Given,
    Steps,
    any_row,
    chosen,
    counted,
    index_of_step,
    row,
    steps_asked_for,
)
from loopax.numerics import manual_axes


class Blocks(NamedTuple):
    """The states before every k-th step, and the trip count of this row and the largest of the batch."""

    states: Any
    count: Any
    most: Any


# Steps of a block of a loop whose bound is the symbol of an exported program, which has no root.
_SYMBOLIC = 32


def _block_length(bound: int) -> int:
    return _SYMBOLIC if is_symbolic_dim(bound) else max(1, math.isqrt(bound - 1) + 1)


def forward(steps: Steps, inputs: Given) -> tuple[tuple[Any, Any, Any], Blocks]:
    """The results of the loop, and the residuals for `backward`."""
    assert steps.bound
    size, n_steps = _block_length(steps.bound), steps_asked_for(steps, inputs)
    room = -(-steps.bound // size)
    kept = jax.tree.map(lambda s: jnp.broadcast_to(s, (room, *s.shape)), inputs.states)

    def one_step(carry: tuple[Any, ...]) -> Any:
        k, count, states, going, stopped, kept = carry
        new, _, stop = steps.step(inputs.consts, *row(steps, inputs, k), states)
        states, count = chosen(going, new, states), count + going.astype(count.dtype)
        still = going & ~stop & (count < n_steps)
        return k + 1, count, states, still, stopped | (going & stop), kept

    def block(carry: tuple[Any, ...]) -> Any:
        k, count, states, going, stopped, kept = carry
        kept = jax.tree.map(lambda b, s: b.at[k // size].set(s), kept, states)
        inside = k, count, states, going, stopped, kept
        return manual_axes.while_loop(lambda c: (c[0] < k + size) & any_row(c[3]), one_step, inside)

    zero = counted(0)
    start = zero, zero, inputs.states, zero < n_steps, jnp.asarray(False), kept
    most, count, states, _, stopped, kept = manual_axes.while_loop(
        lambda c: any_row(c[3]), block, start
    )
    return (states, count, stopped), Blocks(kept, count, most)


def backward(
    steps: Steps,
    inputs: Given,
    blocks: Blocks,
    cotangents: Sequence[jax.Array],
    varying: Sequence[int],
    floats: Sequence[int],
) -> list[Any]:
    """The cotangents of the leaves of ``inputs`` at ``varying``.

    ``cotangents`` belong to the leaves of the states at ``floats``.
    """
    assert steps.bound
    leaves, tree = jax.tree.flatten(inputs)
    n_rows, n_states = (len(jax.tree.leaves(x)) for x in (inputs.sequences, inputs.states))
    begin = len(jax.tree.leaves(inputs.n_steps))
    middle = begin + n_rows
    end = middle + n_states
    own = [k for k in varying if begin <= k < middle]
    shared = [k for k in varying if k >= end]
    state_tree = jax.tree.structure(inputs.states)

    def step_back(
        k: jax.Array, states: Sequence[jax.Array], cotangents: Sequence[jax.Array]
    ) -> Any:
        """Pull one step back: to its float states, to its own rows, and to shared values."""
        i, rows = row(steps, inputs, k)
        row_leaves, row_tree = jax.tree.flatten(rows)

        def next_states(
            some: Sequence[jax.Array], own_rows: Sequence[jax.Array], consts: Sequence[jax.Array]
        ) -> Any:
            now = with_items(states, floats, some)
            here = with_items(row_leaves, [place - begin for place in own], own_rows)
            consts = jax.tree.unflatten(tree, with_items(leaves, shared, consts)).consts
            rows = jax.tree.unflatten(row_tree, here)
            new, _, _ = steps.step(consts, i, rows, jax.tree.unflatten(state_tree, now))
            new = jax.tree.leaves(new)
            return [new[place] for place in floats]

        some = [states[k] for k in floats]
        own_rows = [row_leaves[k - begin] for k in own]
        return jax.vjp(next_states, some, own_rows, [leaves[k] for k in shared])[1](cotangents)

    of_states, of_rows, of_shared = _through_blocks(
        steps,
        inputs,
        blocks,
        step_back,
        cotangents,
        [leaves[k] for k in own],
        [leaves[k] for k in shared],
    )
    cotangent_of = dict(zip((middle + k for k in floats), of_states, strict=True))
    cotangent_of |= dict(zip(own, of_rows, strict=True)) | dict(zip(shared, of_shared, strict=True))
    return [cotangent_of[k] for k in varying]


def _through_blocks(
    steps: Steps,
    inputs: Given,
    blocks: Blocks,
    step_back: Callable[..., Any],
    cotangents: Sequence[jax.Array],
    sequences: Sequence[jax.Array],
    shared: Sequence[jax.Array],
) -> Any:
    size, most = _block_length(steps.bound or 1), blocks.most
    kept = [jnp.broadcast_to(b[0], (size, *b.shape[1:])) for b in jax.tree.leaves(blocks.states)]
    first = jax.tree.leaves(inputs.states)
    state_tree = jax.tree.structure(inputs.states)

    def block(carry: tuple[Any, ...]) -> Any:
        b, cotangents, of_rows, of_shared, kept = carry
        begin = b * size
        end = jnp.minimum(begin + size, most)

        def again(carry: tuple[Any, ...]) -> Any:
            k, states, kept = carry
            kept = [a.at[k - begin].set(s) for a, s in zip(kept, states, strict=True)]
            now = jax.tree.unflatten(state_tree, states)
            new, _, _ = steps.step(inputs.consts, *row(steps, inputs, k), now)
            return k + 1, chosen(k < blocks.count, jax.tree.leaves(new), states), kept

        states = [a[b] for a in jax.tree.leaves(blocks.states)]
        _, _, kept = manual_axes.while_loop(lambda c: c[0] < end, again, (begin, states, kept))

        def back(carry: tuple[Any, ...]) -> Any:
            k, cotangents, of_rows, of_shared = carry
            k = k - 1
            going = k < blocks.count
            # A finished row might compute infinities, and zero times infinity is NaN: it goes back through
            # its first step, which is known to be harmless, and the result is not used.
            safe = chosen(going, [a[k - begin] for a in kept], first)
            moved = step_back(jnp.where(going, k, 0), safe, cotangents)
            of_states, own, consts = chosen(going, moved, jax.tree.map(jnp.zeros_like, moved))
            place = index_of_step(steps, inputs, k)
            of_rows = [a.at[place].set(x) for a, x in zip(of_rows, own, strict=True)]
            of_shared = [a + x for a, x in zip(of_shared, consts, strict=True)]
            return k, chosen(going, of_states, cotangents), of_rows, of_shared

        carry = end, cotangents, of_rows, of_shared
        _, *pulled = manual_axes.while_loop(lambda c: c[0] > begin, back, carry)
        return b - 1, *pulled, kept

    last = (most - 1) // size
    zeros = [jnp.zeros_like(x) for x in sequences], [jnp.zeros_like(x) for x in shared]
    carry = last, list(cotangents), *zeros, kept
    _, *pulled, _ = manual_axes.while_loop(lambda c: c[0] >= 0, block, carry)
    return pulled
