"""Reading and writing parts of arrays: slices, integers, index arrays and masks.

Static indices are checked against the shape, as NumPy and PyTensor do. A traced index cannot be: JAX
would clamp a read and drop a write, so that what is out of range gives NaN here (for integers, the
smallest value) instead. A traced slice works where its *length* is static: ``x[i : i + 3]``.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from loopax.ir.errors import UnsupportedOpError, describe
from loopax.jax_backend.ops.indexing.slices import is_basic, write_slices
from loopax.jax_backend.ops.indexing.static_indices import in_range
from loopax.jax_backend.ops.indexing.static_scatter import read_at, write_at
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced, no_number


@rule(Subtensor, AdvancedSubtensor, AdvancedSubtensor1)
def read(site: Site, x: Any, *values: Any) -> Any:
    index = _index(site, x, 1, values)
    if _is_whole(index, x):
        return x
    if not index.dynamic:
        if isinstance(x, np.ndarray):
            return x[index.entries]
        x = jnp.asarray(x)
        if all(isinstance(e, slice | int | None) for e in index.entries):
            return x[index.entries]
        if (taken := read_at(x, index.entries)) is not None:
            return taken
        entries, facts = in_range(index.entries, x.shape)
        return x.at[entries].get(**facts)
    x = jnp.asarray(x)
    if index.row is not None and _in_bounds(site, 1, x.shape[0]):
        return jax.lax.dynamic_index_in_dim(x, index.row, keepdims=False)
    fill = no_number(x.dtype)
    entries = list(index.entries)
    for axis, k in index.slices.items():  # one after the other: together they would be paired up
        whole = (slice(None),) * axis
        x = x.at[(*whole, entries[k])].get(mode="fill", fill_value=fill)
        entries[k] = slice(None)
    return x.at[tuple(entries)].get(mode="fill", fill_value=fill)


@rule(IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)
def write(site: Site, x: Any, y: Any, *values: Any) -> Any:
    x = jnp.asarray(x)
    y = jnp.asarray(y).astype(x.dtype)
    sets = site.op.set_instead_of_inc
    if x.dtype == bool and not sets:  # JAX does not add bools; NumPy's sum of them is `or`
        return _write(site, x.astype(int), y.astype(int), values, sets) != 0
    return _write(site, x, y, values, sets)


def _write(site: Site, x: Any, y: Any, values: Any, sets: bool) -> Any:
    if (written := _write_at_mask(site, x, y, values, sets)) is not None:
        return written
    index = _index(site, x, 2, values)
    if _is_whole(index, x):
        return jnp.broadcast_to(y, x.shape) if sets else x + y
    if not index.dynamic:
        zero = _is_zero(site, site.node.inputs[0])
        if is_basic(index.entries):
            return write_slices(x, y, index.entries, sets, from_zero=zero)
        if (written := write_at(x, y, index.entries, sets, from_zero=zero)) is not None:
            return written
        at, facts = in_range(index.entries, x.shape)
        return x.at[at].set(y, **facts) if sets else x.at[at].add(y, **facts)
    if sets and index.row is not None and _in_bounds(site, 2, x.shape[0]):
        row = jnp.broadcast_to(y, x.shape[1:])
        return jax.lax.dynamic_update_index_in_dim(x, row, index.row, 0)
    entries, ok = _inside(index, x)
    if index.slices:
        entries = _mesh(site, entries, index.slices, x.shape)
    # JAX drops a write that is out of range: the result would be wrong, and nothing would show it.
    bad = no_number(x.dtype) if sets else no_number(x.dtype) - x[entries]
    y = jnp.where(ok, y, bad)
    return x.at[entries].set(y) if sets else x.at[entries].add(y)


def _write_at_mask(site: Site, x: Any, y: Any, values: Any, sets: bool) -> Any:
    """``x`` written at one traced mask among slices, where ``y`` is the same at all its places.

    None where the index is another, or ``y`` has a value for each place, whose number would make a shape.
    """
    entries = list(indices_from_subtensor(range(len(values)), _idx_list(site)))
    at = [k for k, e in enumerate(entries) if not isinstance(e, slice)]
    if len(at) != 1 or entries[at[0]] is None:
        return None
    (axis,) = at
    mask = values[entries[axis]]
    if not is_traced(mask) or mask.dtype != bool or not mask.ndim:
        return None
    behind = x.ndim - axis - mask.ndim  # of the axes of what is selected, those behind the mask's
    if y.ndim > behind and y.shape[y.ndim - behind - 1] != 1:
        return None
    check_mask_fits(site, mask, axis, x.shape)
    whole = (slice(None),) * mask.ndim
    index = [_slice(site, e, 2, values, n) for e, n in zip(entries[:axis], x.shape, strict=False)]
    rest = zip(entries[axis + 1 :], x.shape[axis + mask.ndim :], strict=False)
    index += [*whole, *(_slice(site, e, 2, values, n) for e, n in rest)]
    if not is_basic(index):  # a slice with traced bounds
        return None
    old = x[tuple(index)]
    before, after = y.shape[: max(y.ndim - behind - 1, 0)], y.shape[max(y.ndim - behind, 0) :]
    y = y.reshape(*before, *[1] * mask.ndim, *after)
    mask = mask.reshape(*mask.shape, *[1] * behind)
    y = jnp.broadcast_to(y, old.shape)
    new = jnp.where(mask, y if sets else old + y, old)
    if all(e == slice(None) for e in index):
        return new
    return write_slices(x, new, index, sets=True, from_zero=False)


def _inside(index: Index, x: Any) -> tuple[tuple[Any, ...], Any]:
    """The index with what is traced moved into range, and whether all of it was there before."""
    entries, ok = list(index.entries), jnp.asarray(True)
    for axis, k in index.axes.items():
        if is_traced(entries[k]):
            n = x.shape[axis]
            at = entries[k].astype(int)  # -n of an unsigned integer is a large number
            ok = ok & jnp.all((at >= -n) & (at < n))
            entries[k] = jnp.clip(at, -n, n - 1)
    return tuple(entries), ok


def _mesh(site: Site, entries: Any, slices: dict[int, int], shape: Any) -> tuple[Any, ...]:
    """Slices as arrays of positions, each along an axis of its own, so that they are not paired up."""
    kinds = [
        "slice" if isinstance(e, slice) or k in slices.values() else jnp.ndim(e)
        for k, e in enumerate(entries)
    ]
    arrays = [k for k, kind in enumerate(kinds) if kind not in ("slice", 0)]
    if (
        len(arrays) > 1
        or (arrays and (0 in kinds or kinds[arrays[0]] != 1))
        or any(e is None for e in entries)
    ):
        raise UnsupportedOpError(
            f"{site.op}, for {describe(site.out)}, writes to a slice with a traced bound and to arrays "
            "of indices at once. Write to one after the other."
        )
    ranged = [
        np.arange(*e.indices(n)) if isinstance(e, slice) else e
        for e, n in zip(entries, shape, strict=False)
    ]
    wide = [k for k, kind in enumerate(kinds) if kind != 0]
    return tuple(
        e.reshape([-1 if j == k else 1 for j in wide]) if k in wide else e
        for k, e in enumerate(ranged)
    )


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


@dataclass(frozen=True)
class Index:
    """An index as JAX takes it.

    ``axes`` says which entry indexes an axis of the array, where it takes that axis alone;
    ``slices`` which of them are slices with traced bounds, as arrays of positions.
    """

    entries: tuple[Any, ...]
    axes: dict[int, int]
    slices: dict[int, int]

    @property
    def dynamic(self) -> bool:
        return any(map(is_traced, self.entries))

    @property
    def row(self) -> Any:
        """The traced integer that is the whole index, or None."""
        if len(self.entries) == 1 and not self.slices and jnp.ndim(self.entries[0]) == 0:
            return self.entries[0]
        return None


def _index(site: Site, x: Any, first: int, values: Any) -> Index:
    """The index of a node; ``values`` are its inputs from position ``first`` on."""
    entries: list[Any] = []
    axes: dict[int, int] = {}
    slices: dict[int, int] = {}
    axis = 0
    for entry in indices_from_subtensor(range(len(values)), _idx_list(site)):
        if isinstance(entry, slice):
            found, taken = _slice(site, entry, first, values, jnp.shape(x)[axis]), 1
            if not isinstance(found, slice):
                slices[axis] = len(entries)
        elif entry is None or values[entry] is None:  # np.newaxis
            found, taken = None, 0
        else:
            found, taken = _entry(site, values[entry], first + entry, axis, jnp.shape(x))
        if taken == 1:
            axes[axis] = len(entries)
        entries.append(found)
        axis += taken
    return Index(tuple(entries), axes, slices)


def _idx_list(site: Site) -> Any:
    idx_list = getattr(site.op, "idx_list", None)
    return (0,) if idx_list is None else idx_list  # AdvancedSubtensor1 of 3.0 has none: one index


def _entry(site: Site, value: Any, k: int, axis: int, shape: Any) -> tuple[Any, int]:
    """An integer, index array or mask along ``axis``; how many axes it takes."""
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") == "b":
        # How many elements a mask selects hangs on its values.
        mask = np.asarray(site.static(k))
        check_mask_fits(site, mask, axis, shape)
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


def check_mask_fits(site: Site, mask: Any, axis: int, shape: Any) -> None:
    """Raise IndexError unless ``mask``, which begins at ``axis``, has the lengths of these axes."""
    at = tuple(shape[axis : axis + mask.ndim])
    if mask.shape != at:
        raise IndexError(
            f"A mask of shape {mask.shape} does not fit axes {axis} to {axis + mask.ndim - 1} of "
            f"shape {at}, in {site.op} for {describe(site.out)}."
        )


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
            begin = jnp.where((begin < 0) & (begin + n < 0), begin + length, begin)
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


def _is_whole(index: Index, x: Any) -> bool:
    """Whether the index selects all of ``x``, in order."""
    return len(index.entries) <= jnp.ndim(x) and all(
        isinstance(s, slice) and s.indices(n) == (0, n, 1)
        for s, n in zip(index.entries, jnp.shape(x), strict=False)
    )
