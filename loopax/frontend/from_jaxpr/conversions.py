"""Conversions between dtypes, with XLA's results for values that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import out_dtype, refuse, rule

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


@rule("convert_element_type")
def _convert(eqn: JaxprEqn, x: TensorVariable) -> Any:
    source, target = x.type.dtype, out_dtype(eqn)
    if source == target:
        return x
    if source.startswith("complex"):
        if target.startswith("complex"):
            return x.astype(target)
        x, source = pt.real(x), "float32" if source == "complex64" else "float64"
    if target == "bool":
        return pt.neq(x, 0)
    if source.startswith("float") and "int" in target:
        return _to_integer(x, target)
    return x.astype(target)


def _to_integer(x: TensorVariable, target: str) -> Any:
    """Truncate ``x`` to an integer; out of range the nearest one of the dtype, and 0 for nan."""
    limits = np.iinfo(target)
    # The least float above the greatest integer: a power of two, which every float dtype represents.
    beyond = np.array(2.0 ** (limits.max.bit_length()), dtype=x.type.dtype)
    lowest = np.array(limits.min, dtype=x.type.dtype)
    fits = pt.ge(x, lowest) & pt.lt(x, beyond)
    converted = pt.switch(fits, x, np.array(0, dtype=x.type.dtype)).astype(target)
    least, most = (np.array(limit, dtype=target) for limit in (limits.min, limits.max))
    clipped = pt.switch(pt.ge(x, beyond), most, pt.switch(pt.lt(x, lowest), least, converted))
    return pt.switch(pt.isnan(x), np.array(0, dtype=target), clipped)


@rule("reduce_precision")
def _reduce_precision(eqn: JaxprEqn, x: TensorVariable) -> Any:
    info = np.finfo(x.type.dtype) if x.type.dtype.startswith("float") else None
    bits = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    if info is None or bits != (info.nexp, info.nmant):
        raise refuse(eqn, "fewer bits")
    return x
