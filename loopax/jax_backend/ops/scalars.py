"""Scalar functions: PyTensor's, and the few that it lacks in JAX or gets wrong there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.math import Log1mexp, Softplus
from pytensor.tensor.math import MulWithoutZeros

from loopax.jax_backend.evaluate import Site


def scalar_function(site: Site, op: Any, node: Apply) -> Callable[..., Any]:
    """The elementwise function of ``op`` on arrays; ``node`` has its types.

    Raises
    ------
    NotImplementedError
        Neither this file nor PyTensor's registry has one.
    """
    ours = _FUNCTIONS.get(type(op))
    if ours is not None:
        return ours
    try:
        return jax_funcify(op, node=node)
    except AttributeError as error:  # PyTensor looks up its NumPy or SciPy name in JAX
        raise NotImplementedError(f"JAX has no {op}") from error


def _int_div(x: Any, y: Any) -> Any:
    # NumPy, and so PyTensor, defines integer division by 0 as 0; XLA gives -1.
    if jnp.result_type(x, y).kind in "biu":
        return jnp.where(y == 0, 0, jnp.floor_divide(x, jnp.where(y == 0, 1, y)))
    return jnp.floor_divide(x, y)


def _mod(x: Any, y: Any) -> Any:
    if jnp.result_type(x, y).kind in "biu":
        return jnp.where(y == 0, 0, jnp.mod(x, jnp.where(y == 0, 1, y)))
    return jnp.mod(x, y)


def _round_half_away(x: Any) -> Any:
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def _second(x: Any, y: Any) -> Any:
    return jnp.broadcast_to(y, jnp.broadcast_shapes(jnp.shape(x), jnp.shape(y)))


def _switch(condition: Any, x: Any, y: Any) -> Any:
    return jnp.where(jnp.asarray(condition).astype(bool), x, y)


def _softplus(x: Any) -> Any:
    # PyTensor's is a chain of `where` whose unused branches overflow: the derivative is NaN.
    return jnp.logaddexp(x, 0)


def _log1mexp(x: Any) -> Any:
    """log(1 - exp(x)) for x < 0, by Maechler (2012), "Accurately computing log(1 - exp(-|a|))".

    Each branch sees a harmless value where the other one is used, so that derivatives stay finite.
    """
    small = x > -np.log(2.0)
    near = jnp.log(-jnp.expm1(jnp.where(small, x, -0.5)))
    far = jnp.log1p(-jnp.exp(jnp.where(small, -1.0, x)))
    return jnp.where(small, near, far)


def _mul_without_zeros(x: Any, y: Any) -> Any:
    return jnp.where(x == 0, y, jnp.where(y == 0, x, x * y))


def _fold(function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTensor's sums and products take any number of terms."""

    def folded(*xs: Any) -> Any:
        out = xs[0]
        for x in xs[1:]:
            out = function(out, x)
        return out

    return folded


# PyTensor's own conversions of Add, Mul, Sub, IntDiv and Mod go through Python's operators where all
# inputs are scalars, ``sum`` among them, which starts from 0 and so stages one addition too many.
_FUNCTIONS: dict[type, Callable[..., Any]] = {
    ps.Add: _fold(jnp.add),
    ps.Mul: _fold(jnp.multiply),
    ps.Sub: jnp.subtract,
    ps.IntDiv: _int_div,
    ps.Mod: _mod,
    ps.RoundHalfAwayFromZero: _round_half_away,
    ps.Second: _second,
    ps.Switch: _switch,
    ps.Complex: jax.lax.complex,
    Softplus: _softplus,
    Log1mexp: _log1mexp,
    MulWithoutZeros: _mul_without_zeros,
}


def has_function(op: Any) -> bool:
    """Whether a scalar op runs in JAX, the ops inside a composite included."""
    if isinstance(op, ps.ScalarInnerGraphOp if hasattr(ps, "ScalarInnerGraphOp") else ps.Composite):
        return all(has_function(node.op) for node in op.fgraph.toposort())
    if type(op) in _FUNCTIONS:
        return True
    inputs = [ps.float64() for _ in range(max(op.nin, 1))]
    try:
        node = op.make_node(*inputs)
    except Exception:  # it wants integers: those ops (bitwise, shifts) have NumPy names
        return True
    try:
        jax_funcify(op, node=node)
    except (NotImplementedError, AttributeError):
        return False
    return True
