"""Loops and branches of a batch that go on while any of its rows does.

Under ``jax.vmap`` a batched predicate makes JAX compute both sides of a ``lax.cond``, and choose the
whole carry of a ``lax.while_loop`` anew in each step. Here the predicate is one number for the batch,
and what belongs to a row that is done is kept by selection.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


@custom_vmap
def any_row(going: Any) -> Any:
    """``going``, a flag; in a batch whether any of its rows has it set, which is not batched."""
    return going


@any_row.def_vmap
def _of_a_batch(axis_size: int, in_batched: Any, going: Any) -> Any:
    # Once more, for the batches that this one is in.
    return any_row(jnp.any(going, 0) if in_batched[0] else going), False


def chosen(going: Any, a: Any, b: Any) -> Any:
    """The leaves of ``a`` where ``going``, else those of ``b``."""
    return jax.tree.map(partial(jnp.where, going), a, b)
