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
from loopax.ir.ops.total_order import total_order

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
    """The ``k`` largest elements in descending order; among equal ones the first.

    XLA compares floats in their total order, in which 0 is larger than -0, and a nan larger or smaller than
    all numbers, by its sign.
    """
    k, n = eqn.params["k"], x.type.shape[-1]
    if eqn.params.get("axis", x.type.ndim - 1) != x.type.ndim - 1:
        raise refuse(eqn, "an axis other than the last")
    if x.type.dtype.startswith("complex"):
        raise refuse(eqn, "complex numbers")
    keys = x.astype("uint8") if x.type.dtype == "bool" else x
    if is_float := x.type.dtype.startswith("float"):
        keys = total_order(x)
    if is_float and 0 < k <= _MOST_OF_TOP:
        order = _first_by_searching(keys, k, n)
    else:
        # The end of the ascending order of the reversed row: among equal elements the first comes first.
        order = n - 1 - pt.argsort(keys[..., ::-1], axis=-1, stable=True)[..., ::-1][..., :k]
    return [_in_order(x, order, x.type.ndim - 1), order.astype("int32")]


def _first_by_searching(keys: TensorVariable, k: int, n: int) -> Any:
    """The indices of the ``k`` largest of ``n`` int64 along the last axis, by one search for each."""
    indices, least = pt.constant(np.arange(n)), np.array(np.iinfo("int64").min)
    is_taken = pt.zeros(keys.type.shape, dtype="bool")
    top_indices = []
    for _ in range(k):
        best = pt.max(pt.switch(is_taken, least, keys), axis=-1, keepdims=True)
        places = pt.switch(pt.eq(keys, best) & ~is_taken, indices, n)
        index = pt.min(places, axis=-1, keepdims=True)
        top_indices.append(index[..., 0])
        is_taken = is_taken | pt.eq(indices, index)
    return pt.stack(top_indices, axis=-1)
