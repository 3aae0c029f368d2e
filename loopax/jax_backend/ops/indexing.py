"""Reading and writing parts of arrays: slices, integers, index arrays and masks.

Static indices are checked against the shape, as NumPy and PyTensor do. A traced index cannot be: JAX
would clamp a read and drop a write, so that what is out of range gives NaN here (for integers, the
smallest value) instead. A traced slice works where its *length* is static: ``x[i : i + 3]``.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Alloc, Nonzero, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from loopax.ir.compat import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.ir.errors import describe
from loopax.jax_backend.evaluate import Site
from loopax.jax_backend.ops.slices import is_basic, write_slices
from loopax.jax_backend.registry import rule
from loopax.jax_backend.static import is_traced


@rule(Subtensor, AdvancedSubtensor, AdvancedSubtensor1)
def read(site: Site, x: Any, *values: Any) -> Any:
    index, dynamic = _index(site, x, 1, values)
    if _is_whole(index, x):
        return x
    if not dynamic:
        return x[index] if isinstance(x, np.ndarray) else jnp.asarray(x)[index]
    x = jnp.asarray(x)
    if _is_row(index) and _in_bounds(site, 1, x.shape[0]):
        return jax.lax.dynamic_index_in_dim(x, index[0], keepdims=False)
    fill = jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else None
    return x.at[index].get(mode="fill", fill_value=fill)


@rule(IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)
def write(site: Site, x: Any, y: Any, *values: Any) -> Any:
    x = jnp.asarray(x)
    y = jnp.asarray(y).astype(x.dtype)
    index, dynamic = _index(site, x, 2, values)
    sets = site.op.set_instead_of_inc
    if _is_whole(index, x):
        return jnp.broadcast_to(y, x.shape) if sets else x + y
    if not dynamic and is_basic(index):
        return write_slices(x, y, index, sets, from_zero=_is_zero(site, site.node.inputs[0]))
    if sets and _is_row(index) and is_traced(index[0]) and _in_bounds(site, 2, x.shape[0]):
        return jax.lax.dynamic_update_index_in_dim(x, jnp.broadcast_to(y, x.shape[1:]), index[0], 0)
    if dynamic and all(_is_position(k) for k in index):
        index, y = _poisoned(x, y, index, sets)
    return x.at[index].set(y) if sets else x.at[index].add(y)


def _is_position(k: Any) -> bool:
    """Whether ``k`` is an integer or an array of them: not a slice, a mask or a new axis."""
    return isinstance(k, int) or (hasattr(k, "dtype") and k.dtype.kind in "iu")


def _poisoned(x: Any, y: Any, index: Any, sets: bool) -> tuple[Any, Any]:
    """The index moved into range, and ``y`` made NaN (or the smallest integer) where it was not.

    JAX drops a write that is out of range: the result would be wrong, and nothing would show it.
    """
    # An unsigned index would turn -n into a large number, and static ones were checked before.
    index = [k.astype(int) if is_traced(k) else k for k in index]
    ok = jnp.ones(jnp.broadcast_shapes(*(jnp.shape(k) for k in index)), dtype=bool)
    for k, n in zip(index, x.shape, strict=False):
        if is_traced(k):
            ok = ok & (k >= -n) & (k < n)
    trailing = x.shape[len(index) :]
    inside = tuple(
        jnp.clip(k, -n, n - 1) if is_traced(k) else k for k, n in zip(index, x.shape, strict=False)
    )
    y = jnp.broadcast_to(y, ok.shape + trailing)
    if jnp.issubdtype(x.dtype, jnp.inexact):
        bad = jnp.asarray(jnp.nan, dtype=x.dtype)
    else:
        bad = jnp.asarray(_smallest(x.dtype), dtype=x.dtype)
        bad = bad if sets or x.dtype.kind == "b" else bad - x[inside]  # so that the sum is it
    y = jnp.where(ok.reshape(ok.shape + (1,) * len(trailing)), y, bad)
    return inside, y


def _smallest(dtype: Any) -> Any:
    return False if dtype.kind == "b" else jnp.iinfo(dtype).min


def _is_zero(site: Site, v: Variable) -> bool:
    """Whether ``v`` is an array of zeros, as gradients begin with."""
    for _ in range(3):
        if isinstance(v, Constant):
            return not np.any(v.data)
        node = v.owner
        if node is None:
            return False
        if isinstance(node.op, Alloc):
            v = node.inputs[0]
        elif isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Second):
            v = node.inputs[1]
        elif isinstance(node.op, DimShuffle):
            v = node.inputs[0]
        else:
            return False
    return False


@rule(Nonzero)
def nonzero(site: Site, x: Any) -> Any:
    """How many there are hangs on the values, so they must be static."""
    return tuple(np.nonzero(site.static(0)))


def _index(site: Site, x: Any, first: int, values: Any) -> tuple[tuple[Any, ...], bool]:
    """The index as JAX takes it, and whether anything in it is traced.

    ``values`` are the inputs of the node from position ``first`` on, which ``idx_list`` refers to.
    """
    positions = indices_from_subtensor(range(len(values)), _idx_list(site))
    index: list[Any] = []
    dynamic = False
    axis = 0
    for entry in positions:
        length = jnp.shape(x)[axis] if axis < jnp.ndim(x) else 1
        if isinstance(entry, slice):
            found = _slice(site, entry, first, values, length)
            axis += 1
        else:
            found = values[entry] if entry is not None else None
            if found is None:  # np.newaxis
                index.append(None)
                continue
            found, taken = _entry(site, found, first + entry, axis, jnp.shape(x))
            axis += taken
        dynamic = dynamic or is_traced(found)
        index.append(found)
    return tuple(index), dynamic


def _idx_list(site: Site) -> Any:
    idx_list = getattr(site.op, "idx_list", None)
    return (0,) if idx_list is None else idx_list  # AdvancedSubtensor1 of 3.0 has none: one index


def _entry(site: Site, value: Any, k: int, axis: int, shape: Any) -> tuple[Any, int]:
    """An integer, index array or mask along ``axis``; how many axes it takes."""
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") == "b":
        # How many elements a mask selects hangs on its values.
        mask = np.asarray(site.static(k))
        if mask.shape != tuple(shape[axis : axis + mask.ndim]):
            raise IndexError(
                f"A mask of shape {mask.shape} does not fit axes {axis} to {axis + mask.ndim - 1} of "
                f"shape {tuple(shape[axis : axis + mask.ndim])}, in {site.op} for {describe(site.out)}."
            )
        return (mask if mask.ndim else bool(mask)), mask.ndim
    if not isinstance(value, jax.Array):
        bad = np.asarray(value)
        if bad.size and (bad.min() < -shape[axis] or bad.max() >= shape[axis]):
            raise IndexError(
                f"Index {bad.min() if bad.min() < -shape[axis] else bad.max()} is out of bounds for "
                f"axis {axis} of length {shape[axis]}, in {site.op} for {describe(site.out)}."
            )
        return (int(value) if bad.ndim == 0 else bad), 1
    return value, 1


def _slice(site: Site, entry: slice, first: int, values: Any, length: int) -> Any:
    """A static slice, or for traced bounds a fixed distance apart the array of its positions."""

    def static(k: Any) -> int | None:
        return None if k is None else int(site.static(first + k))

    def traced(k: Any) -> bool:
        return k is not None and values[k] is not None and is_traced(values[k])

    if not (traced(entry.start) or traced(entry.stop)):
        return slice(static(entry.start), static(entry.stop), static(entry.step))
    if entry.start is not None and entry.stop is not None and static(entry.step) in (None, 1):
        inputs = site.node.inputs
        start, low = _offset(site, inputs[first + entry.start])
        stop, high = _offset(site, inputs[first + entry.stop])
        if start is stop and start is not None:
            n = max(high - low, 0)
            # As in Python, bounds below 0 count from the end. A slice that crosses an end would be
            # shorter, which JAX cannot have: the positions beyond it are marked as out of range.
            begin = jnp.asarray(values[entry.start])
            begin = jnp.where((begin < 0) & (begin + n <= 0), begin + length, begin)
            at = begin + np.arange(n)
            return jnp.where(at < 0, length, at)
    for k in (entry.start, entry.stop):
        if traced(k):
            site.static(first + k)
    raise AssertionError("one of the bounds was traced")


def _offset(site: Site, v: Variable) -> tuple[Variable | None, int]:
    """``v`` as a variable plus a static number, looking through casts: ``i + 3 -> (i, 3)``."""
    shift = 0
    while v.owner is not None:
        node = v.owner
        op = getattr(node.op, "scalar_op", node.op)
        if isinstance(node.op, ScalarFromTensor | TensorFromScalar) or isinstance(op, ps.Cast):
            v = node.inputs[0]
        elif isinstance(op, ps.Add | ps.Sub) and isinstance(node.op, Elemwise | ps.ScalarOp):
            known = [u for u in node.inputs if not is_traced(site.frame.read(u))]
            rest = [u for u in node.inputs if is_traced(site.frame.read(u))]
            if len(rest) != 1 or (isinstance(op, ps.Sub) and node.inputs[0] is not rest[0]):
                break
            total = sum(int(site.frame.read(u)) for u in known)
            shift += -total if isinstance(op, ps.Sub) else total
            v = rest[0]
        else:
            break
    return v, shift


def _in_bounds(site: Site, k: int, length: int) -> bool:
    """Whether the index in input ``k`` is ``something % m`` with ``m <= length``, as in a ring."""
    v = site.node.inputs[k]
    while v.owner is not None:
        node = v.owner
        op = getattr(node.op, "scalar_op", node.op)
        if isinstance(op, ps.Mod):
            m = site.frame.read(node.inputs[1])
            return not is_traced(m) and 0 < int(m) <= length
        if not isinstance(node.op, ScalarFromTensor | TensorFromScalar) and not isinstance(
            op, ps.Cast
        ):
            return False
        v = node.inputs[0]
    return False


def _is_row(index: Any) -> bool:
    return (
        len(index) == 1
        and not isinstance(index[0], slice)
        and jnp.ndim(index[0]) == 0
        and index[0] is not None
    )


def _is_whole(index: Any, x: Any) -> bool:
    """Whether the index selects all of ``x``, in order."""
    return all(
        isinstance(s, slice) and s.indices(n) == (0, n, 1)
        for s, n in zip(index, jnp.shape(x), strict=False)
    ) and len(index) <= jnp.ndim(x)
