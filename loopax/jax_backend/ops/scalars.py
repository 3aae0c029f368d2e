"""Scalar functions: PyTensor's, and a few that it lacks or gets wrong in JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.math import Erf, Log1mexp, Softplus
from pytensor.tensor.math import MulWithoutZeros

from loopax.ir.ops.masked_tangent import MaskedTangent
from loopax.jax_backend.ops.division import floor_divide, remainder
from loopax.jax_backend.ops.masked_tangent import masked_tangent
from loopax.jax_backend.ops.powers import power
from loopax.jax_backend.ops.special_functions import SPECIAL_FUNCTIONS
from loopax.jax_backend.staging.evaluate import Site
from loopax.numerics.arrays import Array
from loopax.numerics.special.forward_mode import with_slopes


def scalar_function(site: Site, op: ScalarOp, node: Apply) -> Callable[..., Any]:
    """The elementwise function of ``op`` on arrays; ``node`` has its types.

    Raises
    ------
    NotImplementedError
        Neither this file nor PyTensor's registry has one.
    """
    if compares_exactly(op, node):
        return _exact_comparison(op)
    ours = _FUNCTIONS.get(type(op))
    if type(op) in _REAL_ONLY and any(v.type.dtype.startswith("complex") for v in node.inputs):
        raise NotImplementedError(f"JAX has no {op} of complex numbers")
    if ours is not None:
        return ours
    if isinstance(op, ps.Cast) and node.inputs[0].type.dtype == "bool":
        return lambda x: convert(x, node.outputs[0].type.dtype)
    try:
        return jax_funcify(op, node=node)
    except AttributeError as error:  # PyTensor looks up its NumPy or SciPy name in JAX
        raise NotImplementedError(f"JAX has no {op}") from error


def compares_exactly(op: ScalarOp, node: Apply) -> bool:
    """Whether ``op`` compares uint64 with signed integers: NumPy does so exactly; JAX rounds to floats."""
    dtypes = {v.type.dtype for v in node.inputs}
    return type(op) in _COMPARISONS and "uint64" in dtypes and not dtypes.isdisjoint(_SIGNED)


def _exact_comparison(op: ScalarOp) -> Callable[..., Any]:

    def compare(x: Array, y: Array) -> Any:
        x, y = (jnp.asarray(z) for z in (x, y))
        above = jnp.where(x < 0, 0, 1), jnp.where(y < 0, 0, 1)
        x, y = (jax.lax.convert_element_type(z, jnp.uint64) for z in (x, y))
        same = above[0] == above[1]
        less = (above[0] < above[1]) | (same & (x < y))
        return _COMPARISONS[type(op)](less, same & (x == y))

    return compare


# Each comparison in terms of "less" and "equal", for numbers that are not nan.
_COMPARISONS: dict[type, Callable[..., Any]] = {
    ps.LT: lambda less, equal: less,
    ps.LE: lambda less, equal: less | equal,
    ps.GT: lambda less, equal: ~(less | equal),
    ps.GE: lambda less, equal: ~less,
    ps.EQ: lambda less, equal: equal,
    ps.NEQ: lambda less, equal: ~equal,
}
_SIGNED = {"int8", "int16", "int32", "int64"}


def convert(x: Array, dtype: str) -> jax.Array:
    """Convert ``x`` to ``dtype`` as NumPy does.

    A bool becomes a float by a selection between two numbers: XLA simplifies the product of a converted
    bool and ``y`` to ``select(bool, y, 0)`` (``AlgebraicSimplifier``), which is 0 for False times infinity
    or nan, where IEEE 754 and NumPy have nan.
    """
    x = jnp.asarray(x)
    new = jax.dtypes.canonicalize_dtype(dtype)
    if x.dtype == bool and jnp.issubdtype(new, jnp.inexact):
        return jnp.where(x, jnp.ones((), new), jnp.zeros((), new))
    return jax.lax.convert_element_type(x, new)


def _sign(x: Array) -> jax.Array:
    return jnp.where(x == 0, 0, jnp.sign(x))  # NumPy's is 0.0 for -0.0 too


def _complex(x: Array, y: Array) -> jax.Array:
    return jax.lax.complex(jnp.real(x), jnp.real(y))


def _complex_from_polar(r: Array, theta: Array) -> Any:
    """The complex number, or NaN for a negative radius, which PyTensor refuses."""
    r, theta = jnp.real(r), jnp.real(theta)  # integer arguments arrive as complex numbers
    r = jnp.where(r < 0, jnp.nan, r)
    return jax.lax.complex(*jnp.broadcast_arrays(r * jnp.cos(theta), r * jnp.sin(theta)))


def _round_half_away(x: Array) -> jax.Array:
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def _second(x: Array, y: Array) -> jax.Array:
    return jnp.broadcast_to(y, jnp.broadcast_shapes(jnp.shape(x), jnp.shape(y)))


def _switch(condition: Array, x: Array, y: Array) -> jax.Array:
    return jnp.where(jnp.asarray(condition).astype(bool), x, y)


def _softplus(x: Array) -> jax.Array:
    # PyTensor's is a chain of `where`, whose unused branches overflow: the derivative is NaN.
    return jnp.logaddexp(x, 0)


@jax.custom_jvp
def _log1mexp(x: Array) -> jax.Array:
    """Compute log(1 - exp(x)) for x < 0, by Maechler (2012), "Accurately computing log(1 - exp(-|a|))".

    Each branch gets a harmless value where the other one is used, so that derivatives stay finite.
    """
    small = x > -np.log(2.0)
    near = jnp.log(-jnp.expm1(jnp.where(small, x, -0.5)))
    far = jnp.log1p(-jnp.exp(jnp.where(small, -1.0, x)))
    return jnp.where(small, near, far)


@jax.custom_jvp
def _log1mexp_slope(x: Array) -> jax.Array:
    """The slope ``-exp(x) / (1 - exp(x))``: -inf at 0, whose sign `expm1` keeps; NaN above 0."""
    return jnp.where(x > 0, np.nan, -1 / jnp.abs(jnp.expm1(-x)))


_log1mexp.defjvps(lambda t, out, x: t * _log1mexp_slope(x))
# Not ``exp(-x) / expm1(-x)**2``, where both overflow.
_log1mexp_slope.defjvps(lambda t, slope, x: t * slope * (1 - slope))


def _angle(y: Array, x: Array) -> Any:
    """Compute ``arctan2``, with derivatives of 0 where squares overflow and its own would be NaN."""
    dtype = jnp.result_type(y, x)
    if dtype.kind != "f":
        return jnp.arctan2(y, x)

    def over_squares(z: Array, y: Array, x: Array) -> jax.Array:
        squares = y**2 + x**2
        is_small = squares < jnp.inf
        return jnp.where(is_small, z, 0) / jnp.where(is_small, squares, 1)

    function = with_slopes(
        jnp.arctan2, lambda y, x: over_squares(x, y, x), lambda y, x: over_squares(-y, y, x)
    )
    return function(jnp.asarray(y, dtype), jnp.asarray(x, dtype))


def _mul_without_zeros(x: Array, y: Array) -> jax.Array:
    return jnp.where(x == 0, y, jnp.where(y == 0, x, x * y))


# PyTensor's own conversions of Add, Mul, Sub, IntDiv and Mod use Python's operators if all inputs are
# scalars, also ``sum``, which starts from 0 and so stages one addition too many.
_FUNCTIONS: dict[type, Callable[..., Any]] = {
    ps.Add: lambda *xs: reduce(jnp.add, xs),
    ps.Mul: lambda *xs: reduce(jnp.multiply, xs),
    ps.Sub: jnp.subtract,
    ps.IntDiv: floor_divide,
    ps.Mod: remainder,
    ps.Pow: power,
    ps.Sign: _sign,
    ps.ArcTan2: _angle,
    ps.RoundHalfAwayFromZero: _round_half_away,
    ps.Second: _second,
    ps.Switch: _switch,
    MaskedTangent: masked_tangent,
    ps.Complex: _complex,
    Softplus: _softplus,
    Log1mexp: _log1mexp,
    MulWithoutZeros: _mul_without_zeros,
    **SPECIAL_FUNCTIONS,
}
if hasattr(ps, "ComplexFromPolar"):  # 3.3 dropped it
    _FUNCTIONS[ps.ComplexFromPolar] = _complex_from_polar
# PyTensor defines these for complex numbers, JAX does not, or wrongly.
_REAL_ONLY = {*SPECIAL_FUNCTIONS, Erf, Log1mexp}


def has_function(op: ScalarOp) -> bool:
    """Whether a scalar op runs in JAX; for a composite, all ops inside it."""
    if isinstance(op, ps.ScalarInnerGraphOp):
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
