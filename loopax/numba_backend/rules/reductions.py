"""Sums, products and extremes over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeVar

import numpy as np
import pytensor.scalar as ps
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.math import MulWithoutZeros

from loopax.facts.axes import raises_of_nothing
from loopax.facts.families import normalized
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_element, expr, literal
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.scalar_expressions import FOLDS, cast
from loopax.numba_backend.emit.scalars import converted
from loopax.numba_backend.emit.schedule import folded, ready
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Small, Value, Virtual, indices_of, is_static

_Index = TypeVar("_Index", bound=Index)

# The combination of two terms, and the value of an empty reduction.
_FLOAT_FOLDS: dict[type, tuple[str, Any]] = {
    ps.Add: ("{0} + {1}", 0),
    ps.Mul: ("{0} * {1}", 1),
    # The product of nothing, and of zeros alone, is 1: the gradient of a product with one zero.
    MulWithoutZeros: ("{0} if {1} == 0 else {0} * {1}", 1),
    ps.ScalarMaximum: ("np.maximum({0}, {1})", -np.inf),
    ps.ScalarMinimum: ("np.minimum({0}, {1})", np.inf),
}
_IN_ANY_ORDER: dict[type, str] = {  # floats in any order
    ps.Add: "plus({0}, {1})",
    ps.Mul: "times({0}, {1})",
    ps.ScalarMaximum: "maximum({0}, {1})",
    ps.ScalarMinimum: "minimum({0}, {1})",
}
# Terms in locals are combined as a tree, by what is ready first.
_JOINS: dict[type, Callable[[Expr, Expr], Expr]] = FOLDS | {
    kind: partial(expr, _IN_ANY_ORDER[kind]) for kind in (ps.ScalarMaximum, ps.ScalarMinimum)
}
_INT_EXTREMES = {
    ps.ScalarMaximum: ("{0} if {0} > {1} else {1}", "min"),
    ps.ScalarMinimum: ("{0} if {0} < {1} else {1}", "max"),
}
# PyTensor's conversion starts the extremes of bools at infinity, which is true: its `min` is always
# False, its `max` True (3.0.7 and 3.3.7). `&` is vector code, `and` a branch.
_BOOL_FOLDS: dict[type, tuple[str, Any]] = {
    ps.AND: ("{0} & {1}", True),
    ps.OR: ("{0} | {1}", False),
    ps.ScalarMinimum: ("{0} & {1}", True),
    ps.ScalarMaximum: ("{0} | {1}", False),
}


@rule(CAReduce)
def reduce(site: Site, x: Value) -> Any:
    emit, op = site.emit, site.op
    out, acc = site.out.type.dtype, getattr(op, "acc_dtype", None) or site.out.type.dtype
    fold = _fold(type(op.scalar_op), x.dtype, acc)
    if fold is None:
        return leaf(site, x)
    expression, start = fold
    axes = set(normalized(op.axis, len(x.shape)))
    remaining_axes = [k for k in range(len(x.shape)) if k not in axes]
    if raises_of_nothing(op):
        for k in axes:
            emit.do("not_empty", x.shape[k])

    constant = x.element if isinstance(x, Virtual) and isinstance(op.scalar_op, ps.Add) else None

    def add(total: Expr, term: Expr) -> None:
        emit.set(total, expr(expression, total, term if x.dtype == acc else term.astype(acc)))

    def total(at: list[Index]) -> Expr:
        """One element of the result, by loops over the reduced axes."""
        if constant is not None:
            return converted(
                emit, _times(emit, constant, [x.shape[k] for k in axes], acc), acc, out
            )
        partial = emit.temp(start, "sum")
        with emit.loops([x.shape[k] for k in sorted(axes)]) as indices:
            for inner in indices:
                add(partial, emit.read(x, _woven(at, remaining_axes, inner)))
        return converted(emit, partial, acc, out)

    shape = tuple(x.shape[k] for k in remaining_axes)
    if not emit.is_small(shape):
        x = emit.indexable(x)
        if constant is not None or not _is_faster_by_rows(x.shape, remaining_axes):
            return site.result(Virtual(shape, out, total, cheap=False, is_gathered=True))
        partial = emit.empty(shape, acc, "sums")
        with emit.loops(shape) as indices:
            for index in indices:
                emit.set(partial[index], start)
        with emit.loops(x.shape) as indices:
            for index in indices:
                add(partial[[index[k] for k in remaining_axes]], emit.read(x, index))
        sums = Array(partial, shape, acc, fresh=True, compact=True)
        if acc == out:
            return sums
        return Virtual(shape, out, lambda at: converted(emit, emit.read(sums, at), acc, out))
    elements = np.empty(shape, dtype=object)
    if constant is not None:
        elements[...] = total([])
        return Small(elements, out)
    join = _JOINS.get(type(op.scalar_op))
    if join is not None and acc in ("float32", "float64") and emit.is_small(x.shape):
        locals_in = emit.in_locals(x).elements
        for at in indices_of(shape):
            reduced = indices_of([x.shape[k] for k in sorted(axes)])
            entries = [locals_in[tuple(_woven(at, remaining_axes, i))] for i in reduced]
            terms = [cast(t, x.dtype, acc) for t in entries]
            whole = emit.temp(folded(emit, terms, join) if terms else start, "sum")
            when = max((ready(emit, t) for t in terms), default=-1)
            if when >= 0:
                emit.ready[whole] = when + 4 * len(terms).bit_length()
            elements[at] = converted(emit, whole, acc, out)
        return Small(elements, out)
    for at in indices_of(shape):
        elements[at] = emit.temp(start, "sum")
    if not remaining_axes and emit.is_worth_coalescing(x):
        with emit.loop_over_positions(x.shape) as position:
            add(elements.item(), emit.read(x, position))
        elements[()] = converted(emit, elements.item(), acc, out)
        return Small(elements, out)
    # One pass over x for all sums.
    with emit.loops([x.shape[k] for k in sorted(axes)]) as indices:
        for inner in indices:
            for at in indices_of(shape):
                add(elements[at], emit.read(x, _woven(at, remaining_axes, inner)))
    for at in indices_of(shape):
        elements[at] = converted(emit, elements[at], acc, out)
    return Small(elements, out)


READS_ONCE[CAReduce] = lambda node, position: True


def _is_faster_by_rows(shape: Sequence[Dim], remaining_axes: Sequence[int]) -> bool:
    """Whether to traverse an array in memory order, with one sum for each column.

    A sum down each column in turn reads with a stride, which prevents vector code and, in a large
    array, loads a cache line for each element: it takes 4 times as long for 300 x 12, and 10 times for
    1000 x 1000. LLVM unrolls a few rows, which need no memory for sums.
    """
    reduced = [n for k, n in enumerate(shape) if k not in remaining_axes]
    innermost = max((k for k, n in enumerate(shape) if n != 1), default=-1)
    if innermost not in remaining_axes:
        return False
    return not (is_static(reduced) and prod(reduced) <= 4)


def _fold(kind: type, dtype: str, acc: str) -> tuple[str, Expr] | None:
    """The combination of two terms, and the value of an empty reduction; None where unknown."""
    if dtype == "bool":
        fold = _BOOL_FOLDS.get(kind)
        if fold is None and kind in (ps.Add, ps.Mul) and acc == "int64":
            fold = _FLOAT_FOLDS[kind]
    elif dtype in ("float32", "float64") or kind in (ps.Add, ps.Mul):
        fold = _FLOAT_FOLDS.get(kind) if acc in ("float32", "float64", "int64") else None
    elif dtype == acc and kind in _INT_EXTREMES:
        expression, end = _INT_EXTREMES[kind]
        return expression, literal(getattr(np.iinfo(acc), end), acc)
    else:
        fold = None
    if fold is None:
        return None
    expression, start = fold
    if acc in ("float32", "float64"):
        expression = _IN_ANY_ORDER.get(kind, expression)
    return expression, literal(start, acc)


def _times(emit: Emitter, term: Expr, lengths: list[Dim], dtype: str) -> Expr:
    """The sum of ``term`` over all indices of ``lengths``; 0 for an empty shape, for inf too."""
    n = emit.product(lengths)
    total = (term.astype(dtype) * as_element(n).astype(dtype)).astype(dtype)
    if not isinstance(n, int) or n <= 0:
        total = expr("{} if {} > 0 else {}", total, n, literal(0, dtype))
    return emit.temp(total, "sum")


def _woven(
    at: Sequence[_Index], remaining_axes: Sequence[int], inner: Sequence[_Index]
) -> list[_Index]:
    """Interleave an index ``at`` of the remaining axes with an index ``inner`` of the reduced ones."""
    outer, reduced = iter(at), iter(inner)
    return [
        next(outer) if k in remaining_axes else next(reduced) for k in range(len(at) + len(inner))
    ]
