"""Sums, products and extremes over an axis, whose terms LLVM may reorder.

A float sum in order is a chain: each addition waits some four cycles for the previous one, and LLVM,
which must not change the last digit, does not vectorize the loop. With permission to reorder the
additions of the sum it computes several partial sums, as NumPy does. This is not `fastmath`: nan and
infinities keep their meaning, and no other operation changes.

Reordered extremes must propagate nan, which LLVM's own instructions do: the maximum of 2000 numbers takes a
tenth of the time that comparisons take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import lower_builtin

from loopax.base.upstream.numba import CPUContext, Signature, ir
from loopax.numba_backend.runtime.instructions import result_type


def plus(total: complex, term: complex) -> Any:
    """Add two floats of one dtype in a sum that may be reordered."""
    return total + term


def times(total: complex, term: complex) -> Any:
    """Multiply two floats of one dtype in a product that may be reordered."""
    return total * term


def maximum(largest: float, term: float) -> Any:
    """The larger of two floats of one dtype, nan where one is nan."""
    return np.maximum(largest, term)


def minimum(smallest: float, term: float) -> Any:
    """The smaller of two floats of one dtype, nan where one is nan."""
    return np.minimum(smallest, term)


def _compile_to(instruction: Callable[[Any, Any], Any], function: Callable) -> None:
    """Compile ``function`` to ``instruction``, from an LLVM builder and two arguments."""

    @result_type(function)
    def of_terms(total, term):  # type: ignore[no-untyped-def]  # Numba reads the signature
        return total if isinstance(total, types.Float) and total == term else None

    @lower_builtin(function, types.Float, types.Float)
    def generate(
        context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> Any:
        return instruction(builder, args)


def _intrinsic(name: str) -> Callable[[Any, Any], Any]:
    def call(builder: ir.IRBuilder, args: Sequence[ir.Value]) -> Any:
        kind = args[0].type
        signature = ir.FunctionType(kind, [kind, kind])
        intrinsic = builder.module.declare_intrinsic(name, [kind], signature)
        # Without an order of zeros, of which either may be the largest: half the instructions.
        return builder.call(intrinsic, args, fastmath=("nsz",))

    return call


_compile_to(lambda builder, args: builder.fadd(*args, flags=("reassoc",)), plus)
_compile_to(lambda builder, args: builder.fmul(*args, flags=("reassoc",)), times)
_compile_to(_intrinsic("llvm.maximum"), maximum)
_compile_to(_intrinsic("llvm.minimum"), minimum)

FUNCTIONS = {f.__name__: f for f in (plus, times, maximum, minimum)}
