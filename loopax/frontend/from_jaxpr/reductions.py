"""Reductions of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from loopax.frontend.from_jaxpr.reading import out_dtype, refuse, rule
from loopax.frontend.from_jaxpr.shapes import reshaped


@rule("reduce_sum")
def _sum(eqn: Any, x: Any) -> Any:
    dtype = out_dtype(eqn)
    return pt.sum(x, axis=list(eqn.params["axes"]), dtype=dtype, acc_dtype=dtype)


@rule("reduce_prod")
def _prod(eqn: Any, x: Any) -> Any:
    dtype = out_dtype(eqn)
    return pt.prod(x, axis=list(eqn.params["axes"]), dtype=dtype, acc_dtype=dtype)


@rule("reduce_max")
def _max(eqn: Any, x: Any) -> Any:
    return _extremum(eqn, x, pt.max, pt.maximum, largest=True)


@rule("reduce_min")
def _min(eqn: Any, x: Any) -> Any:
    return _extremum(eqn, x, pt.min, pt.minimum, largest=False)


def _extremum(eqn: Any, x: Any, reduce: Any, of_two: Any, largest: bool) -> Any:
    axes, dtype = list(eqn.params["axes"]), x.type.dtype
    if dtype.startswith("complex"):
        raise refuse(eqn, "of complex numbers")
    if 0 in x.type.shape:
        raise refuse(eqn, "of an empty array")
    if dtype == "bool":
        return (pt.any if largest else pt.all)(x, axis=axes)
    return reduce(x, axis=axes) if axes else x


@rule("reduce_and", "reduce_or")
def _logical(eqn: Any, x: Any) -> Any:
    if x.type.dtype != "bool":
        raise refuse(eqn, "of integers")
    reduce = pt.all if eqn.primitive.name == "reduce_and" else pt.any
    return reduce(x, axis=list(eqn.params["axes"]))


@rule("argmax", "argmin")
def _arg(eqn: Any, x: Any) -> Any:
    (axis,), largest = eqn.params["axes"], eqn.primitive.name == "argmax"
    if x.type.dtype == "bool" or x.type.dtype.startswith("complex"):
        raise refuse(eqn, f"of {x.type.dtype}")
    if not x.type.shape[axis]:
        raise refuse(eqn, "of an empty array")
    if x.type.dtype.startswith("float"):
        return _first_extremum(x, axis, largest).astype(out_dtype(eqn))
    index = pt.argmax(x, axis=axis) if largest else _first_extremum(x, axis, largest)
    return index.astype(out_dtype(eqn))


def _first_extremum(x: Any, axis: int, largest: bool) -> Any:
    """The first index of the extremum, or of a nan, if there is one."""
    best = (pt.max if largest else pt.min)(x, axis=axis, keepdims=True)
    is_best = pt.eq(x, best)
    if x.type.dtype.startswith("float"):
        is_best = is_best | pt.isnan(x)
    n = x.type.shape[axis]
    indices = reshaped(
        pt.constant(np.arange(n)), [n if k == axis else 1 for k in range(x.type.ndim)]
    )
    return pt.min(pt.switch(is_best, indices, np.int64(n - 1)), axis=axis)
