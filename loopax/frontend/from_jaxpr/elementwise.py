"""Elementwise primitives on floats, and primitives with one meaning on all dtypes."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.integers import one_integer
from loopax.frontend.from_jaxpr.reading import refuse, rule
from loopax.ir.ops.total_order import total_order

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn

_FLOATS = {
    "exp": pt.exp,
    "exp2": pt.exp2,
    "expm1": pt.expm1,
    "log": pt.log,
    "log2": pt.log2,
    "log1p": pt.log1p,
    "sin": pt.sin,
    "cos": pt.cos,
    "tan": pt.tan,
    "asin": pt.arcsin,
    "acos": pt.arccos,
    "atan": pt.arctan,
    "atan2": pt.arctan2,
    "sinh": pt.sinh,
    "cosh": pt.cosh,
    "tanh": pt.tanh,
    "asinh": pt.arcsinh,
    "acosh": pt.arccosh,
    "atanh": pt.arctanh,
    "sqrt": pt.sqrt,
    "rsqrt": lambda x: pt.reciprocal(pt.sqrt(x)),
    "one_minus_square": lambda x: 1 - x**2,
    "logistic": pt.sigmoid,
    "erf": pt.erf,
    "erfc": pt.erfc,
    "erf_inv": pt.erfinv,
    "lgamma": lambda x: pt.switch(pt.isinf(x), pt.abs(x), pt.gammaln(x)),
    "digamma": lambda x: pt.switch(pt.eq(x, 0), np.array(-np.inf, x.type.dtype), pt.psi(x)),
    "floor": pt.floor,
    "ceil": pt.ceil,
}
_ALL = {
    "add": pt.add,
    "add_any": pt.add,
    "sub": pt.sub,
    "mul": pt.mul,
    "max": pt.maximum,
    "min": pt.minimum,
    "clamp": lambda low, x, high: pt.minimum(pt.maximum(x, low), high),
    "is_finite": lambda x: ~(pt.isnan(x) | pt.isinf(x)),
    "neg": pt.neg,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "stop_gradient": lambda x: x,
    "masked_tangent": lambda x, mask: x,
    "optimization_barrier": lambda *xs: list(xs),
    "complex": pt.complex,
    "real": pt.real,
    "imag": pt.imag,
    "conj": pt.conj,
    "lt": pt.lt,
    "le": pt.le,
    "gt": pt.gt,
    "ge": pt.ge,
    "or": pt.bitwise_or,
    "xor": pt.bitwise_xor,
    "not": pt.invert,
    # XLA divides by the shape 0 in its series, which it sums up to 1.
    "igamma": lambda a, x: pt.switch(
        pt.eq(a, 0) & (x < 1), np.array(np.nan, x.type.dtype), pt.gammainc(a, x)
    ),
    "igammac": pt.gammaincc,
    "regularized_incomplete_beta": pt.betainc,
}


def _require_float(eqn: JaxprEqn, x: TensorVariable) -> Any:
    if not x.type.dtype.startswith("float"):
        raise refuse(eqn, x.type.dtype)
    return x


def _float_function(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    _require_float(eqn, inputs[0])
    return _FLOATS[eqn.primitive.name](*inputs)


def _function(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    return _ALL[eqn.primitive.name](*inputs)


rule(*_FLOATS)(_float_function)
rule(*_ALL)(_function)
rule("copy", "copy_p", "stop_gradient", "optimization_barrier", keys=True)(_function)


@rule("eq")
def _eq(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    # A rewrite would fold ``x == x`` to True, which is wrong for nan.
    return ~pt.isnan(x) if x is y and x.type.dtype.startswith("float") else pt.eq(x, y)


@rule("ne")
def _ne(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    return pt.isnan(x) if x is y and x.type.dtype.startswith("float") else pt.neq(x, y)


@rule("lt_to", "le_to", "eq_to")
def _in_total_order(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    """Comparisons in IEEE's total order, which tells -0 from 0 and nans from each other."""
    compare = {"lt_to": pt.lt, "le_to": pt.le, "eq_to": pt.eq}[eqn.primitive.name]
    is_float = x.type.dtype.startswith("float")
    return compare(total_order(x), total_order(y)) if is_float else compare(x, y)


@rule("abs")
def _abs(eqn: JaxprEqn, x: TensorVariable) -> Any:
    if x.type.dtype.startswith(
        "complex"
    ):  # XLA's vector code is faster: Mandelbrot took 1.3 natively
        raise refuse(eqn, "complex numbers")
    return pt.abs(x)


@rule("sign")
def _sign(eqn: JaxprEqn, x: TensorVariable) -> Any:
    if x.type.dtype.startswith("complex"):
        raise refuse(eqn, "complex numbers")
    # The sign of a zero is the zero itself, with its sign.
    return pt.switch(pt.eq(x, 0), x, pt.sign(x)) if x.type.dtype.startswith("float") else pt.sign(x)


@rule("round")
def _round(eqn: JaxprEqn, x: TensorVariable) -> Any:
    if not x.type.dtype.startswith("float"):
        raise refuse(eqn, x.type.dtype)
    if int(eqn.params["rounding_method"]) == 1:
        return pt.round(x, mode="half_to_even")
    # PyTensor rounds 0.0 to -0.0, whose reciprocal differs.
    return pt.switch(pt.eq(x, 0), x, pt.round(x, mode="half_away_from_zero"))


