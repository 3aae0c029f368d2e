"""Conversions between dtypes, with what XLA makes of values that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from loopax.frontend.from_jaxpr.reading import out_dtype, refuse, rule


@rule("convert_element_type")
def _convert(eqn: Any, x: Any) -> Any:
    given, wanted = x.type.dtype, out_dtype(eqn)
    if given == wanted:
        return x
    if given.startswith("complex"):
        if wanted.startswith("complex"):
            return x.astype(wanted)
        x, given = pt.real(x), "float32" if given == "complex64" else "float64"
    if wanted == "bool":
        return pt.neq(x, 0)
    if given.startswith("float") and "int" in wanted:
        return _to_integer(x, wanted)
    return x.astype(wanted)


def _to_integer(x: Any, wanted: str) -> Any:
    """To zero, the nearest integer that there is where it does not fit, and 0 where it is nan."""
    limits = np.iinfo(wanted)
    # The least float beyond the greatest integer: a power of two, which each float has.
    beyond = np.array(2.0 ** (limits.max.bit_length()), dtype=x.type.dtype)
    lowest = np.array(limits.min, dtype=x.type.dtype)
    fits = pt.ge(x, lowest) & pt.lt(x, beyond)
    converted = pt.switch(fits, x, np.array(0, dtype=x.type.dtype)).astype(wanted)
    least, most = (np.array(limit, dtype=wanted) for limit in (limits.min, limits.max))
    clipped = pt.switch(pt.ge(x, beyond), most, pt.switch(pt.lt(x, lowest), least, converted))
    return pt.switch(pt.isnan(x), np.array(0, dtype=wanted), clipped)


@rule("reduce_precision")
def _reduce_precision(eqn: Any, x: Any) -> Any:
    info = np.finfo(x.type.dtype) if x.type.dtype.startswith("float") else None
    bits = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    if info is None or bits != (info.nexp, info.nmant):
        raise refuse(eqn, "to fewer bits")
    return x
