"""Reads and writes at computed positions: dynamic slices and gathers.

XLA shifts a slice that would reach beyond an end back until it fits. So do the rules here, and indices in
the IR are in range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Join
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import axis_of, joined_by
from loopax.facts.axes import shuffled
from loopax.frontend.from_jaxpr.known import known
from loopax.frontend.from_jaxpr.reading import out_aval, out_dtype, refuse, rule
from loopax.frontend.from_jaxpr.shapes import reshaped

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


def clamped(start: TensorVariable, n: int, size: int) -> Any:
    """The start of a slice of ``size`` elements of an axis of length ``n``, moved into range."""
    if n == size:
        return 0
    if start.type.ndim == 0 and (value := known(start)) is not None:
        return min(max(int(value), 0), n - size)
    if start.type.dtype == "uint64":
        return pt.minimum(start, np.uint64(n - size)).astype("int64")
    return pt.clip(start.astype("int64"), np.int64(0), np.int64(n - size))


def _entry(start: TensorVariable | int, n: int, size: int) -> Any:
    """The index of a slice of ``size`` elements that begins at ``start``, in range."""
    if size == n:
        return slice(None)
    return start if size == 1 else slice(start, start + size)


def window(
    x: TensorVariable, starts: Sequence[TensorVariable], sizes: Sequence[int]
) -> tuple[Any, ...]:
    """The index of a window of these sizes; an axis of size 1 is dropped."""
    lengths = x.type.shape
    return tuple(
        _entry(clamped(start, n, size), n, size)
        for start, n, size in zip(starts, lengths, sizes, strict=True)
    )


def window_shape(shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of the elements at a `window`'s index of an array of this shape."""
    return tuple(size for n, size in zip(shape, sizes, strict=True) if size == n or size != 1)


@rule("dynamic_slice", keys=True)
def _dynamic_slice(eqn: JaxprEqn, x: TensorVariable, *starts: TensorVariable) -> Any:
    sizes = eqn.params["slice_sizes"]
    if len(starts) != len(sizes):
        raise refuse(eqn, "sizes known only at run time")
    key_lengths = x.type.shape[len(sizes) :]  # axes of a key
    return read_window(x, [*starts, *(pt.constant(0) for _ in key_lengths)], [*sizes, *key_lengths])


def read_window(x: TensorVariable, starts: Sequence[TensorVariable], sizes: Sequence[int]) -> Any:
    """The window of these sizes, as an array of this shape."""
    if 0 in sizes:
        return pt.zeros(tuple(sizes), dtype=x.type.dtype)
    result = x[window(x, starts, sizes)]
    shape = window_shape(x.type.shape, sizes)
    if result.type.shape != shape:
        result = pt.specify_shape(result, shape)
    return reshaped(result, sizes)


@rule("dynamic_update_slice")
def _dynamic_update_slice(
    eqn: JaxprEqn, x: TensorVariable, update: TensorVariable, *starts: TensorVariable
) -> Any:
    sizes = update.type.shape
    if 0 in sizes:
        return x
    if sizes == x.type.shape:
        return update
    index = window(x, starts, sizes)
    return pt.set_subtensor(x[index], reshaped(update, window_shape(x.type.shape, sizes)))


