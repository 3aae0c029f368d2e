"""The op ``ScalarLoop`` on whole arrays: the small loop inside derivatives of special functions.

PyTensor writes the derivatives of ``gammainc``, ``betainc`` and ``hyp2f1`` as series summed inside
one scalar op. Here every element has its own state, and stops on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from pytensor.scalar.loop import ScalarLoop

from loopax.numerics import manual_axes
from loopax.numerics.special.forward_mode import differentiable

# The number of steps, the states, and which elements are done.
State: TypeAlias = tuple[jax.Array, Sequence[jax.Array], jax.Array]


def scalar_loop(
    op: ScalarLoop, values: Sequence[ArrayLike], step_outputs: Callable[[Sequence[Any]], list[Any]]
) -> list[Any]:
    """The final states, and for a loop with ``until``, whether it came true for each element.

    ``step_outputs`` evaluates the graph of a step for its states and constants.
    """
    n_updates = len(op.outputs) - int(op.is_while)
    dtypes = [v.type.dtype for v in op.fgraph.inputs]
    n_steps, *operands = jnp.broadcast_arrays(*values)
    arrays = [jnp.asarray(x, dtype=d) for x, d in zip(operands, dtypes, strict=True)]

    def loop(n_steps: jax.Array, *inputs: jax.Array) -> list[Any]:
        carry, constants = inputs[:n_updates], inputs[n_updates:]

        def going(state: State) -> Any:
            i, _, done = state
            return jnp.any(~done & (i < n_steps))

        def step(state: State) -> Any:
            i, states, done = state
            outs = step_outputs([*states, *constants])
            live = ~done & (i < n_steps)
            nexts = [jnp.where(live, a, b) for a, b in zip(outs[:n_updates], states, strict=True)]
            return i + 1, nexts, done | (live & outs[-1]) if op.is_while else done

        # A loop of no steps did not fail: `until` counts as reached.
        done = jnp.zeros(n_steps.shape, dtype=bool)
        _, finals, reached = manual_axes.while_loop(
            going, step, (jnp.asarray(0, n_steps.dtype), list(carry), done)
        )
        return [*finals, reached | (n_steps <= 0)] if op.is_while else list(finals)

    return list(differentiable(loop)(n_steps, *arrays))
