"""A ``lax.scan`` in blocks, whose reverse mode keeps the states before each block only.

    scan over n steps -> scan over n / k blocks of a checkpointed scan over k steps, and the rest

Reverse mode keeps n / k states and, while it goes through one block, what k steps leave behind. With k
near the root of n both are about sqrt(n) (Griewank 1992, for one level). Each step is computed twice.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from loopax.ir import ScanOptions


def block_length(options: ScanOptions, n: int) -> int:
    """How many steps lie between two states that reverse mode keeps; 0 where it keeps what it likes."""
    if options.checkpoint != "sqrt":
        return options.checkpoint or 0
    # A divisor is worth more than the root: what is left over takes a copy of every sequence, and a
    # second compilation of the step. This far from the root n / k + k is at most 1/4 larger.
    root = max(1, math.isqrt(n))
    return next((k for k in range(root, root // 2, -1) if n % k == 0), root)


def scan_in_blocks(
    scan: Any, step: Any, init: Any, xs: Any, n: int, k: int, reverse: bool
) -> tuple[Any, Any]:
    """As ``scan(step, init, xs, length=n)``, checkpointed every ``k`` steps.

    ``scan`` is a ``lax.scan`` with its options, and ``reverse`` is one of them.
    """
    if k == 1:  # a block is a step
        return scan(jax.checkpoint(step, prevent_cse=False), init, xs, length=n)
    n_blocks, n_rest = divmod(n, k)
    blocks = jax.tree.map(lambda x: x[: n_blocks * k].reshape(n_blocks, k, *x.shape[1:]), xs)
    rest = jax.tree.map(lambda x: x[n_blocks * k :], xs)

    def all_blocks(states: Any) -> Any:
        # Within a scan XLA cannot merge the second computation with the first: no barrier is needed.
        block = jax.checkpoint(partial(scan, step, length=k), prevent_cse=False)
        states, ys = jax.lax.scan(block, states, blocks, length=n_blocks, reverse=reverse)
        return states, jax.tree.map(lambda y: y.reshape(n_blocks * k, *y.shape[2:]), ys)

    def the_rest(states: Any) -> Any:
        return jax.checkpoint(partial(scan, step, length=n_rest))(states, rest)

    if not n_blocks or not n_rest:
        return the_rest(init) if not n_blocks else all_blocks(init)
    order = (the_rest, all_blocks) if reverse else (all_blocks, the_rest)
    states, first = order[0](init)
    states, second = order[1](states)
    parts = (second, first) if reverse else (first, second)
    return states, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *parts)
