"""Repeated calls as one JAX function, which is traced once and named in the jaxpr.

    y0 = pjit[name=filter](x0, a)
    y1 = pjit[name=filter](x1, b)

JAX derives and batches such a function once for all calls of one kind, and drops what one of them does not
read. XLA may put it in line.

It is traced of its arguments alone, without what the program around a call knows of their values: the next
call may be given others. Where that is not enough each call is evaluated where it is: for a shape that
depends on a value, a length that only the run tells, and integers, since the program around knows between
which bounds an index or a number of steps is.
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

# Bytes of a value that is part of the function. A larger one is an argument, traced like any other.
_STATIC = 1024


def shared_call(site: Site, values: Sequence[Any]) -> list[Any] | None:
    """The outputs of a call without a pullback of its own; None where it is no function."""
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
    except Exception:  # where it is evaluated in its place it says why, if it fails there too
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
