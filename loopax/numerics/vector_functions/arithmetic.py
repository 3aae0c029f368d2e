"""Building blocks of vector functions: bits, polynomials, and exact sums."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

from numba import types
from numba.extending import intrinsic

from loopax.base.compiling.pipeline import njit_inner
from loopax.base.upstream.numba import get_host_cpu_features, ir

# A product and a sum may be one instruction, which rounds once. A division by zero does not raise.
compiled = njit_inner(error_model="numpy", fastmath={"contract"}, forceinline=True)
# For compensation of the rounding of another operation: each operation rounds as written.
compiled_as_written = njit_inner(error_model="numpy", forceinline=True)

# Without this instruction LLVM calls the C library for each `fused`, which prevents vector code.
HAS_FUSED = platform.machine() not in ("x86_64", "AMD64", "i686") or bool(
    get_host_cpu_features().get("fma")
)

# Added to a number below 2^51, it leaves the nearest integer in the low bits.
SHIFT = 1.5 * 2.0**52
SIGN_BIT = -(2**63)


def _code(write: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """The code of an intrinsic, built by ``write`` from an LLVM builder and the operands."""
    return lambda context, builder, signature, args: write(builder, *args)


@intrinsic
def bits(typing_context: object, x: object) -> Any:
    return types.int64(types.float64), _code(lambda builder, x: builder.bitcast(x, ir.IntType(64)))


@intrinsic
def from_bits(typing_context: object, n: object) -> Any:
    return types.float64(types.int64), _code(lambda builder, n: builder.bitcast(n, ir.DoubleType()))


@intrinsic
def fused(typing_context: object, a: object, b: object, c: object) -> Any:
    """``a * b + c``, rounded once."""
    return types.float64(types.float64, types.float64, types.float64), _code(ir.IRBuilder.fma)


@intrinsic
def where(typing_context: object, condition: object, x: object, y: object) -> Any:
    """``x if condition else y`` without branches, which take five times as long to compile."""
    return types.float64(types.boolean, types.float64, types.float64), _code(ir.IRBuilder.select)


@intrinsic
def nearest_integer(typing_context: object, x: object) -> Any:
    """`numpy.rint`, without the third of a second that Numba takes to resolve it."""

    def write(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
        return builder.call(builder.module.declare_intrinsic("llvm.rint", [ir.DoubleType()]), [x])

    return types.float64(types.float64), _code(write)


def polynomial(*coefficients: float) -> Any:
    """A function for ``c[0] + c[1] x + c[2] x^2 + ...``, by Estrin's scheme.

    In Horner's scheme each product waits for the previous sum.
    """

    def write(builder: ir.IRBuilder, power: ir.Value) -> ir.Value:
        terms = [ir.Constant(ir.DoubleType(), float(c)) for c in coefficients]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            joined = [
                builder.fadd(a, _product(builder, b, power), flags=("contract",)) for a, b in pairs
            ]
            terms = joined + terms[2 * len(joined) :]
            if len(terms) > 1:
                power = _product(builder, power, power)
        return terms[0]

    @intrinsic
    def value(typing_context: object, x: object) -> Any:
        return types.float64(types.float64), _code(write)

    return value


def _product(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.fmul(a, b, flags=("contract",))


def table(name: str, numbers: Sequence[float]) -> Any:
    """A function for ``numbers[n]``, which LLVM vectorizes to gathers."""

    def write(builder: ir.IRBuilder, n: ir.Value) -> ir.Value:
        kind = ir.ArrayType(ir.DoubleType(), len(numbers))
        array = builder.module.globals.get(name)
        if array is None:
            array = ir.GlobalVariable(builder.module, kind, name)
            array.global_constant, array.linkage = True, "internal"
            array.initializer = ir.Constant(kind, list(numbers))
        return builder.load(builder.gep(array, [ir.IntType(64)(0), n], inbounds=True))

    @intrinsic
    def entry(typing_context: object, n: object) -> Any:
        return types.float64(types.int64), _code(write)

    return entry


@compiled
def within(x: float, low: float, high: float) -> float:
    x = where(x < high, x, high)
    return where(x > low, x, low)


@compiled
def with_sign_of(sign: float, x: float) -> float:
    """``x``, which is not negative, with the sign of another number, which may be a zero."""
    return from_bits(bits(x) | (bits(sign) & SIGN_BIT))


@compiled_as_written
def exact_product(a: float, b: float) -> tuple[float, float]:
    """The rounded product and its rounding error."""
    product = a * b
    return product, fused(a, b, -product)


@compiled_as_written
def exact_sum(a: float, b: float) -> tuple[float, float]:
    """The rounded sum and its rounding error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@compiled_as_written
def exact_sum_with_smaller(a: float, b: float) -> tuple[float, float]:
    """An exact sum where ``a`` is 0, or no less than ``b`` in size (Dekker)."""
    total = a + b
    return total, b - (total - a)
