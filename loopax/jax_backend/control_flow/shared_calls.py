"""Repeated calls as one JAX function, which is traced once and named in the jaxpr.

    y0 = pjit[name=filter](x0, a)
    y1 = pjit[name=filter](x1, b)

JAX differentiates and batches such a function once for all calls of one kind, and drops outputs that a call
does not read. XLA may inline it.

It is traced from its arguments alone, without facts about their values from the surrounding program: the
next call may have others. If that is not enough, each call is evaluated in place: for a shape that depends
on a value, a length known only at run time, and integers, since the surrounding program knows bounds of an
index or a trip count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from loopax.ir import Call
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics.arrays import Array

# Bytes of a value that is embedded in the function. A larger one is a traced argument.
_STATIC = 1024


def shared_call(site: Site, values: Sequence[Any]) -> list[Any] | None:
    """The outputs of a repeated call without a pullback of its own; None if it cannot be shared."""
    if not _comes_again(site) or not all(map(_is_plain, values)):
        return None
    static = {k: x for k, x in enumerate(values) if _is_part(x)}
    traced = [x for k, x in enumerate(values) if k not in static]
    if not any(map(is_traced, traced)) or not all(
        np.issubdtype(x.dtype, np.inexact) for x in traced
    ):
        return None
    parts = tuple((k, x.dtype.str, x.shape, x.tobytes()) for k, x in static.items())
    kinds = tuple((np.shape(x), str(np.result_type(x))) for x in traced)
    key = site.op, parts, kinds
    functions = site.context.functions
    if key not in functions:
        functions[key] = _function(site, static)
    if functions[key] is None:
        return None
    try:
        return list(functions[key](*traced))
    except Exception:  # if it also fails where it is evaluated in place, the error says why
        functions[key] = None
        return None


def _comes_again(site: Site) -> bool:
    calls = [node for node, _ in site.frame.plan.steps if node.op == site.op]
    return len(calls) > 1 and all(map(is_float, site.node.outputs))


def _is_plain(x: object) -> bool:
    return isinstance(x, np.ndarray | np.generic | jax.Array)


def _is_part(x: Array | np.generic) -> bool:
    return not isinstance(x, jax.Array) and x.nbytes <= _STATIC


def _function(site: Site, static: dict[int, Any]) -> Any:
    op: Call = site.op
    n = len(op.fgraph.inputs)

    def function(*traced: jax.Array) -> list[Any]:
        remaining = iter(traced)
        values = [static[k] if k in static else next(remaining) for k in range(n)]
        outs = site.run_apart(op.fgraph, values)
        if not all(isinstance(x, np.ndarray | jax.Array) for x in outs):
            raise TypeError("an output is no plain array")
        return outs

    function.__name__ = function.__qualname__ = op.name
    return jax.jit(function)
