"""Sums that are compared, which XLA on the CPU must not compute twice with different roundings.

A squared distance ``|a|^2 + |b|^2 - 2 a.b`` is 0 or a rounding error on the diagonal. XLA recomputes it in
each fusion that reads it, with different roundings, so that the mask of ``clip(d, 0)`` and the masked value
disagree: gradients of Gaussian-process kernels came out wrong by three orders of magnitude, in PyTensor's
JAX mode too. Behind a barrier it is computed once, for all readers.
"""

from __future__ import annotations

import jax
import pytensor.scalar as ps
from jax.experimental.xla_metadata import set_xla_metadata
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle

from loopax.base.upstream.jax import default_platform
from loopax.facts.elementwise import function_of
from loopax.jax_backend.staging.evaluate import Site

_COMPARING = (ps.Clip, ps.ScalarMaximum, ps.ScalarMinimum, ps.GE, ps.GT, ps.LE, ps.LT)
_SUMS = (ps.Add, ps.Sub)
_LINEAR = (*_SUMS, ps.Mul, ps.TrueDiv, ps.Neg, ps.Cast)  # ops that propagate the sign of a sum
_MOST = 16  # most nodes that are searched, up or down

# XLA of JAX 0.10 removes barriers on the CPU before it decides what to duplicate, but leaves a call alone
# that it may not inline. Remove this with that release.
_BARRIERS_VANISH = jax.__version_info__ < (0, 11)
_barrier = jax.jit(jax.lax.optimization_barrier)


def held(x: jax.Array) -> jax.Array:
    """Make XLA compute ``x`` once for all its readers."""
    if _BARRIERS_VANISH and default_platform() == "cpu":
        with set_xla_metadata(inlineable="false"):
            return _barrier(x)
    return jax.lax.optimization_barrier(x)


def computed_once(site: Site) -> bool:
    """Whether the elementwise ``site`` computes a matrix from a sum, and the matrix is compared."""
    op = getattr(site.op, "scalar_op", None)
    return (
        isinstance(op, _LINEAR)
        and site.out.type.ndim >= 2
        and _is_compared(site, site.out)
        and _has_sum(site.out)
    )


def _is_compared(site: Site, v: Variable) -> bool:
    readers, stack = site.frame.plan.readers, [v]
    for _ in range(_MOST):
        if not stack:
            return False
        for node in readers.get(stack.pop(), ()):
            op = function_of(node.op)
            if isinstance(op, _COMPARING):
                return True
            if isinstance(op, DimShuffle | ps.Cast):
                stack.append(node.outputs[0])
    return False


def _has_sum(v: Variable) -> bool:
    stack = [v]
    for _ in range(_MOST):
        if not stack:
            return False
        node = stack.pop().owner
        op = node and function_of(node.op)
        if isinstance(op, _SUMS):
            return True
        if node and isinstance(op, (*_LINEAR, DimShuffle)):
            stack += node.inputs
    return False
