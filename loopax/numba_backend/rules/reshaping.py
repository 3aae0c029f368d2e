"""Ops that give the same elements other axes: ``Reshape``, ``JoinDims``, ``SplitDims``.

Leading and trailing axes that stay are indexed directly. Changed axes share the position in C order:
if they were one axis before, no copy and no division is needed. An array of dynamic lengths is
viewed by NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape

from loopax.facts.elementwise import is_elementwise
from loopax.facts.shapes import entries_of
from loopax.ir.sizes import asked_length
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_dim, call, expr, tuple_of
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Small, Value, is_cheap, is_static, reindexed


@rule(Reshape)
def reshape(site: Site, x: Value, dims: Value) -> Any:
    emit = site.emit
    lengths = [as_dim(emit.read(dims, [k])) for k in range(site.out.type.ndim)]
    declared = site.out.type.shape
    lengths = [w if d is None else d for w, d in zip(lengths, declared, strict=True)]
    total = emit.product(x.shape)
    shape = site.node.inputs[1]
    if not is_static(lengths) and all(map(_is_length, entries_of(shape) or [shape])):
        emit.check("same_size", total, emit.product(lengths))
        return _reshaped(site, x, lengths)
    return _reshaped(site, x, _completed(emit, lengths, total))


def _is_length(v: Variable) -> bool:
    """Whether ``v`` is computed from lengths alone, so that it is not -1, the inferred length."""
    if isinstance(v, Constant):
        return bool(np.all(v.data >= 0))
    if asked_length(v) is not None:
        return True
    return is_elementwise(v.owner, ps.Mul, ps.Add, ps.Identity) and all(
        map(_is_length, v.owner.inputs)
    )


def _completed(emit: Emitter, lengths: list[Dim], total: Dim) -> list[Dim]:
    """Replace a length of -1 by the inferred length, and check the shape."""
    if is_static(lengths) and isinstance(total, int):
        known_size = emit.product([n for n in lengths if n != -1])
        assert isinstance(known_size, int)
        completed: list[Dim] = [total // max(known_size, 1) if n == -1 else n for n in lengths]
        if (
            emit.product(completed) != total
            or lengths.count(-1) > 1
            or (known_size == 0 and -1 in lengths)
        ):
            emit.fail("ValueError", "cannot reshape array: its size is another one")
        return completed
    if all(n != -1 for n in lengths if isinstance(n, int)) and is_static(lengths):
        emit.check("same_size", total, emit.product(lengths))
        return list(lengths)
    if lengths.count(-1) == 1:
        other_lengths = [n for n in lengths if n != -1]
        if is_static(other_lengths):
            known_size = emit.product(other_lengths)
            inferred = emit.temp(call("left_over", total, known_size), "n")
            return [inferred if n == -1 else n for n in lengths]
    # Any of the lengths may be -1 at run time.
    whole = emit.temp(prod(call("np.int64", n) for n in lengths), "n")
    return [emit.temp(call("length_of", n, total, whole), "n") for n in lengths]


def _reshaped(site: Site, x: Value, shape: Sequence[Dim]) -> Any:
    emit = site.emit
    if isinstance(x, Small) and emit.is_small(shape) and x.elements.size == emit.product(shape):
        return Small(x.elements.reshape(shape), x.dtype)
    x = emit.indexable(x)
    if isinstance(x, Array) and not (is_static(x.shape) and is_static(shape)):
        # Not element by element, since a division by a dynamic length dominates: doubling 120,000
        # elements took 0.55 ms that way, and takes 0.03.
        name = emit.temp(expr("{}.reshape({})", emit.contiguous(x), tuple_of(shape)), "a")
        return Array(name, tuple(shape), x.dtype, compact=True)
    first, last = _common(emit, x.shape, shape)
    old, new = x.shape[first : len(x.shape) - last], shape[first : len(shape) - last]

    def split(at: Sequence[Index], n_middle: int) -> tuple[list[Index], list[Index], list[Index]]:
        at = list(at)
        return at[:first], at[first : first + n_middle], at[first + n_middle :]

    if sum(n != 1 for n in old) > 1 and sum(n != 1 for n in new) <= 1:
        # Several axes become one: a loop over the source needs no division.
        name = emit.empty(shape, x.dtype)
        with emit.loops(x.shape) as indices:
            for source in indices:
                before, middle, after = split(source, len(old))
                position = _raveled(emit, middle, old)
                ravelled = [position if n != 1 else 0 for n in new]
                emit.set(name[*before, *ravelled, *after], emit.read(x, source))
        return Array(name, tuple(shape), x.dtype, fresh=True, compact=True)

    def at(index: Sequence[Index]) -> Expr:
        before, middle, after = split(index, len(new))
        position = _raveled(emit, middle, new)
        return emit.read(x, [*before, *_unraveled(emit, position, old), *after])

    cheap = is_cheap(x) and sum(n != 1 for n in old) <= 1
    return site.result(reindexed(x, shape, at, run=emit.run_of(x), cheap=cheap))


READS_ONCE[Reshape] = lambda node, position: position == 0


def _common(emit: Emitter, old: Sequence[Dim], new: Sequence[Dim]) -> tuple[int, int]:
    """The numbers of leading and trailing axes that stay."""
    most = min(len(old), len(new))
    first = 0
    while first < most and emit.scopes.same(old[first], new[first]):
        first += 1
    last = 0
    while last < most - first and emit.scopes.same(old[-1 - last], new[-1 - last]):
        last += 1
    return first, last


def _raveled(emit: Emitter, at: Sequence[Index], dims: Sequence[Dim]) -> Index:
    """The position of an index in C order."""
    position: Index = 0
    for i, n in zip(at, dims, strict=True):
        if n != 1:
            position = emit.number(i if position == 0 else position * n + i)
    return position


def _unraveled(emit: Emitter, position: Index, dims: Sequence[Dim]) -> list[Index]:
    """The index of a position in C order."""
    index: list[Index] = [0] * len(dims)
    axes = [k for k, n in enumerate(dims) if n != 1]
    for k in reversed(axes):
        n = dims[k]
        if k == axes[0]:
            index[k] = position
        else:
            index[k] = emit.number(position % n)
            position = emit.number(position // n)
    return index


@rule(JoinDims)
def join_dims(site: Site, x: Value) -> Any:
    start, n = site.op.start_axis, site.op.n_axes
    whole = site.emit.product(x.shape[start : start + n])
    return _reshaped(site, x, [*x.shape[:start], whole, *x.shape[start + n :]])


@rule(SplitDims)
def split_dims(site: Site, x: Value, dims: Value) -> Any:
    emit, axis = site.emit, site.op.axis
    count = site.out.type.ndim - len(x.shape) + 1
    declared = site.out.type.shape[axis : axis + count]
    parts = [as_dim(emit.read(dims, [k])) for k in range(count)]
    parts = [p if d is None else d for p, d in zip(parts, declared, strict=True)]
    parts = _completed(emit, parts, x.shape[axis])
    return _reshaped(site, x, [*x.shape[:axis], *parts, *x.shape[axis + 1 :]])


READS_ONCE[JoinDims] = READS_ONCE[SplitDims] = lambda node, position: position == 0
