"""Bits of floats: reinterpreted integers that can be expressed as arithmetic on the floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.variable import TensorVariable

from loopax.facts.elementwise import is_elementwise
from loopax.frontend.from_jaxpr.integers import one_integer
from loopax.frontend.from_jaxpr.reading import FloatBits, out_dtype, refuse, rule
from loopax.ir.ops.next_after import next_after

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn

_LOWEST = {
    "float32": -100,
    "float64": -900,
}  # exponents of which all numbers in a product are finite


@rule("bitcast_convert_type", bits=True)
def _bitcast(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """A reinterpretation of integers, or of random bits as the mantissa of a float from 1 to 2.

    The bits of floats become `FloatBits`.
    """
    target = np.dtype(eqn.params["new_dtype"])
    if isinstance(x, FloatBits):
        return _float_of(eqn, x, target)
    source = np.dtype(x.type.dtype)
    if target.itemsize != source.itemsize:
        raise refuse(eqn, "dtypes of another size")
    if target.kind in "iu" and source.kind in "iu":
        return x.astype(str(target))
    if source.kind == "f" and target.kind in "iu":
        return FloatBits(x)
    if target.kind == "f" and source.kind == "u" and (bits := _mantissa(x, target)) is not None:
        return bits.astype(str(target)) * np.array(
            2.0 ** -np.finfo(target).nmant, target
        ) + np.array(1, target)
    raise refuse(eqn, f"{source} read as {target}")


def _mantissa(x: TensorVariable, target: np.dtype[Any]) -> Any:
    """The mantissa of ``x``, if its exponent is known to equal the exponent of 1; else None."""
    bits_of_one = np.array(1, target).view(f"u{target.itemsize}")
    if not is_elementwise(x.owner, ps.OR):
        return None
    for bits, exponent in (x.owner.inputs, x.owner.inputs[::-1]):
        if one_integer(exponent) == bits_of_one and _is_below(bits, 2 ** np.finfo(target).nmant):
            return bits
    return None


def _is_below(bits: TensorVariable, limit: int) -> bool:
    """Whether ``bits`` is a quotient of an unsigned integer that is less than ``limit``."""
    while bits.owner is not None and len(bits.owner.inputs) == 1:
        bits = bits.owner.inputs[0]
    if not is_elementwise(bits.owner, ps.IntDiv):
        return False
    divisor = one_integer(bits.owner.inputs[1])
    return divisor is not None and 2 ** (8 * np.dtype(bits.type.dtype).itemsize) // divisor <= limit


def _float_of(eqn: JaxprEqn, bits: FloatBits, target: np.dtype[Any]) -> Any:
    if target.kind in "iu":
        return bits
    if str(target) != bits.x.type.dtype:
        raise refuse(eqn, f"bits of {bits.x.type.dtype} read as {target}")
    return _truncated(bits.x, bits.n_cleared) if bits.n_cleared else bits.x


def _truncated(x: Variable, n_cleared: int) -> Any:
    """Clear the lowest bits of ``x``: truncate its product with the right power of two to an integer."""
    dtype, lowest = x.type.dtype, _LOWEST[x.type.dtype]
    kept = np.finfo(dtype).nmant + 1 - n_cleared
    size = pt.abs(x)
    highest = np.finfo(dtype).maxexp - 1
    exponent = pt.clip(pt.floor(pt.log2(size)), np.array(lowest, dtype), np.array(highest, dtype))
    scale = pt.exp2(np.array(kept - 1, dtype) - exponent)
    two = np.array(2, dtype)
    # The logarithm of a number next to a power of two may be rounded to that power's.
    scale = pt.switch(pt.ge(size * scale, two**kept), scale / two, scale)
    scale = pt.switch(pt.lt(size * scale, two ** (kept - 1)), scale * two, scale)
    is_tiny = pt.lt(size, two**lowest)
    return pt.switch(is_tiny, x, pt.trunc(x * scale) / scale)


@rule("and", bits=True)
def _and(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    x, y = (y, x) if isinstance(y, FloatBits) else (x, y)
    if not isinstance(x, FloatBits):
        return pt.bitwise_and(x, y)
    mask = None if isinstance(y, FloatBits) else one_integer(y)
    n_bits = 8 * np.dtype(x.x.type.dtype).itemsize
    n_cleared = 0 if mask is None else n_bits - (mask % 2**n_bits).bit_count()
    all_ones = 2**n_bits - 1
    if mask is None or mask % 2**n_bits != all_ones >> n_cleared << n_cleared:
        raise refuse(eqn, "bits of a float other than its lowest")
    if not n_cleared <= np.finfo(x.x.type.dtype).nmant:
        raise refuse(eqn, "bits of a float other than its lowest")
    return FloatBits(x.x, max(n_cleared, x.n_cleared))


@rule("nextafter")
def _nextafter(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    if out_dtype(eqn) not in ("float32", "float64"):
        raise refuse(eqn, out_dtype(eqn))
    return next_after(x, y)
