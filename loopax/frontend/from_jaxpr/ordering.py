"""Sorting, and the largest elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from loopax.frontend.from_jaxpr.reading import refuse, rule

_MOST_OF_TOP = 8  # each element takes a search


@rule("sort")
def _sort(eqn: Any, *operands: Any) -> Any:
    """The operands in the stable order of the first one."""
    axis, x = eqn.params["dimension"], operands[0]
    if eqn.params["num_keys"] != 1:
        raise refuse(eqn, "by several keys")
    if not x.type.dtype.startswith(("float", "int", "uint")):
        raise refuse(eqn, f"of {x.type.dtype}")
    if len(operands) == 1:
        return pt.sort(x, axis=axis)
    order = pt.argsort(x, axis=axis, stable=True)
    lines = [
        pt.constant(np.arange(n).reshape([n if j == k else 1 for j in range(x.type.ndim)]))
        for k, n in enumerate(x.type.shape)
    ]
    index = tuple(order if k == axis else line for k, line in enumerate(lines))
    return [v[index] for v in operands]


@rule("top_k")
def _top_k(eqn: Any, x: Any) -> Any:
    """The ``k`` largest elements in descending order, of equal ones the first.

    A nan is larger than all other elements, as in XLA in float64; in float32 XLA puts it anywhere.
    """
    k, n = eqn.params["k"], x.type.shape[-1]
    if k > _MOST_OF_TOP or not k or not x.type.dtype.startswith("float"):
        raise refuse(eqn, f"{k} of {x.type.dtype}")
    if eqn.params.get("axis", x.type.ndim - 1) != x.type.ndim - 1:
        raise refuse(eqn, "along another axis")
    indices = pt.constant(np.arange(n))
    is_taken = pt.zeros(x.type.shape, dtype="bool")
    values, top_indices = [], []
    for _ in range(k):
        remaining = pt.switch(is_taken, np.array(-np.inf, x.type.dtype), x)
        best = pt.max(remaining, axis=-1, keepdims=True)
        is_best = pt.switch(pt.isnan(best), pt.isnan(x), pt.eq(x, best)) & ~is_taken
        index = pt.min(pt.switch(is_best, indices, np.int64(n)), axis=-1, keepdims=True)
        values.append(best[..., 0])
        top_indices.append(index[..., 0])
        is_taken = is_taken | pt.eq(indices, index)
    return [pt.stack(values, axis=-1), pt.stack(top_indices, axis=-1).astype("int32")]
