"""Programs of PyTensor in the steps of JAX's loops: a kernel there is read into the IR with the loop.

An outer loop around a kernel, such as a sampler around a model's log-density, would otherwise stay a JAX
loop, as a kernel is a primitive without a rule. A step of NumPyro's NUTS takes XLA as long as the gradient
of a GARCH model takes in native code. Only ``loops="native"`` asks for it.
"""

from __future__ import annotations

from typing import Any

import jax

from loopax.base.upstream.jax import Jaxpr, JaxprEqn, jaxpr_as_fun
from loopax.kernels.native_call.equations import (
    CUSTOM_DERIVATIVES,
    inner_equations,
    is_loop,
    with_jaxprs,
)
from loopax.kernels.primitive import jaxpr_of, kernel_jvp_p, kernel_p


def with_kernels_opened(eqn: JaxprEqn) -> Any:
    """Replace each kernel in a step of a loop by a call of its form in JAX's operations.

    Other equations are returned unchanged, kernels outside of loops too: they are native already.
    """
    if is_loop(eqn):
        try:
            return _opened(eqn)
        except Exception:  # a loop that JAX runs is never refused: with its kernels it stays in JAX
            return eqn
    if eqn.primitive.name in CUSTOM_DERIVATIVES or not inner_equations(eqn):
        return eqn
    return with_jaxprs(eqn, lambda jaxpr: _each(jaxpr, with_kernels_opened))


def _opened(eqn: JaxprEqn) -> Any:
    """Open a kernel, and those in the jaxprs of any other equation.

    JAX's operations raise no error for an index out of bounds, as native code does: such a kernel stays.
    """
    if eqn.primitive in (kernel_p, kernel_jvp_p):
        return eqn if eqn.params["kernel"].checks_indices else _as_call(eqn)
    return with_jaxprs(eqn, lambda jaxpr: _each(jaxpr, _opened)) if inner_equations(eqn) else eqn


def _each(jaxpr: Jaxpr, change: Any) -> Jaxpr:
    """Change each equation of a jaxpr; the jaxpr itself where none changes."""
    equations = list(map(change, jaxpr.eqns))
    is_same = all(new is old for new, old in zip(equations, jaxpr.eqns, strict=True))
    return jaxpr if is_same else jaxpr.replace(eqns=equations)


def _as_call(eqn: JaxprEqn) -> Any:
    avals: list[Any] = [v.aval for v in eqn.invars]
    types = tuple((aval.shape, aval.dtype) for aval in avals)
    function = jaxpr_as_fun(jaxpr_of(eqn.params["kernel"], eqn.params["batch"], types))
    call = jax.make_jaxpr(jax.jit(function))(*avals)
    (equation,) = call.jaxpr.eqns
    return equation.replace(invars=eqn.invars, outvars=eqn.outvars, source_info=eqn.source_info)
