"""Shifts, which the IR lacks, as products and quotients by powers of two that wrap as XLA's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant

from loopax.frontend.from_jaxpr.reading import refuse, rule


def _shift_count(eqn: Any, n: Any) -> int:
    """The number of bits by which all elements are shifted.

    Raises
    ------
    NotImportable
        It is not known, or not the same for all.
    """
    while n.owner is not None and len(n.owner.inputs) == 1:  # a constant in another shape
        n = n.owner.inputs[0]
    if not isinstance(n, Constant) or n.data.size == 0 or np.ptp(n.data):
        raise refuse(eqn, "by a number of bits that is not constant")
    return int(n.data.flat[0])


def shifted_left(x: Any, count: int) -> Any:
    """``x << count``."""
    factor = np.array(2**count % 2 ** _bits(x), dtype=f"uint{_bits(x)}").astype(x.type.dtype)
    return x * factor if 0 <= count < _bits(x) else pt.zeros_like(x)


def shifted_right(x: Any, count: int) -> Any:
    """``x >> count`` for unsigned integers."""
    if not 0 <= count < _bits(x):
        return pt.zeros_like(x)
    return x // np.array(2**count, dtype=x.type.dtype) if count else x


def _bits(x: Any) -> int:
    return 8 * np.dtype(x.type.dtype).itemsize


@rule("shift_left")
def _shift_left(eqn: Any, x: Any, n: Any) -> Any:
    return shifted_left(x, _shift_count(eqn, n))


@rule("shift_right_logical")
def _shift_right_logical(eqn: Any, x: Any, n: Any) -> Any:
    unsigned = f"uint{_bits(x)}"
    return shifted_right(x.astype(unsigned), _shift_count(eqn, n)).astype(x.type.dtype)


@rule("shift_right_arithmetic")
def _shift_right_arithmetic(eqn: Any, x: Any, n: Any) -> Any:
    count = _shift_count(eqn, n)
    if x.type.dtype.startswith("uint"):
        raise refuse(eqn, "of an unsigned integer")
    if not 0 <= count < _bits(x) - 1:  # all bits become the sign bit
        return -pt.lt(x, 0).astype(x.type.dtype)
    return x // np.array(2**count, dtype=x.type.dtype) if count else x
