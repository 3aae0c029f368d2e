"""``Scan`` that stops, or whose number of steps is traced, and ``Loop`` -> ``lax.while_loop``.

JAX batches a ``lax.while_loop`` by keeping the states of the rows that are done: under ``jax.vmap``
each row stops on its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.type import TensorType

from loopax.ir import Loop, Scan
from loopax.ir.errors import DynamicShapeError
from loopax.ir.evaluate import check_lengths
from loopax.jax_backend.evaluate import Site
from loopax.jax_backend.lists import RaggedList, as_row
from loopax.jax_backend.registry import rule
from loopax.jax_backend.static import is_traced, no_number
from loopax.jax_backend.step import STATE, initial_states, next_state, rows_of, scan_step


def while_loop(site: Site, args: Any) -> tuple[tuple[Any, ...], Any, Any]:
    """The final states, the number of steps taken, and whether the body stopped the loop."""
    op: Scan = site.op
    if any(isinstance(x, RaggedList) for x in args.sequences):
        raise DynamicShapeError(
            f"{op} takes one row of a list a step, and the rows of the list have unequal shapes: "
            "lax.while_loop runs one step on all rows. Pad them to one shape."
        )
    counter = jax.dtypes.canonicalize_dtype("int64")
    bound = args.n_steps
    if not is_traced(bound):
        check_lengths(op, int(bound), args.sequences)
        bound = np.asarray(min(int(bound), np.iinfo(counter).max), counter)  # of 32 bits, perhaps
    start = (
        jnp.zeros((), counter),
        initial_states(args.states, op.args.states),
        jnp.asarray(False),
    )
    if (
        not is_traced(bound) and bound == 0
    ):  # lax would trace a step, and there is no row to give it
        return start[1], start[0], start[2]
    sequences = [jax.tree.map(jnp.asarray, rows_of(x)) for x in args.sequences]
    step = scan_step(site, args.consts)

    def going(carry: Any) -> Any:
        i, _, stopped = carry
        return (i < bound) & ~stopped

    def body(carry: Any) -> Any:
        i, states, _ = carry
        k = bound - 1 - i if op.options.reverse else i
        rows = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, k, keepdims=False), sequences)
        states, _, stop = step(k, rows, states, ())
        return i + 1, states, jnp.asarray(op.stops and stop, bool)

    n_done, finals, stopped = jax.lax.while_loop(going, body, start)
    if not is_traced(args.n_steps):
        return finals, n_done, stopped
    # A traced number of steps cannot raise where it is negative: what comes out is no number.
    legal = [
        jnp.where(bound >= 0, x, no_number(x.dtype)) if isinstance(v.type, TensorType) else x
        for x, v in zip(finals, op.args.states, strict=True)
    ]
    return tuple(legal), jnp.where(bound >= 0, n_done, no_number(n_done.dtype)), stopped


@rule(Loop)
def loop_rule(site: Site, go: Any, *values: Any) -> tuple[Any, ...]:
    op: Loop = site.op
    k, inner = op.n_states, op.fgraph.inputs
    consts = values[k:]
    origins = [*[STATE] * k, *site.node.inputs[1 + k :]]

    def body(carry: Any) -> Any:
        _, states = carry
        given = [as_row(x, v) for x, v in zip([*states, *consts], inner, strict=True)]
        *nexts, going = site.run(op.fgraph, given, origins)
        found = [next_state(x, s, v) for x, s, v in zip(nexts, states, inner[:k], strict=True)]
        return jnp.asarray(going, bool), tuple(found)

    start = jnp.asarray(go, bool), initial_states(values[:k], inner[:k])
    return jax.lax.while_loop(lambda carry: carry[0], body, start)[1]
