"""What runs along an axis: cumulated sums and products, the position of the largest, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax
from pytensor.tensor.special import LogSoftmax, Softmax

from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.literals import dtype_name, joined
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Index, Value, Virtual, shared


@rule(CumOp)
def cumulated(site: Site, x: Value) -> Any:
    emit, axis, dtype = site.emit, site.op.axis, x.dtype
    template = {("add", False): "{0} + {1}", ("mul", False): "{0} * {1}"} | {
        ("add", True): "{0} or {1}",
        ("mul", True): "{0} and {1}",
    }
    expression = template[site.op.mode, dtype == "bool"]
    name = emit.empty(x.shape, dtype)
    x = emit.for_scalar_code(x)
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    start = site.op.mode == "mul"
    with emit.loops(others) as indices:
        for at in indices:
            first = str(start) if dtype == "bool" else f"{dtype_name(dtype)}({int(start)})"
            total = emit.temp(first, "total")
            with emit.block(f"for {(k := emit.local('i'))} in range({x.shape[axis]}):"):
                where = joined([*at[:axis], k, *at[axis:]])
                new = expression.format(total, emit.read(x, [*at[:axis], k, *at[axis:]]))
                emit.line(f"{total} = {new if dtype == 'bool' else f'{dtype_name(dtype)}({new})'}")
                emit.line(f"{name}[{where}] = {total}")
    return Array(name, x.shape, dtype, fresh=True, compact=True)


READS_ONCE[CumOp] = lambda node, position: True


@rule(Argmax)
def argmax(site: Site, x: Value) -> Any:
    """The first position of the largest element, or of the first nan."""
    emit = site.emit
    ndim = len(x.shape)
    axes = list(range(ndim)) if site.op.axis is None else sorted(a % ndim for a in site.op.axis)
    kept = [k for k in range(ndim) if k not in axes]
    lengths = [x.shape[k] for k in axes]
    emit.check(f"not_empty({emit.product(lengths)})")
    x = emit.for_scalar_code(x)
    floats = x.dtype in ("float32", "float64")

    def read(at: Sequence[Index], inner: Sequence[Index]) -> str:
        where: list[Index] = [0] * ndim
        for k, i in zip([*kept, *axes], [*at, *inner], strict=True):
            where[k] = i
        return emit.read(x, where)

    def at(index: Sequence[Index]) -> str:
        best = emit.temp(read(index, [0] * len(axes)), "best")
        found, k = emit.temp("0", "found"), emit.temp("0", "k")
        with emit.loops(lengths) as indices:
            for inner in indices:
                term = read(index, inner)
                nan = f" or ({term} != {term} and {best} == {best})" if floats else ""
                with emit.block(f"if {term} > {best}{nan}:"):
                    emit.line(f"{best}, {found} = {term}, {k}")
                emit.line(f"{k} += 1")
        return found

    return site.result(Virtual(tuple(x.shape[k] for k in kept), "int64", at, cheap=False))


READS_ONCE[Argmax] = lambda node, position: True


@rule(Softmax, LogSoftmax)
def softmax(site: Site, x: Value) -> Any:
    """Their own graph, which subtracts the largest element first."""
    return tuple(site.emit.run(site.op.fgraph, [shared(x)]))
