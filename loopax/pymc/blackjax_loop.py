"""The loop by which PyMC's JAX sampler runs BlackJAX's NUTS.

PyMC 6.4 has such a loop, written for the progress bars of BlackJAX before 1.7: it fails with 1.7.
Remove this file when the oldest supported PyMC has a loop that runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import jax


def inference_loop(
    seed: Any,
    init_position: Any,
    logp_fn: Any,
    draws: int,
    tune: int,
    target_accept: float,
    *,
    algorithm: str = "nuts",
    progress_bar: bool = False,  # BlackJAX has none
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """Draw one chain; returns the draws and the sampler's statistics under PyMC's names."""
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
    tuning, drawing = jax.random.split(seed)
    (start, tuned), _ = adaptation.run(tuning, init_position, num_steps=tune)
    step = kind(logp_fn, **tuned).step

    def one_draw(state: Any, key: Any) -> Any:
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

    return jax.lax.scan(one_draw, start, jax.random.split(drawing, draws))[1]
