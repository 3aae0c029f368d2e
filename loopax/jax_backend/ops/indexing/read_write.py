"""Reading and writing parts of arrays: slices, integers, index arrays and masks.

Static indices are checked against the shape, as NumPy and PyTensor do. A traced index cannot be: JAX
would clamp a read and drop a write, so an index out of range gives NaN here (for integers, the smallest
value) instead. A direct call that returns such a value finds the cause, and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from jax.export import is_symbolic_dim
from jax.typing import ArrayLike
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Alloc, Nonzero
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from loopax.base.errors import UnsupportedOpError, describe, undeclared
from loopax.base.upstream.pytensor import (
    AdvancedIncSubtensor1,
    AdvancedSubtensor1,
    adds_last_only,
    indices_from_subtensor,
)
from loopax.facts.elementwise import is_elementwise
from loopax.jax_backend.ops.indexing.aliasing import reads_elsewhere, value_reads_target
from loopax.jax_backend.ops.indexing.index import (
    Index,
    check_mask_fits,
    check_open,
    idx_list,
    index_of,
    is_place,
    slice_of,
)
from loopax.jax_backend.ops.indexing.slices import is_basic, write_slices
from loopax.jax_backend.ops.indexing.static_scatter import in_range, read_at, write_at
from loopax.jax_backend.ops.indexing.windows import read_clipped
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics.arrays import Array
from loopax.numerics.no_number import no_number


@rule(Subtensor, AdvancedSubtensor, AdvancedSubtensor1)
def read(site: Site, x: Array, *values: ArrayLike) -> Any:
    index = index_of(site, x, 1, values)
    if index.is_whole(x):
        return x
    if not index.dynamic:
        if isinstance(x, np.ndarray):
            return x[index.entries]
        x = jnp.asarray(x)
        if all(isinstance(e, slice | int | None) for e in index.entries):
            return x[index.entries]
        if (result := read_at(x, index.entries)) is not None:
            return result
        at, facts = in_range(index.entries, x.shape)
        return x.at[at].get(**facts)
    x = jnp.asarray(x)
    if index.row is not None and is_place(site, 1, x.shape[0]):
        return jax.lax.dynamic_index_in_dim(x, index.row, keepdims=False)
    if (window := read_clipped(site, index, x)) is not None:
        return window
    fill = no_number(x.dtype)
    entries = list(index.entries)
    for axis, k in index.slices.items():  # one after the other: together, NumPy would pair them
        whole = (slice(None),) * axis
        x = x.at[(*whole, entries[k])].get(mode="fill", fill_value=fill)
        entries[k] = slice(None)
    return check_open(site, index, x, x.at[tuple(entries)].get(mode="fill", fill_value=fill))


@rule(IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)
def write(site: Site, x: Array, y: Array, *values: ArrayLike) -> Any:
    x = jnp.asarray(x)
    y = jnp.asarray(y).astype(x.dtype)
    sets = site.op.set_instead_of_inc
    if x.dtype == bool and not sets:  # JAX does not add bools; NumPy's sum of them is `or`
        return _write(site, x.astype(int), y.astype(int), values, sets) != 0
    return _write(site, x, y, values, sets)


def _spread_undeclared(site: Site, y: jax.Array) -> list[int]:
    """The axes of length 1 of the written value that its type does not declare as broadcastable."""
    declared = site.node.inputs[1].type.broadcastable
    return [k for k, n in enumerate(jnp.shape(y)) if n == 1 and not declared[k]]


def _check_spread(site: Site, y: jax.Array, room: Callable[[], Sequence[int]]) -> None:
    """Raise if an axis is broadcast whose *type* does not say that it has length 1, as in PyTensor.

    ``room`` gives the shape of the part of the array that is written.
    """
    for k in _spread_undeclared(site, y):
        lengths = room()
        n = lengths[len(lengths) - y.ndim + k] if len(lengths) - y.ndim + k >= 0 else 1
        if n != 1:
            raise ValueError(undeclared(k, site.node.inputs[1], site.op))


def _written_shape(x: jax.Array, index: Index) -> tuple[int, ...]:
    entries = list(index.entries)
    # The positions of a slice lie along an axis of their own.
    for k in index.slices.values():
        entries[k] = slice(0, jnp.size(entries[k]))
    return jax.eval_shape(lambda x: x[tuple(entries)], x).shape


def _write(site: Site, x: jax.Array, y: jax.Array, values: Sequence[Any], sets: bool) -> Any:
    if (written := _write_at_mask(site, x, y, values, sets)) is not None:
        return written
    index = index_of(site, x, 2, values)
    _check_spread(site, y, lambda: _written_shape(x, index))
    if index.is_whole(x):
        return jnp.broadcast_to(y, x.shape) if sets else x + y
    if not index.dynamic:
        zero = _is_zero(site, site.node.inputs[0])
        if is_basic(index.entries):
            in_place = _in_place(site, index.entries, x)
            return write_slices(x, y, index.entries, sets, from_zero=zero, in_place=in_place)
        if adds_last_only(site.op):
            at, facts = in_range(index.entries, x.shape)
            return x.at[at].set(x[at] + y, **facts)
        if (written := write_at(x, y, index.entries, sets, from_zero=zero)) is not None:
            return written
        at, facts = in_range(index.entries, x.shape)
        return x.at[at].set(y, **facts) if sets else x.at[at].add(y, **facts)
    target, value = site.node.inputs[:2]
    if sets and index.row is not None and is_place(site, 2, x.shape[0]):
        row = jnp.broadcast_to(y, x.shape[1:])
        if row.ndim and value_reads_target(target, value, needs_reshape=True):
            is_written = jax.lax.iota(index.row.dtype, x.shape[0]) == index.row
            return jnp.where(jnp.expand_dims(is_written, range(1, x.ndim)), row, x)
        return jax.lax.dynamic_update_index_in_dim(x, row, index.row, 0)
    spread = _windows_of_one_value(index, x, y)
    entries, ok = _inside(index, x, spread)
    if index.slices:
        entries = _mesh(site, entries, index.slices, x.shape)
    if adds_last_only(site.op):
        y, sets = x[entries] + y, True
    # JAX drops a write that is out of range. NumPy does so only at the end of a window: elsewhere the
    # result would be silently wrong.
    bad = no_number(x.dtype) if sets else no_number(x.dtype) - x[entries]
    y = jnp.where(ok, y, bad)
    if value_reads_target(target, value, needs_reshape=True):
        # XLA writes at one index in place if the index is a constant in the caller's program.
        entries = tuple(jax.lax.optimization_barrier(e) if is_traced(e) else e for e in entries)
    written = x.at[entries].set(y) if sets else x.at[entries].add(y)
    whole = [k for k, w in index.windows.items() if w.may_cross and k not in spread]
    return check_open(site, index, x, written, whole)


def _windows_of_one_value(index: Index, x: jax.Array, y: jax.Array) -> list[int]:
    """The axes of ``x`` with a window along all of which one value is written."""
    if not index.windows:
        return []
    behind = y.ndim - len(_written_shape(x, index))

    def is_one_value(k: int) -> bool:
        before = (1 if isinstance(e, slice) else jnp.ndim(e) for e in index.entries[:k])
        axis = behind + sum(before)
        return axis < 0 or y.shape[axis] == 1

    return [axis for axis in index.windows if is_one_value(index.slices[axis])]


def _write_at_mask(
    site: Site, x: jax.Array, y: jax.Array, values: Sequence[Any], sets: bool
) -> Any:
    """Write ``y``, equal at all places, to ``x`` at one traced mask among slices.

    None for any other index, or if ``y`` has a value for each place, whose number would determine a shape.
    """
    entries = list(indices_from_subtensor(range(len(values)), idx_list(site)))
    at = [k for k, e in enumerate(entries) if not isinstance(e, slice)]
    if len(at) != 1 or entries[at[0]] is None:
        return None
    (axis,) = at
    mask = values[entries[axis]]
    if not is_traced(mask) or mask.dtype != bool or not mask.ndim:
        return None
    behind = x.ndim - axis - mask.ndim  # axes of the selection that follow the mask's
    place = y.ndim - behind - 1
    if place >= 0 and (y.shape[place] != 1 or place in _spread_undeclared(site, y)):
        return None
    check_mask_fits(site, mask, axis, x.shape)
    whole = (slice(None),) * mask.ndim
    index = [slice_of(site, e, 2, values, n) for e, n in zip(entries[:axis], x.shape, strict=False)]
    later_axes = zip(entries[axis + 1 :], x.shape[axis + mask.ndim :], strict=False)
    index += [*whole, *(slice_of(site, e, 2, values, n) for e, n in later_axes)]
    if not is_basic(index):  # a slice with traced bounds
        return None
    old = x[tuple(index)]
    _check_spread(site, y, lambda: [*old.shape[:axis], 1, *old.shape[axis + mask.ndim :]])
    before, after = y.shape[: max(y.ndim - behind - 1, 0)], y.shape[max(y.ndim - behind, 0) :]
    y = y.reshape(*before, *[1] * mask.ndim, *after)
    mask = mask.reshape(*mask.shape, *[1] * behind)
    y = jnp.broadcast_to(y, old.shape)
    new = jnp.where(mask, y if sets else old + y, old)
    if all(e == slice(None) for e in index):
        return new
    return write_slices(x, new, index, sets=True, from_zero=False, in_place=lambda: False)


def _in_place(site: Site, written: tuple[int | slice, ...], x: jax.Array) -> Callable[[], bool]:
    """A function that returns whether XLA may write entries of ``x`` in place."""
    target, value = site.node.inputs[:2]
    # With symbolic lengths the entries of a slice are unknown.
    is_known = not any(map(is_symbolic_dim, x.shape))

    def is_harmless(v: Variable) -> bool:
        return is_known and reads_elsewhere(v, target, written, x.shape)

    return lambda: not value_reads_target(target, value, is_harmless=is_harmless)


def _inside(index: Index, x: jax.Array, spread: Sequence[int]) -> tuple[tuple[Any, ...], Any]:
    """Clip the traced entries of the index into range; also return whether all were in range.

    The windows along the axes ``spread`` end where the array does, as in NumPy.
    """
    entries, ok = list(index.entries), jnp.asarray(True)
    for axis, k in index.axes.items():
        n = x.shape[axis]
        if axis not in spread and is_traced(entries[k]):
            at = entries[k].astype(int)  # -n as an unsigned integer is a large number
            ok = ok & jnp.all((at >= -n) & (at < n))
            entries[k] = jnp.clip(at, -n, n - 1)
    return tuple(entries), ok


def _mesh(
    site: Site, entries: Sequence[Any], slices: dict[int, int], shape: tuple[int, ...]
) -> tuple[Any, ...]:
    """Slices as arrays of positions, each along its own axis, so that they are not paired."""
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
    """Whether ``v`` is an array of zeros, as at the start of a gradient."""
    for _ in range(3):
        if isinstance(v, Constant):
            return not np.any(v.data)
        node = v.owner
        if node is None:
            return False
        if isinstance(node.op, Alloc):
            v = node.inputs[0]
        elif is_elementwise(node, ps.Second):
            v = node.inputs[1]
        elif isinstance(node.op, DimShuffle):
            v = node.inputs[0]
        else:
            return False
    return False


@rule(Nonzero)
def nonzero(site: Site, x: Array) -> Any:
    """Positions of nonzero elements; their number sets a shape, so the values must be static."""
    return tuple(np.nonzero(site.static(0)))
