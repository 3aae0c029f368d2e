"""Traces cut or padded to a number of rows."""

from __future__ import annotations

from loopax.ir import FitRows, KeepRows
from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.expressions import Dim, call, expr
from loopax.numba_backend.emit.values import Array, Value


@rule(FitRows)
def fit_rows(site: Site, rows: Value, length: Value) -> Array:
    emit = site.emit
    n, wanted = rows.shape[0], emit.number(call("max", emit.scalar(length), 0), "n")
    kept = emit.number(call("min", n, wanted), "n")
    return _copied(site, rows, wanted, kept, emit.number(n - kept), 0)


@rule(KeepRows)
def keep_rows(site: Site, rows: Value, count: Value, length: Value) -> Array:
    emit = site.emit
    n, wanted = rows.shape[0], emit.number(call("size", emit.scalar(length)), "n", may_raise=True)
    kept = emit.number(call("min", emit.scalar(count), wanted, n), "n")
    if not site.op.last:
        return _copied(site, rows, wanted, kept, 0, 0)
    first, to = emit.number(n - kept), emit.number(wanted - kept)
    return _copied(site, rows, wanted, kept, first, to)


def _copied(site: Site, rows: Value, length: Dim, kept: Dim, first: Dim, to: Dim) -> Array:
    """``length`` rows of zeros, in which those from ``to`` on are ``kept`` rows from ``first`` on."""
    emit = site.emit
    rows = emit.indexable(rows)
    shape = (length, *rows.shape[1:])
    name = emit.empty(shape, rows.dtype)
    emit.set(expr("{}[...]", name), 0)
    with emit.loops((kept, *rows.shape[1:])) as indices:
        for i, *rest in indices:
            source, target = emit.number(first + i), emit.number(to + i)
            emit.set(name[target, *rest], emit.read(rows, [source, *rest]))
    return Array(name, shape, rows.dtype, fresh=True)
