"""NumPyro's NUTS in blocks of steps that a checkpoint keeps.

NumPyro's own loop, `MCMC.run`, tunes without a stop and draws all at once. Its kernel is a function of a
state, which holds the random key and all of the adaptation: it can be stopped at any step of either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import jax
import numpy as np


def sample_in_blocks(
    run: Callable[..., Any],
    *,
    tune: int,
    draws: int,
    chains: int,
    chain_method: str,
    target_accept: float,
    random_seed: int,
    initial_points: Sequence[Any],
    nuts_kwargs: dict[str, Any],
    logp_fn: Callable[..., Any],
    **_: object,
) -> tuple[Any, dict[str, Any], Any]:
    """Draw all chains, with the arguments and the result of PyMC's ``_sample_numpyro_nuts``.

    Parameters
    ----------
    run
        ``run(start, advance, tune, draws)``, `loopax.pymc.checkpoints.blocks.run_in_blocks` of a record.
    """
    numpyro = import_module("numpyro")
    infer = import_module("numpyro.infer")
    # PyMC's defaults.
    options = {
        "adapt_step_size": True,
        "adapt_mass_matrix": True,
        "dense_mass": False,
        **nuts_kwargs,
    }
    kernel = infer.NUTS(potential_fn=logp_fn, target_accept_prob=target_accept, **options)
    side_by_side = jax.pmap if chain_method == "parallel" else jax.vmap
    key = jax.random.PRNGKey(random_seed)
    if chains == 1:
        keys, initial_points = key[None], [np.stack([x]) for x in initial_points]
    else:
        keys = jax.random.split(key, chains)

    def start(key: jax.Array, position: Sequence[jax.Array]) -> Any:
        return kernel.init(key, tune, position, (), {})

    def one_step(state: Any, _: object) -> Any:
        state = kernel.sample(state, (), {})
        return state, (state.z, _statistics(state))

    @jax.jit
    def advance(state: Any, steps: jax.Array) -> Any:
        loop = partial(jax.lax.scan, one_step, length=len(steps))
        return side_by_side(loop)(state)

    positions = [jax.numpy.asarray(x) for x in initial_points]
    z, statistics = run(lambda: side_by_side(start)(keys, positions), advance, tune, draws)
    statistics["tree_depth"] = np.log2(statistics["n_steps"]).astype(int) + 1
    return z, statistics, numpyro


def _statistics(state: Any) -> dict[str, Any]:
    """The statistics of a step under PyMC's names."""
    return {
        "diverging": state.diverging,
        "n_steps": state.num_steps,
        "lp": state.potential_energy,
        "energy": state.energy,
        "step_size": state.adapt_state.step_size,
        "acceptance_rate": state.accept_prob,
    }
