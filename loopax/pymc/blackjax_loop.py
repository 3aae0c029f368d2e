"""The loop in which PyMC's JAX sampler runs BlackJAX's NUTS, at once or in blocks kept by a checkpoint.

PyMC 6.4 has such a loop, written for the progress bars of BlackJAX before 1.7: it fails with 1.7.
When the oldest supported PyMC has a working loop, `inference_loop` can be removed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_TUNED = ("step_size", "inverse_mass_matrix")


class _Algorithm(NamedTuple):
    """BlackJAX's NUTS or HMC for one chain: how to tune it, and how to draw."""

    tune: Callable[[Any, Any], Any]  # a key and a position -> a state
    draw: Callable[
        [Any, Any], tuple[Any, Any]
    ]  # a state and keys -> a state, and draws with statistics


def inference_loop(
    seed: jax.Array,
    init_position: Sequence[jax.Array],
    logp_fn: Callable[..., Any],
    draws: int,
    tune: int,
    target_accept: float,
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """Draw one chain; returns the draws and the sampler's statistics under PyMC's names."""
    algorithm = _algorithm(logp_fn, tune, target_accept, **options)
    tuning, drawing = jax.random.split(seed)
    state = algorithm.tune(tuning, init_position)
    return algorithm.draw(state, jax.random.split(drawing, draws))[1]


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
    """Draw all chains, with the arguments and the result of PyMC's ``_sample_blackjax_nuts``.

    Parameters
    ----------
    run
        ``run(start, advance, 0, draws)``, `loopax.pymc.checkpoints.blocks.run_in_blocks` of a record.
        Tuning is one step of BlackJAX, and the start of the loop.
    """
    algorithm = _algorithm(logp_fn, tune, target_accept, **nuts_kwargs)
    side_by_side = jax.pmap if chain_method == "parallel" else jax.vmap
    if chains == 1:
        initial_points = [np.stack([x]) for x in initial_points]
    keys = jax.random.split(jax.random.PRNGKey(random_seed), chains)
    tuning, drawing = jax.vmap(jax.random.split, out_axes=1)(keys)
    each_draw = jax.vmap(lambda key: jax.random.split(key, draws))(drawing)
    advance = jax.jit(side_by_side(algorithm.draw))
    (positions, statistics) = run(
        lambda: side_by_side(algorithm.tune)(tuning, initial_points),
        lambda state, steps: advance(state, each_draw[:, np.minimum(steps, draws - 1)]),
        0,
        draws,
    )
    return positions, statistics, import_module("blackjax")


def _algorithm(
    logp_fn: Callable[..., Any],
    tune: int,
    target_accept: float,
    *,
    algorithm: str = "nuts",
    progress_bar: bool = False,  # BlackJAX has none
    **options: object,
) -> _Algorithm:
    blackjax = import_module("blackjax")
    if algorithm not in ("nuts", "hmc"):
        raise ValueError(f"algorithm must be 'nuts' or 'hmc', got {algorithm!r}")
    kind = getattr(blackjax, algorithm)
    adaptation = blackjax.window_adaptation(
        kind,
        logp_fn,
        target_acceptance_rate=target_accept,
        # The default stores the whole state of each step of the adaptation.
        adaptation_info_fn=import_module("blackjax.adaptation.base").get_filter_adapt_info_fn(),
        **options,
    )
    adaptation_names = inspect.signature(blackjax.window_adaptation).parameters
    kernel_options = {k: x for k, x in options.items() if k not in adaptation_names}

    def untuned(position: Sequence[jax.Array]) -> Any:
        """BlackJAX's state and parameters before its first step of tuning, which it refuses to return."""
        choices = {name: p.default for name, p in adaptation_names.items()} | options
        n = sum(x.size for x in jax.tree.leaves(position))
        variances = jnp.ones(n)
        diagonal = choices["is_mass_matrix_diagonal"]
        parameters = {
            "step_size": jnp.asarray(choices["initial_step_size"], float),
            "inverse_mass_matrix": variances if diagonal else jnp.diag(variances),
        }
        return kind.init(position, logp_fn), parameters

    def tuned(key: jax.Array, position: Sequence[jax.Array]) -> Any:
        if tune == 0:
            return untuned(position)
        (start, parameters), _ = adaptation.run(key, position, num_steps=tune)
        return start, {name: parameters[name] for name in _TUNED}

    def draw(state: Any, keys: jax.Array) -> Any:
        chain, parameters = state
        step = kind(logp_fn, **parameters, **kernel_options).step

        def one_draw(state: Any, key: jax.Array) -> Any:
            state, info = step(key, state)
            statistics = {
                "diverging": info.is_divergent,
                "energy": info.energy,
                "n_steps": info.num_integration_steps,
                "acceptance_rate": info.acceptance_rate,
                "lp": state.logdensity,
            }
            if algorithm == "nuts":
                statistics["tree_depth"] = info.num_trajectory_expansions
            return state, (state.position, statistics)

        chain, draws = jax.lax.scan(one_draw, chain, keys)
        return (chain, parameters), draws

    return _Algorithm(tuned, draw)
