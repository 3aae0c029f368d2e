"""Sums and products over an axis, whose terms LLVM may take in another order.

A float sum in the order of its terms is a chain: each addition waits some four cycles for the one before,
and LLVM, which must not change the last digit, leaves the loop without vector code. Told that it may change
the order of a sum's own additions it keeps several partial sums, as NumPy does. This is no `fastmath`: nan
and infinities keep their meaning, and no other operation is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import lower_builtin, type_callable


def plus(total: Any, term: Any) -> Any:
    """``total + term``, two floats of one dtype, in a sum whose terms may be taken in any order."""
    return total + term


def times(total: Any, term: Any) -> Any:
    """``total * term``, two floats of one dtype, in a product whose terms may be taken in any order."""
    return total * term


def _compile_to(instruction: str, function: Callable) -> None:
    @type_callable(function)
    def of_types(context):  # type: ignore[no-untyped-def]  # Numba reads the signature of what follows
        def result(total, term):  # type: ignore[no-untyped-def]
            return total if isinstance(total, types.Float) and total == term else None

        return result

    @lower_builtin(function, types.Float, types.Float)
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args, flags=("reassoc",))


_compile_to("fadd", plus)
_compile_to("fmul", times)

FUNCTIONS = {f.__name__: f for f in (plus, times)}
