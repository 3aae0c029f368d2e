"""Steps of a loop that stops early, for its value, its derivatives and its traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

from loopax.numerics import manual_axes


@dataclass(frozen=True)
class Steps:
    """Parameters that all calls of a loop share.

    ``step(consts, i, rows, states)`` gives the next states, the rows of the traces, and whether to stop.
    ``bound`` is None for a loop without a bound.
    """

    step: Callable[..., tuple[Any, Any, Any]]
    bound: int | None
    reverse: bool = False


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Given:
    """Values that a call of a loop depends on; all can be differentiated, batched and traced.

    ``n_steps`` is None if it equals the bound.
    """

    n_steps: Any
    sequences: Any
    states: Any
    consts: Any


def steps_asked_for(steps: Steps, inputs: Given) -> jax.Array:
    if inputs.n_steps is not None:
        return inputs.n_steps
    assert steps.bound is not None
    return counted(steps.bound)


def counted(n: ArrayLike) -> jax.Array:
    return jnp.asarray(n, jax.dtypes.canonicalize_dtype("int64"))


def index_of_step(steps: Steps, inputs: Given, k: jax.Array) -> jax.Array:
    return steps_asked_for(steps, inputs) - 1 - k if steps.reverse else k


def row(steps: Steps, inputs: Given, k: jax.Array) -> tuple[Any, Any]:
    """The index of step ``k``, and its row of each sequence."""
    i = index_of_step(steps, inputs, k)
    take = jax.lax.dynamic_index_in_dim
    return i, jax.tree.map(lambda x: take(x, i, keepdims=False), inputs.sequences)


def is_float(x: jax.Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def while_loop(steps: Steps, inputs: Given) -> tuple[Any, Any, Any]:
    """Run ``lax.while_loop``; return final states, the number of steps, and whether the body stopped."""
    n_steps = steps_asked_for(steps, inputs)

    def going(carry: tuple[jax.Array, Any, jax.Array]) -> jax.Array:
        count, _, stopped = carry
        return (count < n_steps) & ~stopped

    def body(carry: tuple[jax.Array, Any, jax.Array]) -> Any:
        count, states, _ = carry
        states, _, stop = steps.step(inputs.consts, *row(steps, inputs, count), states)
        return count + 1, states, stop

    start = counted(0), inputs.states, jnp.asarray(False)
    count, states, stopped = manual_axes.while_loop(going, body, start)
    return states, count, stopped


# Under ``jax.vmap`` a batched predicate makes JAX compute both sides of a ``lax.cond``, and choose the
# whole carry of a ``lax.while_loop`` again in each step. Here the predicate is one number for the batch,
# and selection keeps the values of a row that is done.


@custom_vmap
def any_row(going: jax.Array) -> jax.Array:
    """Return the flag ``going``; in a batch, whether any row has it set, as an unbatched flag."""
    return going


@any_row.def_vmap
def _of_a_batch(axis_size: int, in_batched: Sequence[bool], going: jax.Array) -> Any:
    # Bind it again, for an outer batch.
    return any_row(jnp.any(going, 0) if in_batched[0] else going), False


def chosen(going: jax.Array, a: object, b: object) -> Any:
    """Select the leaves of ``a`` where ``going``, else the leaves of ``b``."""
    return jax.tree.map(partial(jnp.where, going), a, b)
