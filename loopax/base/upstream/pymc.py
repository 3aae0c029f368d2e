"""Patches of `loopax.pymc` for PyMC: the functions of its JAX samplers that turn a graph into JAX.

Tried on PyMC 6.0 to 6.4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from loopax.base.upstream.patching import Patch

_MODULE = "pymc.sampling.jax"
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


def _instead(function: Callable[..., Any], module: Any, original: Any) -> Callable[..., Any]:
    return function
