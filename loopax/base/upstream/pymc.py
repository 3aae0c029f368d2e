"""Patches of `loopax.pymc` for PyMC: functions of its JAX samplers that turn a graph into JAX, and loops
over draws. How well its step methods suit a variable.

Tried on PyMC 6.0 to 6.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from loopax.base.upstream.patching import Patch

_MODULE = "pymc.sampling.jax"
JAX_LOOPS = {"blackjax": "_sample_blackjax_nuts", "numpyro": "_sample_numpyro_nuts"}
LOOPS = ("_sample_many", "_mp_sample", "_sample_population")
_ITS_OWN = "PyMC's own conversion runs, without loopax"


def jax_sampler_patches(
    *, logp: Callable[..., Any], graph: Callable[..., Any], blackjax_loop: Callable[..., Any]
) -> list[Patch]:
    """Patches that replace PyMC's functions by the arguments, which have the same signatures."""
    functions = {
        "get_jaxified_logp": logp,
        "get_jaxified_graph": graph,
        "_blackjax_inference_loop": blackjax_loop,
    }
    return [Patch(_MODULE, name, partial(_instead, f), _ITS_OWN) for name, f in functions.items()]


def loop_patches(loops: Mapping[str, Callable[..., Any]]) -> list[Patch]:
    """Patches of the loops over draws: ``loops[name](original, **arguments)`` in place of each.

    The names are in `JAX_LOOPS` and `LOOPS`.
    """
    return [
        Patch(
            _MODULE if name in JAX_LOOPS.values() else "pymc.sampling.mcmc",
            name,
            partial(_around, loop),
            "checkpoint= knows no other loop of this sampler",
            required=True,
        )
        for name, loop in loops.items()
    ]


def _around(loop: Callable[..., Any], module: object, original: object) -> Callable[..., Any]:
    return partial(loop, original)


def _instead(function: Callable[..., Any], module: object, original: object) -> Callable[..., Any]:
    return function


def competence(step: Any, variable: object, is_differentiable: bool) -> Any:
    """The suitability of a step method for a variable, as ``pm.sample`` compares them."""
    return step._competence(variable, is_differentiable)
