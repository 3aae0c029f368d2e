"""Sorting, searching and permuting along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import PermuteRowElements
from pytensor.tensor.extra_ops import SearchsortedOp
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.type import vector

from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.expressions import Expr, Index, call
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.statements import Do
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Value, Virtual, shared
from loopax.numba_backend.rules.blockwise import repeated
from loopax.numba_backend.rules.shapes import static_axis
from loopax.numba_backend.runtime.ordering import SHORT


@rule(SortOp, ArgSortOp)
def sort(site: Site, x: Value, *axis_input: Value) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    axis = static_axis(site, axis_input)
    if axis is None or x.dtype.startswith("complex"):
        return leaf(site, x, *axis_input)
    n = x.shape[axis]
    outer_shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    name = emit.empty(x.shape, dtype)
    values, order = emit.empty([n], x.dtype), emit.empty([n], "int64")
    if isinstance(n, int) and n <= SHORT:  # a fourth of the code to compile
        put_in_order = call("insert_in_order", values, order, 0, n)
    else:
        put_in_order = call("sort_order", values, order, emit.empty([n], "int64"))
    x = x if emit.is_small(x.shape) else emit.indexable(x)
    with emit.loops(outer_shape) as indices:
        for at in indices:
            with emit.loops([n]) as positions:
                for (k,) in positions:
                    emit.set(values[k], emit.read(x, [*at[:axis], k, *at[axis:]]))
            emit.add(Do(put_in_order))
            with emit.loops([n]) as positions:
                for (k,) in positions:
                    entry = order[k]
                    entry = entry if isinstance(site.op, ArgSortOp) else values[entry]
                    emit.set(name[*at[:axis], k, *at[axis:]], entry)
    return Array(name, x.shape, dtype, fresh=True, compact=True)


READS_ONCE[SortOp] = READS_ONCE[ArgSortOp] = lambda node, position: position == 0


@rule(PermuteRowElements)
def permuted(site: Site, x: Value, order: Value) -> Any:
    """Read each row in an order, or write it in that order for the inverse."""
    emit = site.emit
    n = emit.agree(x.shape[-1], order.shape[-1])
    row, places = vector(dtype=x.dtype), vector(dtype=order.dtype)
    if len(x.shape) > 1:
        core = site.op.make_node(row, places)
        return repeated(site, core, (x, order), [1, 1], [[n]], [[n]])
    new = row[places].set(row) if site.op.inverse else row[places]
    return site.results(FunctionGraph([row, places], [new]), [shared(x), shared(order)])


@rule(SearchsortedOp)
def searchsorted(site: Site, values: Value, x: Value, *sorter: Value) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    if sorter or values.dtype != x.dtype or x.dtype.startswith("complex"):
        return leaf(site, values, x, *sorter)
    inside = emit.dense(values).name
    right = site.op.side == "right"
    if len(x.shape) == 1 and dtype == "int64" and not emit.is_small(x.shape):
        places = emit.empty(x.shape, dtype)
        emit.do("places_of", emit.dense(x).name, inside, right, places)
        return Array(places, x.shape, dtype, fresh=True)
    x = emit.indexable(x)

    def at(index: Sequence[Index]) -> Expr:
        place = call("place_of", emit.read(x, index), inside, right)
        return emit.temp(place if dtype == "int64" else place.astype(dtype))

    return site.result(Virtual(x.shape, dtype, at, cheap=False))
