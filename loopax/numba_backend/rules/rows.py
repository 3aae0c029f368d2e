"""Traces truncated or padded to a number of rows."""

from __future__ import annotations

from loopax.ir import FitRows, KeepRows
from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.expressions import Dim, call, expr
from loopax.numba_backend.emit.values import Array, Value


@rule(FitRows)
def fit_rows(site: Site, rows: Value, length: Value) -> Array:
    emit = site.emit
    n, n_rows = rows.shape[0], emit.number(call("max", emit.scalar(length), 0), "n")
    n_kept = emit.number(call("min", n, n_rows), "n")
    return _copied(site, rows, n_rows, n_kept, emit.number(n - n_kept), 0)


@rule(KeepRows)
def keep_rows(site: Site, rows: Value, count: Value, length: Value) -> Array:
    emit = site.emit
    n, n_rows = rows.shape[0], emit.number(call("size", emit.scalar(length)), "n", may_raise=True)
    n_kept = emit.number(call("min", emit.scalar(count), n_rows, n), "n")
    if not site.op.last:
        return _copied(site, rows, n_rows, n_kept, 0, 0)
    first, to = emit.number(n - n_kept), emit.number(n_rows - n_kept)
    return _copied(site, rows, n_rows, n_kept, first, to)


def _copied(site: Site, rows: Value, length: Dim, n_kept: Dim, first: Dim, to: Dim) -> Array:
    """Copy ``n_kept`` rows from ``first`` on to row ``to`` of an array of ``length`` rows of zeros."""
    emit = site.emit
    rows = emit.indexable(rows)
    shape = (length, *rows.shape[1:])
    name = emit.empty(shape, rows.dtype)
    emit.set(expr("{}[...]", name), 0)
    with emit.loops((n_kept, *rows.shape[1:])) as indices:
        for i, *row_index in indices:
            source, target = emit.number(first + i), emit.number(to + i)
            emit.set(name[target, *row_index], emit.read(rows, [source, *row_index]))
    return Array(name, shape, rows.dtype, fresh=True)
