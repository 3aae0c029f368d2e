"""Traces cut or padded to a number of rows."""

from __future__ import annotations

from loopax.ir import FitRows, KeepRows
from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.literals import joined
from loopax.numba_backend.emit.values import Array, Dim, Value


@rule(FitRows)
def fit_rows(site: Site, rows: Value, length: Value) -> Array:
    emit = site.emit
    n, wanted = rows.shape[0], emit.number(f"max({emit.scalar(length)}, 0)", "n")
    kept = emit.number(f"min({n}, {wanted})", "n")
    return _copied(site, rows, wanted, kept, emit.number(f"{n} - {kept}"), 0)


@rule(KeepRows)
def keep_rows(site: Site, rows: Value, count: Value, length: Value) -> Array:
    emit = site.emit
    n, wanted = rows.shape[0], emit.number(f"size({emit.scalar(length)})", "n", may_raise=True)
    kept = emit.number(f"min({emit.scalar(count)}, {wanted}, {n})", "n")
    if not site.op.last:
        return _copied(site, rows, wanted, kept, 0, 0)
    first, to = emit.number(f"{n} - {kept}"), emit.number(f"{wanted} - {kept}")
    return _copied(site, rows, wanted, kept, first, to)


def _copied(site: Site, rows: Value, length: Dim, kept: Dim, first: Dim, to: Dim) -> Array:
    """``length`` rows of zeros, in which those from ``to`` on are ``kept`` rows from ``first`` on."""
    emit = site.emit
    rows = emit.indexable(rows)
    shape = (length, *rows.shape[1:])
    name = emit.empty(shape, rows.dtype)
    emit.line(f"{name}[...] = 0")
    with emit.loops((kept, *rows.shape[1:])) as indices:
        for i, *rest in indices:
            source, target = (i if at == 0 else emit.number(f"{at} + {i}") for at in (first, to))
            emit.line(f"{name}[{joined([target, *rest])}] = {emit.read(rows, [source, *rest])}")
    return Array(name, shape, rows.dtype, fresh=True)
