"""Elementwise ops, and reductions: the loops that everything elementwise is written into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.elemwise import CAReduce, Elemwise

from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_element, expr, literal
from loopax.numba_backend.emit.leaf import converts_scalar, leaf
from loopax.numba_backend.emit.object_mode import object_mode
from loopax.numba_backend.emit.scalars import FOLDS, VECTORIZED, cast, emit_scalar
from loopax.numba_backend.emit.schedule import cycles, folded, ready
from loopax.numba_backend.emit.uses import READS_ONCE, is_fill
from loopax.numba_backend.emit.values import Array, Position, Small, Value, Virtual, small


@rule(ScalarOp)
def scalar(site: Site, *values: Value) -> Any:
    if not converts_scalar(site.op, site.node):
        return object_mode(site, *values)
    operands = [site.emit.scalar(v) for v in values]
    outs = emit_scalar(site.emit, site.op, operands, site.node)
    return tuple(small(o, v.type.dtype) for o, v in zip(outs, site.node.outputs, strict=True))


@rule(Elemwise)
def elemwise(site: Site, *values: Value) -> Any:
    emit, node = site.emit, site.node
    if not converts_scalar(site.op.scalar_op, node):
        return object_mode(site, *values)
    stretched = [v.type.broadcastable for v in node.inputs]
    shape = tuple(
        emit.agree(*[v.shape[k] for v, s in zip(values, stretched, strict=True) if not s[k]] or [1])
        for k in range(site.out.type.ndim)
    )
    if is_fill(site.op):
        return _filled(site, shape, values[1], stretched[1])

    def operand(k: int, at: Any) -> Expr:
        if isinstance(at, Position):
            at = [0] * len(shape) if all(stretched[k]) else at
        else:
            at = [0 if one else i for i, one in zip(at, stretched[k], strict=True)]
        return emit.read(given[k], at)

    def outputs(at: Any) -> list[Expr]:
        operands = [operand(k, at) for k in range(len(given))]
        return emit_scalar(emit, site.op.scalar_op, operands, node)

    def chosen(at: Any) -> Expr:
        """The one branch of a switch that is needed."""
        condition, name = operand(0, at), emit.local("t")
        for k, scope in enumerate(emit.branches(condition), start=1):
            with emit.inside(scope):
                found = cast(operand(k, at), node.inputs[k].type.dtype, site.out.type.dtype)
                emit.set(name, found)
        return name

    if emit.is_small(shape):
        given: Any = [
            emit.in_locals(v, [1 if one else n for n, one in zip(shape, s, strict=True)])
            for v, s in zip(values, stretched, strict=True)
        ]
        found = [np.empty(shape, dtype=object) for _ in node.outputs]
        for at in np.ndindex(*shape):  # type: ignore[arg-type]
            for elements, out in zip(found, outputs(at), strict=True):
                elements[at] = out
        pairs = zip(found, node.outputs, strict=True)
        return tuple(Small(elements, v.type.dtype) for elements, v in pairs)
    given = [emit.indexable(v) for v in values]
    if len(node.outputs) == 1:
        dtype, costs = site.out.type.dtype, [_cost(v) for v in given]
        branches = isinstance(site.op.scalar_op, ps.Switch) and dtype in ("float32", "float64")
        lazy = branches and _is_worth_a_branch(costs[1:])
        one = chosen if lazy else lambda at: outputs(at)[0]
        functions = not lazy and (
            type(site.op.scalar_op) in VECTORIZED or any(map(_has_functions, given))
        )
        if functions:
            given[:] = [emit.dense(v) if _is_gathered(v) else v for v in given]
        cost = None if None in costs else _cycles(site.op.scalar_op, dtype) + sum(costs)
        reads_at_positions = all(
            all(s) or (not any(s) and emit.reads_at_positions(v))
            for v, s in zip(given, stretched, strict=True)
        )
        return site.result(
            Virtual(
                shape,
                dtype,
                one,
                cheap=False,
                cost=cost,
                reads_at_positions=reads_at_positions,
                has_functions=functions,
                is_gathered=any(map(_is_gathered, given)),
            )
        )
    arrays = [emit.empty(shape, v.type.dtype) for v in node.outputs]
    with emit.loops(shape) as indices:
        for at in indices:  # type: ignore[assignment]
            for array, out in zip(arrays, outputs(at), strict=True):
                emit.set(array[at], out)
    return tuple(
        Array(a, shape, v.type.dtype, fresh=True) for a, v in zip(arrays, node.outputs, strict=True)
    )


_BRANCH = 40  # cycles that must be saved, or may be, for each that is predicted wrongly


def _is_worth_a_branch(costs: Sequence[float | None]) -> bool:
    """Whether computing only one of the branches of a switch is faster than to choose between both.

    Where a branch calls a function of the C library, the loop is no vector code in any case, and one of two
    takes half the time of both.
    """
    return None not in costs and sum(costs) >= _BRANCH  # type: ignore[arg-type]


def _has_functions(v: Value) -> bool:
    return isinstance(v, Virtual) and v.has_functions


def _is_gathered(v: Value) -> bool:
    return isinstance(v, Virtual) and v.is_gathered


def _cycles(op: Any, dtype: str) -> float:
    """Of one element: what LLVM vectorizes takes a quarter of the time."""
    return cycles(op) / (4 if dtype in ("float32", "float64") and type(op) in VECTORIZED else 1)


def _cost(v: Value) -> float | None:
    """Cycles that an element takes where it is read, None where reading one may raise."""
    if isinstance(v, Virtual) and not v.cheap:
        return v.cost
    return 1 if isinstance(v, Array) else 0


def _filled(site: Site, shape: tuple[Dim, ...], value: Value, stretched: tuple[bool, ...]) -> Value:
    """``value`` in another shape: of what gave the shape nothing is read."""
    emit, dtype = site.emit, site.out.type.dtype

    def one(at: Any) -> Expr:
        found = emit.read(value, [0 if s else i for i, s in zip(at, stretched, strict=True)])
        return emit_scalar(emit, site.op.scalar_op, [found, found], site.node)[0]

    if emit.is_small(shape):
        value = emit.in_locals(
            value, [1 if s else n for n, s in zip(shape, stretched, strict=True)]
        )
        elements = np.empty(shape, dtype=object)
        for at in np.ndindex(*shape):  # type: ignore[arg-type]
            elements[at] = one(at)
        return Small(elements, dtype)
    if all(stretched):
        all_of_it = one([0] * len(shape))
        return Virtual(shape, dtype, lambda at: all_of_it, element=all_of_it)
    value = emit.indexable(value)
    return site.result(Virtual(shape, dtype, one, cheap=False))


def _not_stretched(node: Apply, position: int) -> bool:
    return node.inputs[position].type.broadcastable == node.outputs[0].type.broadcastable


READS_ONCE[Elemwise] = _not_stretched

# -- reductions ------------------------------------------------------------------------------------

# What combines two terms, and what the empty reduction gives; None where it is an error.
_FLOAT_FOLDS: dict[type, tuple[str, Any]] = {
    ps.Add: ("{0} + {1}", 0),
    ps.Mul: ("{0} * {1}", 1),
    ps.ScalarMaximum: ("np.maximum({0}, {1})", -np.inf),
    ps.ScalarMinimum: ("np.minimum({0}, {1})", np.inf),
}
_IN_ANY_ORDER = {  # of floats
    ps.Add: "plus({0}, {1})",
    ps.Mul: "times({0}, {1})",
    ps.ScalarMaximum: "maximum({0}, {1})",
    ps.ScalarMinimum: "minimum({0}, {1})",
}
# PyTensor's conversion begins the extremes of bools at infinity, which is true: `min` is False whatever it
# is of, `max` True (3.0.7 and 3.3.7).
# `&` is vector code, `and` a branch.
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
    axes = set(range(len(x.shape)) if op.axis is None else op.axis)
    kept = [k for k in range(len(x.shape)) if k not in axes]
    if isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum):
        for k in axes:
            emit.do("not_empty", x.shape[k])

    constant = x.element if isinstance(x, Virtual) and isinstance(op.scalar_op, ps.Add) else None

    def add(total: Expr, term: Expr) -> None:
        emit.set(total, expr(expression, total, term if x.dtype == acc else term.astype(acc)))

    def total(at: list[Index]) -> Expr:
        """One element of the result, by loops over the axes that go."""
        if constant is not None:
            return _cast(emit, _times(emit, constant, [x.shape[k] for k in axes], acc), acc, out)
        so_far = emit.temp(start, "sum")
        with emit.loops([x.shape[k] for k in sorted(axes)]) as indices:
            for inner in indices:
                add(so_far, emit.read(x, _woven(at, kept, inner)))
        return _cast(emit, so_far, acc, out)

    shape = tuple(x.shape[k] for k in kept)
    if not emit.is_small(shape):
        x = emit.indexable(x)
        if constant is not None or not _is_faster_by_rows(x.shape, kept):
            return site.result(Virtual(shape, out, total, cheap=False))
        so_far = emit.empty(shape, acc, "sums")
        with emit.loops(shape) as indices:
            for at in indices:
                emit.set(so_far[at], start)
        with emit.loops(x.shape) as indices:
            for at in indices:
                add(so_far[[at[k] for k in kept]], emit.read(x, at))
        sums = Array(so_far, shape, acc, fresh=True, compact=True)
        if acc == out:
            return sums
        return Virtual(shape, out, lambda at: _cast(emit, emit.read(sums, at), acc, out))
    elements = np.empty(shape, dtype=object)
    if constant is not None:
        elements[...] = total([])
        return Small(elements, out)
    join = FOLDS.get(type(op.scalar_op))
    if join is not None and acc in ("float32", "float64") and emit.is_small(x.shape):
        given = emit.in_locals(x).elements
        for at in np.ndindex(*shape):  # type: ignore[arg-type]
            inner = np.ndindex(*[x.shape[k] for k in sorted(axes)])  # type: ignore[arg-type]
            found = [given[tuple(_woven(list(at), kept, list(i)))] for i in inner]
            terms = [cast(t, x.dtype, acc) for t in found]
            whole = emit.temp(folded(emit, terms, join) if terms else start, "sum")
            when = max((ready(emit, t) for t in terms), default=-1)
            if when >= 0:
                emit.ready[whole] = when + 4 * len(terms).bit_length()
            elements[at] = _cast(emit, whole, acc, out)
        return Small(elements, out)
    for at in np.ndindex(*shape):  # type: ignore[arg-type]
        elements[at] = emit.temp(start, "sum")
    if not kept and emit.is_worth_coalescing(x):
        with emit.loop_over_positions(x.shape) as position:
            add(elements[()], emit.read(x, position))
        elements[()] = _cast(emit, elements[()], acc, out)
        return Small(elements, out)
    # One pass over x, however many sums it goes into.
    with emit.loops([x.shape[k] for k in sorted(axes)]) as indices:
        for inner in indices:
            for at in np.ndindex(*shape):  # type: ignore[arg-type]
                add(elements[at], emit.read(x, _woven(list(at), kept, inner)))
    for at in np.ndindex(*shape):  # type: ignore[arg-type]
        elements[at] = _cast(emit, elements[at], acc, out)
    return Small(elements, out)


READS_ONCE[CAReduce] = lambda node, position: True


def _is_faster_by_rows(shape: Sequence[Dim], kept: Sequence[int]) -> bool:
    """Whether to go through an array in the order in which it lies in memory, with one sum for each column.

    A sum down each column, one after the other, reads with a stride, which is no vector code and of a large
    array a cache line an element: of 300 x 12 it takes 4 times as long, of 1000 x 1000 10 times. A few rows
    are written out by LLVM, and need no memory for sums.
    """
    reduced = [n for k, n in enumerate(shape) if k not in kept]
    if not kept or kept[-1] != len(shape) - 1:
        return False
    few = all(isinstance(n, int) for n in reduced) and np.prod(reduced, dtype=int) <= 4  # type: ignore[arg-type]
    return not few


def _fold(kind: type, dtype: str, acc: str) -> tuple[str, Expr] | None:
    """What joins two terms, and what the sum of none is."""
    if dtype == "bool":
        found = _BOOL_FOLDS.get(kind)
        if found is None and kind in (ps.Add, ps.Mul) and acc == "int64":
            found = _FLOAT_FOLDS[kind]
    elif dtype in ("float32", "float64") or kind in (ps.Add, ps.Mul):
        found = _FLOAT_FOLDS.get(kind) if acc in ("float32", "float64", "int64") else None
    else:
        found = None
    if found is None:
        return None
    expression, start = found
    if acc in ("float32", "float64"):
        expression = _IN_ANY_ORDER.get(kind, expression)
    return expression, literal(start, acc)


def _times(emit: Emitter, term: Expr, lengths: list[Dim], dtype: str) -> Expr:
    """The sum of as many times ``term`` as there are indices; of none it is 0, also for an inf."""
    n = emit.product(lengths)
    several = (term.astype(dtype) * as_element(n).astype(dtype)).astype(dtype)
    if not isinstance(n, int) or n <= 0:
        several = expr("{} if {} > 0 else {}", several, n, literal(0, dtype))
    return emit.temp(several, "sum")


def _cast(emit: Emitter, x: Expr, given: str, wanted: str) -> Expr:
    return x if given == wanted else emit.temp(x.astype(wanted))


def _woven(at: list[Index], kept: list[int], inner: list[Index]) -> list[Index]:
    """The index of the whole, from the part that is kept and the part that is summed over."""
    outer, rest = iter(at), iter(inner)
    return [next(outer) if k in kept else next(rest) for k in range(len(at) + len(inner))]
