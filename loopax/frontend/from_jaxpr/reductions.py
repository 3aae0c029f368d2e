"""Reductions along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import out_dtype, refuse, rule

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


@rule("reduce_sum", "reduce_prod")
def _sum_or_product(eqn: JaxprEqn, x: TensorVariable) -> Any:
    reduce = pt.sum if eqn.primitive.name == "reduce_sum" else pt.prod
    dtype = out_dtype(eqn)
    return reduce(x, axis=list(eqn.params["axes"]), dtype=dtype, acc_dtype=dtype)


@rule("reduce_max", "reduce_min")
def _max_or_min(eqn: JaxprEqn, x: TensorVariable) -> Any:
    return _extremum(eqn, x, largest=eqn.primitive.name == "reduce_max")


@rule("psum", "pmax", "pmin")
def _over_named_axes(eqn: JaxprEqn, *xs: TensorVariable) -> Any:
    """Collectives whose named axes ``jax.vmap`` has turned into axes of the arrays."""
    axes, name = eqn.params["axes"], eqn.primitive.name
    if eqn.params["axis_index_groups"] is not None or any(isinstance(k, str) for k in axes):
        raise refuse(eqn, "groups of an axis, and axes without a batch")
    if name == "psum":
        return [pt.sum(x, axis=list(axes), dtype=x.type.dtype, acc_dtype=x.type.dtype) for x in xs]
    return [_extremum(eqn, x, largest=name == "pmax") for x in xs]


def _extremum(eqn: JaxprEqn, x: TensorVariable, largest: bool) -> Any:
    axes, dtype = list(eqn.params["axes"]), x.type.dtype
    if dtype.startswith("complex"):
        raise refuse(eqn, "complex numbers")
    if 0 in x.type.shape:
        raise refuse(eqn, "empty arrays")
    if dtype == "bool":
        return (pt.any if largest else pt.all)(x, axis=axes)
    if not axes:
        return x
    if dtype.startswith("int") and not largest:
        # PyTensor's minimum is the negated maximum of the negated numbers: the least integer has no
        # negative.
        return pt.invert(pt.max(pt.invert(x), axis=axes))
    return (pt.max if largest else pt.min)(x, axis=axes)


def extreme_number(dtype: Any, largest: bool) -> Any:
    """The largest or the least number of a float or integer dtype; infinite for floats."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return kind.type(np.inf if largest else -np.inf)
    limits = np.iinfo(kind)
    return kind.type(limits.max if largest else limits.min)


@rule("reduce_and", "reduce_or")
def _logical(eqn: JaxprEqn, x: TensorVariable) -> Any:
    if x.type.dtype != "bool":
        raise refuse(eqn, "integers")
    reduce = pt.all if eqn.primitive.name == "reduce_and" else pt.any
    return reduce(x, axis=list(eqn.params["axes"]))


@rule("argmax", "argmin")
def _arg(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """The first index of the extremum, or of a nan if there is one, as in XLA, NumPy and the IR."""
    (axis,), largest = eqn.params["axes"], eqn.primitive.name == "argmax"
    if x.type.dtype.startswith("complex"):
        raise refuse(eqn, "complex numbers")
    x = x.astype("uint8") if x.type.dtype == "bool" else x
    if not x.type.shape[axis]:
        raise refuse(eqn, "empty arrays")
    if not largest:  # the complement of an integer is in the reverse order, and never overflows
        x = -x if x.type.dtype.startswith("float") else pt.invert(x)
    return pt.argmax(x, axis=axis).astype(out_dtype(eqn))
