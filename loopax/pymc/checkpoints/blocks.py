"""A loop of a JAX sampler in blocks of steps, whose draws and state are kept after a block.

    advance(state, [0, ..., 24]), advance(state, [25, ..., 49]), ...

Blocks begin at the same steps in every run, and a step depends only on the state and its own number: so
the programs and the draws are equal, wherever a run was stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from loopax.pymc.checkpoints.folder import CheckpointError, Record

_STEPS = 25  # of one block: one call of a compiled program
# Seconds between two writes: at least this, and at least this share of the time since the start. So a
# run of an hour has some hundred files, and loses at most a fiftieth of its work.
_SECONDS, _SHARE = 1.0, 0.02

Advance = Callable[[Any, np.ndarray], tuple[Any, Any]]


class Cadence:
    """The times at which a run writes."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time to write; if so, the next time is counted from now."""
        now = time.monotonic()
        if now - self._last < max(_SECONDS, _SHARE * (now - self._start)):
            return False
        self._last = now
        return True


def run_in_blocks(
    record: Record, start: Callable[[], Any], advance: Advance, n_tuning: int, n_draws: int
) -> Any:
    """The outputs of ``advance`` for all draws, joined along their second axis.

    Parameters
    ----------
    start
        Computes the state before the first step, a pytree of arrays; it is traced, not run, where the
        state is read from the record.
    advance
        ``advance(state, steps)`` returns the state after the steps of these numbers and their outputs, a
        pytree of arrays with the chains along the first axis, the steps along the second. The first
        ``n_tuning`` steps tune, and their outputs are not kept. All blocks have one length, so that one
        program runs them: the last one may go on after the end.
    """
    n_steps = n_tuning + n_draws
    shapes = jax.eval_shape(start)
    if record.state is None:
        state, done = start(), 0
        record.append({}, _named(state, done))
    else:
        state, done = _restored(record.state, shapes)
    written: list[Any] = [list(block.values()) for block in record.blocks()]
    pending: list[list[np.ndarray]] = []
    cadence = Cadence()
    for begin in range(done, n_steps, _STEPS):
        steps = np.arange(begin, begin + _STEPS)
        state, outputs = jax.block_until_ready(advance(state, steps))
        drawn = slice(max(n_tuning - begin, 0), min(n_steps - begin, _STEPS))
        if drawn.start < drawn.stop:
            pending.append([np.asarray(x)[:, drawn] for x in jax.tree.leaves(outputs)])
        if cadence.is_due() or begin + _STEPS >= n_steps:
            block = _concatenated(pending)
            record.append({str(k): x for k, x in enumerate(block)}, _named(state, begin + _STEPS))
            written += [block] if block else []
            pending = []
    outputs = jax.eval_shape(lambda: advance(state, np.arange(_STEPS))[1])
    return jax.tree.unflatten(jax.tree.structure(outputs), _concatenated(written))


def _concatenated(blocks: list[list[np.ndarray]]) -> list[np.ndarray]:
    return [np.concatenate(xs, axis=1) for xs in zip(*blocks, strict=True)]


_DONE = "steps"


def _named(state: object, done: int) -> dict[str, np.ndarray]:
    leaves = {str(k): np.asarray(x) for k, x in enumerate(jax.tree.leaves(state))}
    return {**leaves, _DONE: np.array(done)}


def _restored(arrays: dict[str, np.ndarray], shapes: object) -> tuple[Any, int]:
    leaves, structure = jax.tree.flatten(shapes)
    stored = [arrays.get(str(k)) for k in range(len(leaves))]
    if len(arrays) != len(leaves) + 1 or any(
        x is None or x.shape != leaf.shape or x.dtype != leaf.dtype
        for x, leaf in zip(stored, leaves, strict=True)
    ):
        raise CheckpointError("The state in the folder belongs to another sampler.")
    state = jax.tree.unflatten(structure, [jax.numpy.asarray(x) for x in stored])
    return state, int(arrays[_DONE])
