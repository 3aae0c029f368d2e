"""Shifts, which the IR lacks, as products and quotients by powers of two that overflow as in XLA."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.known import known
from loopax.frontend.from_jaxpr.reading import FloatBits, out_dtype, refuse, rule

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn

_MOST_SHIFTED = 8


def one_integer(v: Variable) -> int | None:
    """The common value of all elements of a constant integer array; None if they differ."""
    value = known(v)
    is_one = value is not None and value.size > 0 and (value == value.flat[0]).all()
    return int(value.flat[0]) if value is not None and is_one else None


def shifted_left(x: TensorVariable, count: int) -> Any:
    """Compute ``x << count``."""
    factor = np.array(2**count % 2 ** _bits(x), dtype=f"uint{_bits(x)}").astype(x.type.dtype)
    return x * factor if 0 <= count < _bits(x) else pt.zeros_like(x)


def shifted_right(x: TensorVariable, count: int) -> Any:
    """Compute ``x >> count`` for unsigned integers."""
    if not 0 <= count < _bits(x):
        return pt.zeros_like(x)
    return x // np.array(2**count, dtype=x.type.dtype) if count else x


def _bits(x: TensorVariable) -> int:
    return 8 * np.dtype(x.type.dtype).itemsize


def _powers_of_two(
    eqn: JaxprEqn, x: TensorVariable, n: TensorVariable, most: int
) -> tuple[Any, Any]:
    """Compute ``2**n`` for each number of bits, and whether it is less than ``most``.

    Raises
    ------
    NotImportable
        There are many elements: powers come from a table, while XLA has vector code.
    """
    if np.prod(x.type.shape) > _MOST_SHIFTED:
        raise refuse(eqn, "long arrays, shifted by variable numbers of bits")
    is_less = pt.ge(n, 0) & pt.lt(n, most)
    powers = np.array([2**k for k in range(most)], dtype=f"uint{_bits(x)}").astype(x.type.dtype)
    return pt.constant(powers)[pt.switch(is_less, n, 0).astype("int64")], is_less


@rule("shift_left")
def _shift_left(eqn: JaxprEqn, x: TensorVariable, n: TensorVariable) -> Any:
    count = one_integer(n)
    if count is not None:
        return shifted_left(x, count)
    power, is_less = _powers_of_two(eqn, x, n, _bits(x))
    return pt.switch(is_less, x * power, np.array(0, x.type.dtype))


@rule("shift_right_logical", bits=True)
def _shift_right_logical(eqn: JaxprEqn, x: TensorVariable, n: TensorVariable) -> Any:
    if isinstance(x, FloatBits):
        return _sign_bit(eqn, x, n).astype(out_dtype(eqn))
    unsigned = x.astype(f"uint{_bits(x)}")
    count = one_integer(n)
    if count is not None:
        return shifted_right(unsigned, count).astype(x.type.dtype)
    power, is_less = _powers_of_two(eqn, unsigned, n, _bits(x))
    zero = np.array(0, unsigned.type.dtype)
    return pt.switch(is_less, unsigned // power, zero).astype(x.type.dtype)


@rule("shift_right_arithmetic", bits=True)
def _shift_right_arithmetic(eqn: JaxprEqn, x: TensorVariable, n: TensorVariable) -> Any:
    if isinstance(x, FloatBits):
        return -_sign_bit(eqn, x, n).astype(out_dtype(eqn))
    if x.type.dtype.startswith("uint"):
        raise refuse(eqn, "unsigned integers")
    sign_bits = -pt.lt(x, 0).astype(x.type.dtype)
    count = one_integer(n)
    if count is None:
        power, is_less = _powers_of_two(eqn, x, n, _bits(x) - 1)
        return pt.switch(is_less, x // power, sign_bits)
    if not 0 <= count < _bits(x) - 1:  # all bits become the sign bit
        return sign_bits
    return x // np.array(2**count, dtype=x.type.dtype) if count else x


def _sign_bit(eqn: JaxprEqn, bits: FloatBits, n: TensorVariable) -> Any:
    """Whether the sign bit of floats is 1, if only that bit remains; 0 for a nan."""
    x: Any = bits.x
    if isinstance(n, FloatBits) or one_integer(n) != _bits(x) - 1:
        raise refuse(eqn, "bits of a float other than its sign")
    return pt.lt(x, 0) | (pt.eq(x, 0) & pt.lt(1 / x, 0))


@rule("population_count")
def _population_count(eqn: JaxprEqn, x: TensorVariable) -> Any:
    unsigned = x.astype(f"uint{_bits(x)}")
    one = np.array(1, unsigned.type.dtype)
    ones = [shifted_right(unsigned, k) & one for k in range(_bits(x))]
    return reduce(pt.add, ones).astype(x.type.dtype)
