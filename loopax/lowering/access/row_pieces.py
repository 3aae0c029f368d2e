"""Rows along the leading axis as pieces: windows of tensors, single rows, fills. Their arithmetic.

    rows 1 to 3 of [fill of 2 rows, window of t]  ->  [fill of 1 row, rows 0 to 1 of t]

`Dims` proves where each row lies; where it cannot, there is no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant

from loopax.ir.sizes import DimExpr, Dims

NONE, ONE = DimExpr(), DimExpr(offset=1)


@dataclass(frozen=True)
class Window:
    """``count`` rows of ``source``: row ``start`` and those after it (before it, where step is -1)."""

    source: Any
    start: DimExpr
    count: DimExpr
    step: int


@dataclass(frozen=True)
class Row:
    """One row, a variable of one dimension less."""

    row: Any
    count: DimExpr = ONE


@dataclass(frozen=True)
class Fill:
    """``count`` times the same row; ``value`` is the row, or a scalar that all its elements are."""

    value: Any
    count: DimExpr


Piece = Window | Row | Fill
Rows = tuple[Piece, ...]


def taken(dims: Dims, rows: Rows, start: DimExpr, count: DimExpr) -> Rows | None:
    """``count`` rows from ``start`` on, None where the pieces they lie in are not known."""
    least, found = dims.at_least, []
    for piece in rows:
        if count == NONE:
            break
        n = piece.count
        if least(start - n):
            start = start - n
            continue
        if not least(n - start):
            return None
        left = n - start
        if least(count - left):
            part = left
        elif least(left - count):
            part = count
        else:
            return None
        rows_of_it = cut(piece, start, part)
        if rows_of_it is None:
            return None
        found.append(rows_of_it)
        start, count = NONE, count - part
    return joined(found) if count == NONE else None


def sliced(dims: Dims, rows: Rows, start: DimExpr, count: DimExpr, step: int) -> Rows | None:
    """``count`` rows from ``start`` on, ``step`` apart, which is 1 or -1."""
    if step == 1:
        return taken(dims, rows, start, count)
    found = taken(dims, rows, start - count + 1, count)
    return None if found is None else backwards(found)


def beside(dims: Dims, parts: Any, rows: Rows) -> Any:
    """``parts`` with the rows beside them, cut where either has a border."""
    found: list[tuple[DimExpr, list[Piece]]] = []
    left, right = list(parts), list(rows)
    while left and right:
        (n, together), piece = left.pop(0), right.pop(0)
        m = piece.count
        if dims.at_least(m - n):
            part = n
        elif dims.at_least(n - m):
            part = m
        else:
            return None
        cuts = [cut(p, NONE, part) for p in (*together, piece)]
        if None in cuts:
            return None
        found.append((part, cuts))  # type: ignore[arg-type]
        if part != n:
            rest = [cut(p, part, n - part) for p in together]
            if None in rest:
                return None
            left.insert(0, (n - part, rest))
        if part != m:
            rest_of = cut(piece, part, m - part)
            if rest_of is None:
                return None
            right.insert(0, rest_of)
    return None if left or right else found


def backwards(rows: Rows) -> Rows:
    """The rows in the other order."""
    return joined([_turned(piece) for piece in reversed(rows)])


def is_zero(piece: Piece) -> bool:
    """Whether all elements are the constant 0."""
    if not isinstance(piece, Fill) or not isinstance(piece.value, Constant):
        return False
    return piece.value.data.size > 0 and not np.any(piece.value.data)


def _turned(piece: Piece) -> Piece:
    if not isinstance(piece, Window):
        return piece
    last = piece.start + (piece.count - 1) * piece.step
    return Window(piece.source, last, piece.count, -piece.step)


def cut(piece: Piece, start: DimExpr, count: DimExpr) -> Piece | None:
    """``count`` rows of a piece, None of a single row where they are not that row."""
    if isinstance(piece, Window):
        return replace(piece, start=piece.start + start * piece.step, count=count)
    if isinstance(piece, Fill):
        return replace(piece, count=count)
    return piece if start == NONE and count == ONE else None


def repeated(y: Any, piece: Piece, count: DimExpr) -> Piece:
    """The row ``y``, of which ``piece`` is known, written to ``count`` rows."""
    if count == ONE:
        return piece
    return Fill(piece.value if isinstance(piece, Fill) else y, count)


def joined(pieces: Iterable[Piece]) -> Rows:
    """The pieces, without empty ones, and those that continue one another as one."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.count == NONE:
            continue
        if isinstance(piece, Window) and piece.count == ONE and piece.step == -1:
            piece = replace(piece, step=1)
        both = _continued(found[-1], piece) if found else None
        if both is None:
            found.append(piece)
        else:
            found[-1] = both
    return tuple(found)


def _continued(a: Piece, b: Piece) -> Piece | None:
    if isinstance(a, Window) and isinstance(b, Window) and a.source is b.source:
        steps = {w.step for w in (a, b) if w.count != ONE} or {1, -1}
        for step in steps if len(steps) == 1 or a.count == b.count == ONE else ():
            if a.start + a.count * step == b.start:
                return Window(a.source, a.start, a.count + b.count, step)
        return None
    if isinstance(a, Window) or isinstance(b, Window):
        return None
    one = a.row if isinstance(a, Row) else a.value
    two = b.row if isinstance(b, Row) else b.value
    return Fill(one, a.count + b.count) if _same(one, two) else None


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, Constant) and isinstance(b, Constant) and bool(a.equals(b)))