# -- arrays of indices -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Windows of an array at computed positions, one for each element of a batch.

    ``starts`` has an array of the batch's shape for each axis in ``axes``: the starts of the windows,
    in range. ``valid`` flags for each element of the batch whether its window was in range before; None
    if all were. ``sizes`` is the shape of a window, ``batch`` the shape of the batch.
    """

    axes: tuple[int, ...]
    starts: tuple[Any, ...]
    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    valid: Any


def windows_at(
    x: TensorVariable,
    indices: TensorVariable,
    mapped: Sequence[int],
    sizes: Sequence[int],
    batching: Sequence[tuple[int, int]],
) -> Windows:
    """The windows at ``indices``, whose last axis has an entry for each axis in ``mapped``.

    ``batching`` has pairs of a batch axis of ``x`` and the same axis of ``indices``.
    """
    lengths, batch = x.type.shape, indices.type.shape[:-1]
    starts: list[Any] = []
    tests: list[Any] = []
    for j, axis in enumerate(mapped):
        limit = lengths[axis] - sizes[axis]
        start = _component(indices, j)
        if (value := known(start)) is not None:
            inside = (value >= 0) & (value <= limit)
            if not inside.all():
                tests.append(pt.constant(np.asarray(inside)))
            starts.append(pt.constant(np.clip(value.astype("int64"), 0, limit)))
        else:
            start = start if start.type.dtype == "uint64" else start.astype("int64")
            tests.append(pt.ge(start, 0) & pt.le(start, limit))
            clipped = clamped(start, lengths[axis], sizes[axis])
            starts.append(pt.zeros(batch, dtype="int64") if isinstance(clipped, int) else clipped)
    for axis, along in batching:
        line = np.arange(lengths[axis]).reshape(
            [-1 if k == along else 1 for k in range(len(batch))]
        )
        mapped = (*mapped, axis)
        starts.append(pt.constant(np.ascontiguousarray(np.broadcast_to(line, batch))))
    valid = reduce(pt.bitwise_and, tests) if tests else None
    return Windows(tuple(mapped), tuple(starts), tuple(sizes), tuple(batch), valid)


def _component(indices: TensorVariable, j: int) -> Any:
    """Component ``j`` of indices along the last axis, which JAX joins from an array for each axis."""
    if isinstance(indices, Constant):
        return pt.constant(np.ascontiguousarray(indices.data[..., j]))
    node, axis = indices.owner, indices.type.ndim - 1
    if node is not None and isinstance(node.op, Join) and axis_of(node) == axis:
        for part in joined_by(node.op, node.inputs):
            if part.type.shape[axis] != 1:
                break
            if j == 0:
                return shuffled(part, range(axis))
            j -= 1
    return indices[..., j]


def full_index(p: Windows, lengths: Sequence[int]) -> tuple[list[int], list[int], list[Any]]:
    """The axes that are read at integers, the axes that are read whole, and the integers.

    The integers have the axes of the batch first, then an axis for each axis of the window with several
    elements.
    """
    starts = dict(zip(p.axes, p.starts, strict=True))
    whole_axes = [k for k, n in enumerate(lengths) if k not in starts and p.sizes[k] == n]
    indexed_axes = [k for k in range(len(lengths)) if k not in whole_axes]
    wide_axes = [k for k in indexed_axes if p.sizes[k] != 1]
    integers = []
    for axis in indexed_axes:
        start = starts.get(axis, pt.zeros(p.batch, dtype="int64"))
        index = start.dimshuffle([*range(len(p.batch)), *["x"] * len(wide_axes)])
        if axis in wide_axes:
            line = np.arange(p.sizes[axis]).reshape([-1 if k == axis else 1 for k in wide_axes])
            index = index + pt.constant(line)
        integers.append(index)
    return indexed_axes, whole_axes, integers


@rule("gather")
def _gather(eqn: JaxprEqn, x: TensorVariable, indices: TensorVariable) -> Any:
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    batching = [
        *zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    ]
    shape = out_aval(eqn).shape
    if 0 in (*shape, *x.type.shape):
        raise refuse(eqn, "empty arrays")
    p = windows_at(x, indices, numbers.start_index_map, sizes, batching)
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    if math.prod(p.batch) == 1:
        flat = {k: reshaped(s, ()) for k, s in zip(p.axes, p.starts, strict=True)}
        result = read_window(x, [flat.get(k, pt.constant(0)) for k in range(x.type.ndim)], sizes)
        offsets = [n for k, n in enumerate(sizes) if k not in dropped]
        result = reshaped(result, (*p.batch, *offsets))
    else:
        indexed_axes, whole_axes, integers = full_index(p, x.type.shape)
        window_axes = [k for k in range(x.type.ndim) if k not in dropped]
        wide_axes = [k for k in indexed_axes if sizes[k] != 1]
        result = x.dimshuffle([*indexed_axes, *whole_axes])[tuple(integers)]
        order = [
            *wide_axes,
            *whole_axes,
        ]  # the axes of a window, which follow the axes of the batch
        rank = len(p.batch)
        result = result.dimshuffle(
            [*range(rank), *(rank + order.index(k) if k in order else "x" for k in window_axes)]
        )
    rank = len(p.batch)
    out = [k for k in range(len(shape)) if k not in numbers.offset_dims]
    axes = {
        **dict(zip(out, range(rank), strict=True)),
        **{k: rank + j for j, k in enumerate(numbers.offset_dims)},
    }
    result = result.dimshuffle([axes[k] for k in range(len(shape))])
    if eqn.params["mode"].name == "FILL_OR_DROP" and p.valid is not None:
        valid = p.valid.dimshuffle([out.index(k) if k in out else "x" for k in range(len(shape))])
        result = pt.switch(valid, result, _fill_value(eqn))
    return result


def _fill_value(eqn: JaxprEqn) -> Any:
    """The result of a gather at an index out of range."""
    dtype, value = np.dtype(out_dtype(eqn)), eqn.params["fill_value"]
    if value is None:
        limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else None
        value = {"i": lambda: limits.min, "u": lambda: limits.max, "b": lambda: True}.get(
            dtype.kind, lambda: np.nan
        )()
    return np.array(value, dtype=dtype)
