"""``JAX``: the record of this backend."""

from __future__ import annotations

import jax
from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import UnsupportedOpError
from loopax.calling.backend import Backend
from loopax.jax_backend.callable import chunks
from loopax.jax_backend.callable.context import JaxContext
from loopax.jax_backend.callable.forms import LOOPS
from loopax.jax_backend.callable.function import JaxFunction
from loopax.jax_backend.callable.stages import JaxTracedFunction, hvp, jvp, transformed_by
from loopax.jax_backend.callable.support import unsupported_ops
from loopax.jax_backend.staging.callback import refusal
from loopax.jax_backend.staging.context import CHECKS, PARALLEL
from loopax.lowering import OPTIMIZERS, PASSES


def _all_unsupported(
    error: UnsupportedOpError, graph: FunctionGraph, on_missing: str
) -> UnsupportedOpError:
    return refusal([*error.ops, *unsupported_ops(graph, on_missing)])


JAX = Backend(
    name=JaxFunction.backend_name,
    function=JaxFunction,
    traced=JaxTracedFunction,
    context=JaxContext,
    passes=PASSES,
    transformations={
        **{f.__name__: transformed_by(f) for f in (jax.grad, jax.value_and_grad, chunks.vmap)},
        "jacobian": transformed_by(jax.jacrev),  # pickled by its own name
        "hessian": transformed_by(jax.hessian),
        **{f.__name__: f for f in (jvp, hvp, jax.vjp)},
    },
    choices={"checks": CHECKS, "loops": LOOPS, "parallel": PARALLEL, "optimize": OPTIMIZERS},
    donates=True,
    keeps_calls=True,
    after_fork="numba",  # XLA's threads do not exist in a forked process: it would wait for them forever
    refusal=_all_unsupported,
)
