"""Ops along an axis: cumulative sums and products, the position of the largest element, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Max
from pytensor.tensor.special import LogSoftmax, Softmax

from loopax.facts.families import normalized
from loopax.ir.ops.greatest import greatest
from loopax.ir.replace import replaced
from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.expressions import Expr, Index, expr, joined, literal, tuple_of
from loopax.numba_backend.emit.statements import Assign
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Value, Virtual, shared


@rule(CumOp)
def cumulated(site: Site, x: Value) -> Any:
    emit, axis, dtype = site.emit, site.op.axis, x.dtype
    is_sum, is_bool = site.op.mode == "add", dtype == "bool"
    symbol = ((" * ", " + "), (" and ", " or "))[is_bool][is_sum]
    name = emit.empty(x.shape, dtype)
    x = emit.for_scalar_code(x)
    outer_shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    with emit.loops(outer_shape) as indices:
        for at in indices:
            total = emit.temp(literal(not is_sum, dtype), "total")
            with emit.repeated(k := emit.local("i"), x.shape[axis]):
                where = [*at[:axis], k, *at[axis:]]
                new = joined([total, emit.read(x, where)], symbol)
                emit.set(total, new if is_bool else new.astype(dtype))
                emit.set(name[where], total)
    return Array(name, x.shape, dtype, fresh=True, compact=True)


READS_ONCE[CumOp] = lambda node, position: True


@rule(Argmax)
def argmax(site: Site, x: Value) -> Any:
    """The first position of the largest element, or of the first nan."""
    emit = site.emit
    ndim = len(x.shape)
    axes = sorted(normalized(site.op.axis, ndim))
    remaining_axes = [k for k in range(ndim) if k not in axes]
    lengths = [x.shape[k] for k in axes]
    emit.check("not_empty", emit.product(lengths))
    x = emit.for_scalar_code(x)
    floats = x.dtype in ("float32", "float64")

    def read(at: Sequence[Index], inner: Sequence[Index]) -> Expr:
        where: list[Index] = [0] * ndim
        for k, i in zip([*remaining_axes, *axes], [*at, *inner], strict=True):
            where[k] = i
        return emit.read(x, where)

    def at(index: Sequence[Index]) -> Expr:
        best = emit.temp(read(index, [0] * len(axes)), "best")
        best_k, k = emit.temp(0, "found"), emit.temp(0, "k")
        is_better = "{1} > {0} or ({1} != {1} and {0} == {0})" if floats else "{1} > {0}"
        with emit.loops(lengths) as indices:
            for inner in indices:
                term = read(index, inner)
                with emit.when(expr(is_better, best, term)):
                    emit.add(Assign((best, best_k), tuple_of([term, k])))
                emit.set(k, k + 1)
        return best_k

    return site.result(Virtual(tuple(x.shape[k] for k in remaining_axes), "int64", at, cheap=False))


READS_ONCE[Argmax] = lambda node, position: True


@rule(Softmax, LogSoftmax)
def softmax(site: Site, x: Value) -> Any:
    """Emit the op's own graph, which subtracts the largest element first; the op itself may not."""
    graph = site.op.fgraph
    (largest,) = (node for node in graph.apply_nodes if isinstance(node.op, Max))
    (row,), axis = largest.inputs, largest.op.axis
    new = pt.squeeze(greatest(row, axis), axis=axis)
    graph = FunctionGraph(graph.inputs, replaced(graph.outputs, {largest.outputs[0]: new}))
    return site.results(graph, [shared(x)])
