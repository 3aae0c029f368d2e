"""Expressions of the common scalar ops, for operands of given dtypes.

Operands are cast to the dtype of the result first, as in NumPy: float32 stays float32, int8 is not divided
in float32, and int64 with uint64 is float64. Integers are computed in 64 bits, and the caller truncates the
result to its size, which wraps around as in NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.math import (
    Erf,
    Erfc,
    Erfcx,
    Erfinv,
    GammaLn,
    Log1mexp,
    PolyGamma,
    Psi,
    Sigmoid,
    Softplus,
    TriGamma,
)
from pytensor.tensor.math import MulWithoutZeros
from pytensor.tensor.type import complex_dtypes

from loopax.ir.ops.next_after import NextAfter
from loopax.ir.ops.threefry import Threefry
from loopax.ir.ops.total_order import TotalOrder
from loopax.numba_backend.emit.expressions import (
    FALSE,
    Expr,
    call,
    dtype_name,
    expr,
    joined,
    literal,
)
from loopax.numerics.vector_functions import HAS_FUSED

_NAMED_AS_IN_NUMPY: tuple[type, ...] = (
    *(ps.Sqrt, ps.Exp, ps.Exp2, ps.Expm1, ps.Log, ps.Log2, ps.Log10, ps.Log1p),
    *(ps.Sin, ps.Cos, ps.Tan, ps.ArcSin, ps.ArcCos, ps.ArcTan),
    *(ps.Sinh, ps.Cosh, ps.Tanh, ps.ArcSinh, ps.ArcCosh, ps.ArcTanh, ps.Floor, ps.Ceil, ps.Trunc),
)
# {0}, {1}, ... are the operands, in the dtype of the result; {T} converts to that dtype.
_FLOATS: dict[type, str] = {
    **{kind: f"np.{kind.__name__.lower()}({{0}})" for kind in _NAMED_AS_IN_NUMPY},
    ps.TrueDiv: "{0} / {1}",
    ps.Reciprocal: "{T}(1.0) / {0}",
    ps.ArcTan2: "np.arctan2({0}, {1})",
    ps.RoundHalfToEven: "np.rint({0})",
    ps.RoundHalfAwayFromZero: "np.floor({0} + {T}(0.5)) if {0} > 0 else np.ceil({0} - {T}(0.5))",
    Sigmoid: "{T}(1.0) / ({T}(1.0) + np.exp(-{0}))",
    Softplus: (
        "np.exp({0}) if {0} < -37.0 else np.log1p(np.exp({0})) if {0} < 18.0 "
        "else {0} + np.exp(-{0}) if {0} < 33.3 else {0}"
    ),
    Log1mexp: "np.log1p(-np.exp({0})) if {0} < -0.6931471805599453 else np.log(-np.expm1({0}))",
    Erf: "math.erf({0})",
    Erfc: "math.erfc({0})",
    GammaLn: "math.lgamma({0}) if {0} != -np.inf else {0}",  # SciPy's
    TriGamma: "{T}(tri_gamma(np.float64({0})))",  # PyTensor's is Python
    PolyGamma: "{T}(poly_gamma(np.float64({0}), np.float64({1})))",  # and so is this one
    MulWithoutZeros: "{1} if {0} == 0 else {0} if {1} == 0 else {0} * {1}",
    ps.IntDiv: "floor_divide({0}, {1})",
    ps.Mod: "remainder({0}, {1})",
    ps.Sign: "np.sign({0}) + {T}(0.0)",  # not -0.0
    NextAfter: "np.nextafter({0}, {1})",
}
# PyTensor's rewrites apply these to complex numbers too, and compare them, which Numba refuses.
_COMPLEX = {kind: _FLOATS[kind].replace("{0} <", "{0}.real <") for kind in (Softplus, Log1mexp)}
# Names in `numerics/vector_functions`, for loops over elements, which LLVM vectorizes. In a step of a
# recurrence the C library has less latency (GARCH: 18 us, and 25 with these).
VECTORIZED: dict[type, str] = {
    ps.Exp: "exp",
    ps.Expm1: "expm1",
    ps.Log: "log",
    ps.Log1p: "log1p",
    ps.Tanh: "tanh",
    Sigmoid: "sigmoid",
    Softplus: "softplus",
    Log1mexp: "log1mexp",
    GammaLn: "gammaln",
    Psi: "psi",
    TriGamma: "tri_gamma",
}
if HAS_FUSED:
    VECTORIZED |= {
        ps.Sin: "sin",
        ps.Cos: "cos",
        ps.Pow: "power",
        Erf: "erf",
        Erfc: "erfc",
        Erfcx: "erfcx",
        Erfinv: "erfinv",
    }
# The number of elements in locals from which a loop of vector code is faster than a call of the C library
# for each. With a store and a load for each element, 8 take 28 ns (exp), 33 (log) and 38 (tanh); the C
# library takes 29, 20 and 71, and for 4 of them half of that.
_FEW, _FEW_OF_FAST, _FAST = 5, 12, (ps.Exp, ps.Log)
_FAST_OF_SINGLES = {ps.Sin, ps.Cos}  # the C library's float32 takes 4 ns, as these do for float64
_NUMBERS: dict[type, str] = {
    ps.Sub: "{0} - {1}",
    ps.Neg: "-{0}",
    ps.Sqr: "{0} * {0}",
    ps.Abs: "abs({0})",
    ps.Sign: "np.sign({0})",
    ps.ScalarMaximum: "np.maximum({0}, {1})",
    ps.ScalarMinimum: "np.minimum({0}, {1})",
    ps.Real: "{0}",
    ps.Imag: "{T}(0)",
    ps.Clip: "{1} if {0} < {1} else {2} if {0} > {2} else {0}",
}
_INTS: dict[type, str] = {
    Threefry: "threefry({0}, {1}, {2}, {3})",
    ps.AND: "{0} & {1}",
    ps.OR: "{0} | {1}",
    ps.XOR: "{0} ^ {1}",
    ps.Invert: "~{0}",
    # Division by zero gives zero, as in NumPy.
    ps.IntDiv: "{0} // {1} if {1} != 0 else {1}",
    ps.Mod: "{0} % {1} if {1} != 0 else {1}",
}
_SIGNED: dict[type, str] = {
    # The least integer divided by -1 overflows: the processor traps, which ends the process.
    ps.IntDiv: "-{0} if {1} == -1 else {0} // {1} if {1} != 0 else {1}",
    ps.Mod: "{T}(0) if {1} == -1 else {0} % {1} if {1} != 0 else {1}",
}
# Division by a power of two: a shift or a mask, both of which round down as the quotient does.
_BY_NUMBER = {ps.IntDiv: "{0} // {1}", ps.Mod: "{0} % {1}"}  # neither 0 nor -1
_BITS = {ps.IntDiv: "{0} >> {T}({bits})", ps.Mod: "{0} & ({1} - {T}(1))"}
# Numba takes a large number for a negative one.
_UNSIGNED: dict[type, str] = {ps.Sign: "{0} != 0", ps.Abs: "{0}"}
_BOOL_FOLDS = {ps.Add: " | ", ps.Mul: " & "}
_BOOLS: dict[type, str] = {
    ps.AND: "{0} & {1}",
    ps.OR: "{0} | {1}",
    ps.XOR: "{0} != {1}",
    ps.Invert: "not {0}",
    ps.ScalarMaximum: "{0} | {1}",
    ps.ScalarMinimum: "{0} & {1}",
    ps.Real: "{0}",
    ps.Imag: "False",
    ps.EQ: "{0} == {1}",
    ps.NEQ: "{0} != {1}",
}
# Comparisons of operands in their own dtypes; the result is a bool.
_COMPARISONS: dict[type, str] = {
    ps.LT: "{0} < {1}",
    ps.LE: "{0} <= {1}",
    ps.GT: "{0} > {1}",
    ps.GE: "{0} >= {1}",
    ps.EQ: "{0} == {1}",
    ps.NEQ: "{0} != {1}",
}
_ROUNDINGS = (ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero)
_ANGLE = getattr(ps.basic, "Angle", None)  # PyTensor 3.3 has it no more
# Results for a negative signed and an unsigned integer; Numba would compare both as floats, too
# coarsely.
_NEGATIVE_FIRST: dict[type, bool] = {
    ps.LT: True,
    ps.LE: True,
    ps.GT: False,
    ps.GE: False,
    ps.EQ: False,
    ps.NEQ: True,
}
_NEGATIVE_LAST = {**_NEGATIVE_FIRST, ps.LT: False, ps.LE: False, ps.GT: True, ps.GE: True}
_TESTS = {ps.IsNan: "np.isnan({0})", ps.IsInf: "np.isinf({0})"}
_ORDER = {TotalOrder: "place_in_order({0})"}  # of floats as they are

REAL = {"float32", "float64"}
_INTEGERS = {f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)}
_SIGNED_INTEGERS = {x for x in _INTEGERS if x.startswith("i")}
PLAIN = REAL | _INTEGERS | {"bool"}
FOLDS: dict[type, Callable[[Expr, Expr], Expr]] = {ps.Add: operator.add, ps.Mul: operator.mul}


def expression_of(
    op: ScalarOp,
    operands: Sequence[Expr],
    dtypes: Sequence[str],
    out: str,
    in_elements: bool = False,
) -> Expr | None:
    """The op as an expression of the dtype ``out``, before truncation to its size."""
    kind, kinds = type(op), set(dtypes)
    if kind in _COMPLEX and out in complex_dtypes and kinds == {out}:
        return _filled(_COMPLEX[kind], operands, out)
    if kind is ps.Complex and kinds <= PLAIN:
        return call(
            "complex", *(cast(x, d, "float64") for x, d in zip(operands, dtypes, strict=True))
        )
    if not {*kinds, out} <= PLAIN:
        return None
    if kind in _COMPARISONS and kinds != {"bool"}:
        if "uint64" in kinds and not kinds.isdisjoint(_SIGNED_INTEGERS):
            return _exact_comparison(kind, operands, dtypes)
        pairs = zip(operands, dtypes, strict=True)
        return expr(
            _COMPARISONS[kind], *(cast(x, d, "int64") if d == "bool" else x for x, d in pairs)
        )
    if kind in _ORDER:
        return expr(_ORDER[kind], *operands) if kinds <= REAL else None
    if kind in _TESTS:
        return expr(_TESTS[kind], *operands) if kinds <= REAL else FALSE
    if kind is ps.Switch:
        # Both operands are locals; the condition may be any number.
        if_true, if_false = (cast(x, d, out) for x, d in zip(operands[1:], dtypes[1:], strict=True))
        return expr("{} if {} else {}", if_true, operands[0], if_false)
    if kind in _COMPARISONS:
        return expr(_BOOLS[kind], *operands) if kind in _BOOLS else None
    operands = [cast(x, d, out) for x, d in zip(operands, dtypes, strict=True)]
    if kind is ps.Pow and (product := _product_for_power(operands[0], operands[1], out)):
        return product
    if in_elements and out == "float64" and kind in VECTORIZED:
        return call(VECTORIZED[kind], *operands)
    if in_elements and out == "float32" and kind in VECTORIZED.keys() - _FAST_OF_SINGLES:
        # Computed in float64, which is right to the last place of float32.
        return call(VECTORIZED[kind], *(cast(x, out, "float64") for x in operands)).astype(out)
    if kind is ps.Pow:
        if out in REAL:
            return expr("{0} ** {1}", *operands)
        return call("int_power", *operands).astype(out)  # the function returns uint64
    if kind in _BITS and out in _INTEGERS and (bits := _power_of_two(operands[1])) is not None:
        return _filled(_BITS[kind].replace("{bits}", str(bits)), operands, out)
    if kind in _BY_NUMBER and out in _INTEGERS and operands[1].value not in (None, 0, -1):
        return _filled(_BY_NUMBER[kind], operands, out)
    if kind is _ANGLE:
        if out not in REAL or kinds & REAL:
            return None
        return expr("{1} if {0} < 0 else {2}", *operands, literal(np.pi, out), literal(0, out))
    if kind in FOLDS:
        return (
            joined(operands, _BOOL_FOLDS[kind]) if out == "bool" else reduce(FOLDS[kind], operands)
        )
    if out == "bool":
        table = _BOOLS
    elif out in REAL:
        table = {**_NUMBERS, **_FLOATS}
    else:
        table = {**_NUMBERS, **_INTS, **(_UNSIGNED if out.startswith("u") else _SIGNED)}
        if kind in _ROUNDINGS:
            return operands[0]
    return _filled(table[kind], operands, out) if kind in table else None


def _power_of_two(x: Expr) -> int | None:
    """The exponent of a constant power of two; None for any other expression."""
    n = None if x.value is None else int(x.value)
    return n.bit_length() - 1 if n is not None and n > 0 and not n & (n - 1) else None


def _exact_comparison(kind: type, operands: Sequence[Expr], dtypes: Sequence[str]) -> Expr:
    """Compare uint64 with a signed integer by value, as NumPy does."""
    signed = 0 if dtypes[1] == "uint64" else 1
    below = (_NEGATIVE_FIRST if signed == 0 else _NEGATIVE_LAST)[kind]
    unsigned = [cast(x, d, "uint64") for x, d in zip(operands, dtypes, strict=True)]
    return expr(
        "{} if {} < 0 else {}", below, operands[signed], expr(_COMPARISONS[kind], *unsigned)
    )


def _filled(template: str, operands: Sequence[Expr], out: str) -> Expr:
    """Fill ``template`` with the operands, and ``{T}`` with the conversion to the dtype ``out``."""
    return expr(template.replace("{T}", "" if out == "float64" else dtype_name(out)), *operands)


def _product_for_power(base: Expr, exponent: Expr, out: str) -> Expr | None:
    """Small integral powers as products, which compilers generate too."""
    n = exponent.value
    if n not in (1, 2, 3, 4, -1, -2, -3, -4) or (n < 0 and out not in REAL):
        return None
    square = base * base
    product = (base, square, square * base, square * square)[int(abs(n)) - 1]
    return product if n > 0 else expr("{} / {}", literal(1, out), product)


def cast(x: Expr, source: str, target: str) -> Expr:
    """Convert ``x`` from the dtype ``source`` to the dtype ``target``."""
    if source == target:
        return x
    if target == "bool":
        return expr("{} != 0", x)
    converted = x.astype(target)
    return converted if x.value is None else Expr(converted.text, value=x.value)


def is_vector_function(op: Op) -> bool:
    """Whether ``op`` is a function of one number with vector code."""
    return type(op) in VECTORIZED and op.nin == 1  # type: ignore[attr-defined]


def is_worth_a_loop(op: Op, n: int) -> bool:
    """Whether ``op`` of ``n`` elements in locals is faster as a loop over vectors."""
    return is_vector_function(op) and n >= (_FEW_OF_FAST if isinstance(op, _FAST) else _FEW)