@rule("square")
def _square(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """A square as XLA computes it: the difference of two squares of a complex number is a product."""
    if not x.type.dtype.startswith("complex"):
        return pt.sqr(x)
    a, b = pt.real(x), pt.imag(x)
    return pt.complex((a - b) * (a + b), 2 * a * b).astype(x.type.dtype)


@rule("integer_pow")
def _integer_pow(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """A power by repeated squaring, as in XLA."""
    n = eqn.params["y"]
    if n < 0 and not x.type.dtype.startswith(("float", "complex")):
        raise refuse(eqn, "negative powers of integers")
    factors, power, remaining = [], x, abs(n)
    while remaining:
        factors += [power] if remaining & 1 else []
        remaining >>= 1
        power = power * power if remaining else power
    product = reduce(pt.mul, factors) if factors else pt.ones_like(x)
    return product if n >= 0 else pt.reciprocal(product)


@rule("pow")
def _pow(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    return pt.pow(_require_float(eqn, x), y.astype(x.type.dtype))


@rule("div")
def _div(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    if x.type.dtype.startswith(("float", "complex")):
        return pt.true_div(x, y)
    if x.type.dtype == "bool":
        raise refuse(eqn, "bool")
    # XLA rounds a quotient towards zero, the IR down; division by zero gives -1, all bits set, in XLA.
    quotient = pt.int_div(x, y)
    if not x.type.dtype.startswith("uint"):
        is_inexact = pt.neq(quotient * y, x) & (pt.lt(x, 0) ^ pt.lt(y, 0))
        quotient = quotient + is_inexact.astype(x.type.dtype)
    return pt.switch(pt.eq(y, 0), np.array(-1).astype(x.type.dtype), quotient)


@rule("rem")
def _rem(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    """A remainder with the sign of ``x``, also for a zero; the IR's has the sign of ``y``."""
    if x.type.dtype.startswith("float"):
        remainder = pt.mod(pt.abs(x), pt.abs(y))
        signed = pt.switch(pt.lt(x, 0), -remainder, remainder)
        return pt.switch(pt.lt(pt.abs(x), pt.abs(y)), x, signed)
    if x.type.dtype == "bool":
        raise refuse(eqn, "bool")
    remainder = pt.mod(x, y)
    if not x.type.dtype.startswith("uint"):
        is_other = pt.neq(remainder, 0) & (pt.lt(x, 0) ^ pt.lt(y, 0))
        remainder = pt.switch(is_other, remainder - y, remainder)
    return pt.switch(pt.eq(y, 0), x, remainder)


@rule("select_n", keys=True)
def _select_n(eqn: JaxprEqn, which: TensorVariable, *cases: TensorVariable) -> Any:
    n_inner_axes = cases[0].type.ndim - which.type.ndim  # axes of keys, or all axes for a scalar
    if (case := one_integer(which)) is not None:
        return cases[min(max(case, 0), len(cases) - 1)]
    which = which.dimshuffle([*range(which.type.ndim), *["x"] * n_inner_axes])
    if which.type.dtype == "bool":
        return pt.switch(which, cases[1], cases[0])
    chosen = cases[-1]
    for k, case in reversed([*enumerate(cases[:-1])]):
        chosen = pt.switch(pt.le(which, k), case, chosen)
    return chosen


@rule("polynomial")
def _polynomial(eqn: JaxprEqn, x: TensorVariable, *coefficients: TensorVariable) -> Any:
    """Horner's rule, from the highest power; if there are many, XLA does it in a loop from 0."""
    is_loop = len(coefficients) > (eqn.params.get("unroll") or 8)
    starts = [pt.zeros_like(x)] if is_loop else []
    return reduce(lambda total, c: total * x + c, [*starts, *reversed(coefficients)])


@rule("cbrt")
def _cbrt(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """A power, refined by a step of Newton's method for its last digits."""
    size = pt.abs(_require_float(eqn, x))
    root = size ** np.array(1 / 3, x.type.dtype)
    better = root - (root - size / root / root) / 3
    is_plain = pt.gt(size, 0) & pt.lt(size, np.array(np.inf, x.type.dtype))
    return pt.switch(is_plain, pt.sign(x) * better, x)


@rule("bessel_i0e", "bessel_i1e")
def _bessel(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """``exp(-abs(x))`` times the modified Bessel function of order 0, which is even, or 1, which is odd."""
    order, dtype = int(eqn.primitive.name == "bessel_i1e"), x.type.dtype
    size = pt.abs(_require_float(eqn, x))
    is_large = pt.gt(size, np.array(1e5, dtype))  # SciPy's function becomes nan there
    values = pt.ive(np.array(order, dtype), pt.switch(is_large, np.array(1, dtype), size))
    y = np.array(1 / 8, dtype) / size
    series = 1 - y * (3 + y * 7.5) if order else 1 + y * (1 + y * 4.5)
    values = pt.switch(is_large, series / pt.sqrt(np.array(2 * np.pi, dtype) * size), values)
    return pt.switch(pt.lt(x, 0), -values, values) if order else values


@rule("polygamma")
def _polygamma(eqn: JaxprEqn, n: TensorVariable, x: TensorVariable) -> Any:
    """The derivatives of digamma; nan, as in XLA, at infinity and at poles where the sign changes."""
    values = pt.polygamma(n.astype("int64"), _require_float(eqn, x))
    is_nan = pt.neq(n, pt.floor(n)) | pt.lt(n, 0)
    is_even = pt.eq(pt.mod(n, 2), 0)
    is_nan = is_nan | (is_even & pt.le(x, 0) & pt.eq(x, pt.floor(x)))
    is_nan = is_nan | (pt.gt(n, 0) & pt.eq(x, np.array(np.inf, x.type.dtype)))
    values = pt.switch(is_nan, np.array(np.nan, x.type.dtype), values)
    is_first = pt.eq(n, 0) & pt.eq(x, 0)
    return pt.switch(is_first, np.array(-np.inf, x.type.dtype), values)
