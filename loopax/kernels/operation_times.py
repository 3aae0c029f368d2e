"""The times of single operations of a jaxpr, in XLA and in native code, for `loopax.kernels.cost`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from loopax.base.upstream.jax import JaxprEqn


class Times(NamedTuple):
    """Nanoseconds per element of one kind of operation."""

    xla_many: float  # vector code, except for the kinds from "sine" to "gamma"
    xla_few: float
    # Few elements in each of many rows, where fused values stay in registers. 64 rows of 500 steps of one
    # tanh take 0.06 ms this way, and 0.5 ms as native code, row by row; Runge-Kutta takes 0.34 and 0.58.
    xla_rows: float
    native_few: float  # the throughput
    native_wait: float  # on few elements: the latency, for which the reader of the result waits
    native_many: float  # vector code for all kinds but "function"


TIMES = {
    "simple": Times(0.35, 0.4, 0.08, 0.4, 1.1, 0.4),
    "root": Times(1.0, 1.5, 0.5, 1.5, 4.0, 1.5),
    "exp": Times(3.0, 14.0, 1.4, 6.0, 8.0, 1.5),
    "log": Times(3.0, 13.0, 6.0, 8.0, 12.0, 1.5),
    "tanh": Times(3.0, 11.0, 0.9, 20.0, 24.0, 1.5),
    "function": Times(3.0, 14.0, 3.0, 15.0, 20.0, 6.0),
    "sine": Times(10.0, 6.0, 5.0, 8.0, 9.0, 3.5),
    "power": Times(15.0, 15.0, 7.0, 18.0, 21.0, 4.0),
    "erf": Times(15.0, 6.0, 2.4, 8.0, 9.0, 4.0),
    "gamma": Times(40.0, 33.0, 20.0, 12.0, 15.0, 5.0),
    "product": Times(0.15, 0.3, 0.15, 0.3, 2.2, 0.3),
    "bessel": Times(23.0, 30.0, 23.0, 130.0, 130.0, 130.0),
    "polygamma": Times(95.0, 95.0, 95.0, 210.0, 210.0, 210.0),
}
# The residual of an operation on few elements, which the backward loop reads from memory: XLA takes
# twice the time of native code for the gradients of 64 rows of 500 Runge-Kutta steps. A pushforward
# reads no residuals and is counted as the program is.
RESIDUAL = 0.32
WIDE, VECTOR_WIDTH = 8, 4  # elements: "many" begins here; a register of float64 holds so many
# Multiplications of a product in a loop's step which native code leaves to BLAS and XLA runs on one
# thread. A network of 32 units and 16 rows (RNN 100 of `benchmarks`) took 0.7 to 0.9 of XLA's time,
# 48 by 48 by 48 took 1.5, and a matrix by a vector of 64 to 512 elements 0.3 to 0.05.
_BLAS_LEAST, _BLAS_MOST, _BLAS_MOST_OF_VECTORS, BLAS_PRODUCT = 4e3, 2.5e4, 1e6, 0.2
# Outside of loops, 64 rows of matrices from 600 by 26 to 1,000 by 200 by a vector took 0.04 to 0.15.
OUTER_BLAS_PRODUCT = 0.1
# In either form, Cholesky factors and triangular solves with many right sides of 80 to 200 rows took 0.03
# to 0.05 for each multiplication, by BLAS. For 500 rows native code took twice the time of LAPACK.
LEVEL_3, _ROWS, _LEAST_RIGHT_SIDES = 0.04, range(33, 257), 8

_ROOTS = {"div", "rem", "sqrt", "rsqrt", "cbrt"}
_FUNCTIONS = {
    *("exp2", "tan", "erf_inv"),
    *("sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh"),
}
_SPECIAL = {
    **dict.fromkeys(("exp", "expm1", "logistic"), "exp"),
    **dict.fromkeys(("log", "log1p"), "log"),
    "tanh": "tanh",
    **dict.fromkeys(("sin", "cos"), "sine"),
    "pow": "power",
    **dict.fromkeys(("erf", "erfc"), "erf"),
    **dict.fromkeys(("lgamma", "digamma"), "gamma"),
    **dict.fromkeys(("bessel_i0e", "bessel_i1e"), "bessel"),
    "polygamma": "polygamma",
}
# Multiplications divided by n^3, for a square matrix of length n (by m n min(m, n) for an m by n
# matrix).
_FACTORIZATIONS = {
    "cholesky": 1 / 3,
    "lu": 2 / 3,
    "qr": 4 / 3,
    "geqrf": 4 / 3,
    "householder_product": 4 / 3,
    "tridiagonal": 4 / 3,
    "hessenberg": 10 / 3,
    "eigh": 9.0,
    "svd": 20.0,
    "eig": 25.0,
    "schur": 25.0,
}
# Written into another operation's loop, or nothing at all.
FREE = {
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "convert_element_type",
    "copy",
    "stop_gradient",
    "masked_tangent",
}
INDICES = {"transpose", "rev", "slice", "squeeze"}  # in native code, arithmetic on indices
FUSED = {
    *("add", "sub", "mul", "neg", "max", "min", "abs", "sign", "integer_pow", "square", "select_n"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "floor", "ceil", "round"),
    *("is_finite", "clamp", "iota", "nextafter"),
    *_ROOTS,
    *_FUNCTIONS,
    *_SPECIAL,
}
_KINDS = {**dict.fromkeys(_ROOTS, "root"), **dict.fromkeys(_FUNCTIONS, "function"), **_SPECIAL}


def share_of_register(eqn: JaxprEqn) -> float:
    """The time of XLA for an element of a short integer, relative to an element of 8 bytes.

    A register holds more of these, but native code, whose indices have 64 bits, does not benefit: 20 steps
    of a stencil on 256 by 256 int8 took XLA 0.16 ms, on int32 0.56, and native code 0.77 and 0.66.
    """
    avals: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    types = [
        a.dtype for a in avals if isinstance(a.dtype, np.dtype)
    ]  # a random key has no NumPy dtype
    are_short = all(t.kind in "iub" and t.itemsize <= 2 for t in types)
    return max(t.itemsize for t in types) / 8 if are_short and types else 1.0


def is_for_blas(eqn: JaxprEqn, size: float) -> bool:
    """Whether an equation is a product of ``size`` multiplications that BLAS speeds up even in a loop."""
    result: Any = eqn.outvars[0].aval
    if eqn.primitive.name != "dot_general" or result.dtype.kind not in "fc":
        return False
    (summed, _), (batched, _) = eqn.params["dimension_numbers"]
    operands: list[Any] = [v.aval for v in eqn.invars]
    left, right = (math.prod(a.shape) for a in operands)
    length = math.prod(operands[0].shape[k] for k in summed)
    limit = _BLAS_MOST_OF_VECTORS if length in (left, right) else _BLAS_MOST
    return not batched and _BLAS_LEAST <= size < limit


def is_level_3(eqn: JaxprEqn, name: str) -> bool:
    """Whether an equation is a factorization or solve that uses products of large matrices."""
    if name not in ("cholesky", "triangular_solve"):
        return False
    matrix: Any = eqn.invars[0].aval
    result: Any = eqn.outvars[0].aval
    rows = matrix.shape[-1]
    # The unknown has one axis along the matrix, and one for the right sides.
    right_sides = result.shape[-1 if eqn.params.get("left_side", True) else -2]
    is_for_many = name == "cholesky" or right_sides >= _LEAST_RIGHT_SIDES
    return rows in _ROWS and is_for_many


def kind_and_size(eqn: JaxprEqn, name: str) -> tuple[str, float]:
    """The kind and the number of scalar operations of an equation."""
    operands: list[Any] = [v.aval for v in eqn.invars]
    results: list[Any] = [v.aval for v in eqn.outvars]
    shapes = [a.shape for a in operands]
    size = float(max((math.prod(a.shape) for a in results), default=1))
    if name == "dot_general":
        (summed, _), _ = eqn.params["dimension_numbers"]
        return "product", size * math.prod(shapes[0][k] for k in summed)
    if name == "conv_general_dilated":
        out_channels = shapes[1][eqn.params["dimension_numbers"].rhs_spec[0]]
        return "product", size * math.prod(shapes[1]) / out_channels
    if name.startswith("reduce_window"):
        return "simple", size * math.prod(eqn.params["window_dimensions"])
    if name in _FACTORIZATIONS:
        shortest = min(shapes[0][-2:], default=1)
        return "product", _FACTORIZATIONS[name] * math.prod(shapes[0]) * shortest
    if name == "triangular_solve":
        return "product", size * shapes[0][-1]
    if name.startswith(("reduce", "cum", "arg")):
        size = float(math.prod(shapes[0]))
    return _KINDS.get(name, "simple"), size
