"""Sorting, and the largest elements."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.type import complex_dtypes
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.jax import jaxpr_text, search_jaxpr
from loopax.frontend.from_jaxpr.reading import function_rule, out_dtype, refuse, rule

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn

_MOST_OF_TOP = 8  # each element takes a search; for more, sorting is faster


@rule("sort")
def _sort(eqn: JaxprEqn, *operands: TensorVariable) -> Any:
    """Sort the operands stably by the keys, the first ones, last key first."""
    axis, keys = eqn.params["dimension"], operands[: eqn.params["num_keys"]]
    if any(x.type.dtype.startswith("complex") for x in keys):
        raise refuse(eqn, "complex numbers")
    x, *others = (x.astype("uint8") if x.type.dtype == "bool" else x for x in keys)
    if len(operands) == 1:
        return pt.sort(x, axis=axis).astype(out_dtype(eqn))
    order = None
    for key in (*reversed(others), x):
        next_order = pt.argsort(_in_order(key, order, axis), axis=axis, stable=True)
        order = next_order if order is None else _in_order(order, next_order, axis)
    return [_in_order(v, order, axis) for v in operands]


def _in_order(x: TensorVariable, order: TensorVariable | None, axis: int) -> Any:
    """The elements of ``x`` along an axis in this order."""
    if order is None:
        return x
    lines = [
        pt.constant(np.arange(n).reshape([n if j == k else 1 for j in range(x.type.ndim)]))
        for k, n in enumerate(x.type.shape)
    ]
    # As in an ``argsort``, which sorts the indices along with the elements.
    if isinstance(x, Constant) and np.array_equal(
        x.data, np.broadcast_to(lines[axis].data, x.data.shape)
    ):
        return order.astype(x.type.dtype)
    index = tuple(order if k == axis else line for k, line in enumerate(lines))
    return x[index]


@function_rule("searchsorted")
def _searchsorted(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    """``jnp.searchsorted``, or a batch of it, by bisection.

    Imported equation by equation, with JAX's comparison of floats as fifteen operations, it takes ten times
    as long.
    """
    dtypes = {v.type.dtype for v in inputs}
    if len(inputs) != 2 or len(dtypes) != 1 or not dtypes.isdisjoint(complex_dtypes):
        return None
    avals, text = tuple(v.aval for v in eqn.invars), jaxpr_text(eqn.params["jaxpr"])
    batches = ((), (None, 0)) if inputs[0].type.ndim == 1 else ((0, 0), (0, None))
    for is_linearized, axes, side in product((False, True), batches, ("left", "right")):
        if text == search_jaxpr(side, axes, is_linearized, *avals):
            break
    else:
        return None
    row, query = (
        v.type.clone(shape=v.type.shape[axis == 0 :])()
        for v, axis in zip(inputs, axes or (None, None), strict=True)
    )
    places = pt.searchsorted(row, query, side=side)
    places = vectorize_graph(places, dict(zip((row, query), inputs, strict=True)))
    return places.astype(out_dtype(eqn))


@rule("top_k")
def _top_k(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """The ``k`` largest elements in descending order; among equal ones the first; 0 is larger than -0.

    A nan is larger than all other elements, as in XLA in float64; in float32 XLA puts it anywhere.
    """
    k, n = eqn.params["k"], x.type.shape[-1]
    if eqn.params.get("axis", x.type.ndim - 1) != x.type.ndim - 1:
        raise refuse(eqn, "an axis other than the last")
    if x.type.dtype.startswith("complex"):
        raise refuse(eqn, "complex numbers")
    if k > _MOST_OF_TOP or not k or not x.type.dtype.startswith("float"):
        return _top_by_sorting(x, k, n)
    indices = pt.constant(np.arange(n))
    is_taken = pt.zeros(x.type.shape, dtype="bool")
    values, top_indices = [], []
    for _ in range(k):
        remaining = pt.switch(is_taken, np.array(-np.inf, x.type.dtype), x)
        best = pt.max(remaining, axis=-1, keepdims=True)
        is_best = pt.switch(pt.isnan(best), pt.isnan(x), pt.eq(x, best)) & ~is_taken
        places = pt.switch(is_best, pt.switch(_is_negative_zero(x), indices + n, indices), 2 * n)
        index = pt.min(places, axis=-1, keepdims=True) % n
        values.append(best[..., 0])
        top_indices.append(index[..., 0])
        is_taken = is_taken | pt.eq(indices, index)
    return [pt.stack(values, axis=-1), pt.stack(top_indices, axis=-1).astype("int32")]


def _is_negative_zero(x: TensorVariable) -> Any:
    """A mask of the floats in ``x`` that are -0, which is less than 0 here."""
    return pt.eq(x, 0) & pt.lt(1 / x, 0)


def _top_by_sorting(x: TensorVariable, k: int, n: int) -> list[Any]:
    """The end of the ascending order of the reversed row: among equal elements the first comes first."""
    key = x.astype("uint8") if x.type.dtype == "bool" else x
    key, axis = key[..., ::-1], x.type.ndim - 1
    order = None
    if key.type.dtype.startswith("float"):
        order = pt.argsort(pt.invert(_is_negative_zero(key)).astype("uint8"), axis=-1, stable=True)
    last = pt.argsort(_in_order(key, order, axis), axis=-1, stable=True)
    order = n - 1 - (last if order is None else _in_order(order, last, axis))[..., ::-1][..., :k]
    return [_in_order(x, order, x.type.ndim - 1), order.astype("int32")]
