"""Writes at arrays of indices: scatters, in the forms of ``x.at[...]``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.indexing import (
    Windows,
    full_index,
    read_window,
    window,
    window_shape,
    windows_at,
)
from loopax.frontend.from_jaxpr.reading import refuse, rule
from loopax.frontend.from_jaxpr.shapes import reshaped
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs
from loopax.ir.ops.calling_convention import INDEX_TYPE

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn

_SUBTRACTIONS = {"scatter-sub", "scatter_sub"}
_SUMS = {"scatter-add", "scatter_add"} | _SUBTRACTIONS
# The function that combines an element and its update, except for a write and a sum.
_COMBINED = {"scatter-mul": pt.mul, "scatter-min": pt.minimum, "scatter-max": pt.maximum}
_COMBINED |= {name.replace("-", "_"): op for name, op in _COMBINED.items()}


@rule("scatter", *_SUMS, *_COMBINED)
def _scatter(
    eqn: JaxprEqn, x: TensorVariable, indices: TensorVariable, updates: TensorVariable
) -> Any:
    numbers, name = eqn.params["dimension_numbers"], eqn.primitive.name
    batching = [
        *zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    ]
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window_axes = [k for k in range(x.type.ndim) if k not in dropped]
    if 0 in updates.type.shape or 0 in x.type.shape:
        return x
    if name == "scatter" and not _is_plain_write(eqn.params["update_jaxpr"]):
        raise refuse(eqn, "writes by a function")
    updates = -updates if name in _SUBTRACTIONS else updates
    sizes = [1] * x.type.ndim
    for axis, k in zip(window_axes, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.type.shape[k]
    p = windows_at(x, indices, numbers.scatter_dims_to_operand_dims, sizes, batching)
    # The axes of the batch first, then the axes of a window, in the order of x.
    outer = [k for k in range(updates.type.ndim) if k not in numbers.update_window_dims]
    updates = updates.dimshuffle([*outer, *numbers.update_window_dims])
    is_dropped = eqn.params["mode"].name != "CLIP" and p.valid is not None
    if math.prod(p.batch) == 1:
        return _one_window(eqn, x, reshaped(updates, sizes), p, is_dropped)
    if name in _COMBINED:
        return _one_by_one(eqn, x, updates, p, is_dropped)
    return _windows(eqn, x, updates, p, window_axes, is_dropped)


def _is_plain_write(function: None) -> bool:
    """Whether a scatter's combining function returns the update."""
    return function is None or (not function.eqns and function.outvars == function.invars[1:])


def _one_window(
    eqn: JaxprEqn, x: TensorVariable, update: TensorVariable, p: Windows, is_dropped: bool
) -> Any:
    """Write one window; if it is partly out of range, only the elements within."""
    starts = {k: reshaped(s, ()) for k, s in zip(p.axes, p.starts, strict=True)}
    begin = [starts.get(k, pt.constant(0)) for k in range(x.type.ndim)]
    adds = eqn.primitive.name in _SUMS
    if eqn.primitive.name in _COMBINED:
        update = _COMBINED[eqn.primitive.name](read_window(x, begin, p.sizes), update)
    if is_dropped:
        zero = np.array(0, dtype=x.type.dtype)
        present = zero if adds else read_window(x, begin, p.sizes)
        update = pt.switch(reshaped(p.valid, ()), update, present)
    place = x[window(x, begin, p.sizes)]
    update = reshaped(update, window_shape(x.type.shape, p.sizes))
    return pt.inc_subtensor(place, update) if adds else pt.set_subtensor(place, update)


def _one_by_one(
    eqn: JaxprEqn, x: TensorVariable, updates: TensorVariable, p: Windows, is_dropped: bool
) -> Any:
    """Write the windows in a loop, since a position may occur several times."""
    n = math.prod(p.batch)
    rows = [reshaped(s, (n,)) for s in p.starts]
    rows += [reshaped(p.valid, (n,))] if is_dropped else []
    rows.append(reshaped(updates, (n, *p.sizes)))
    row = [v.type.clone(shape=v.type.shape[1:])() for v in rows]
    array = x.type()
    valid = row[len(p.starts)] if is_dropped else None
    one = Windows(p.axes, tuple(row[: len(p.starts)]), p.sizes, (), valid)
    after = _one_window(eqn, array, row[-1], one, is_dropped)
    loop = Scan.from_body(BodyArgs(INDEX_TYPE(), row, [array], []), BodyOuts([after], []))
    return loop.bind(ScanArgs(pt.constant(n, dtype="int64"), rows, [x], []))[0]


def _windows(
    eqn: JaxprEqn,
    x: TensorVariable,
    updates: TensorVariable,
    p: Windows,
    window_axes: list[int],
    is_dropped: bool,
) -> Any:
    indexed_axes, whole_axes, integers = full_index(p, x.type.shape)
    rank = len(p.batch)
    order = [*(k for k in indexed_axes if p.sizes[k] != 1), *whole_axes]
    updates = updates.dimshuffle([*range(rank), *(rank + window_axes.index(k) for k in order)])
    transposed = x.dimshuffle([*indexed_axes, *whole_axes])
    adds = eqn.primitive.name in _SUMS
    n = transposed.type.shape[0]
    if is_dropped:
        valid = p.valid.dimshuffle([*range(rank), *["x"] * (updates.type.ndim - rank)])
        if adds:
            updates = pt.switch(valid, updates, np.array(0, dtype=updates.type.dtype))
        else:  # to a spare row, which is cut off
            spare = pt.zeros((1, *transposed.type.shape[1:]), dtype=transposed.type.dtype)
            transposed = pt.join(0, transposed, spare)
            in_range = p.valid.dimshuffle([*range(rank), *["x"] * (integers[0].type.ndim - rank)])
            integers[0] = pt.switch(in_range, integers[0], np.int64(n))
    write = pt.inc_subtensor if adds else pt.set_subtensor
    result = write(transposed[tuple(integers)], updates)
    inverse = [[*indexed_axes, *whole_axes].index(k) for k in range(x.type.ndim)]
    return result[:n].dimshuffle(inverse)
