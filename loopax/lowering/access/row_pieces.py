"""Rows along the leading axis as pieces: windows of tensors, single rows, fills. Their arithmetic.

    rows 1 to 3 of [fill of 2 rows, window of t]  ->  [fill of 1 row, rows 0 to 1 of t]

`Dims` proves where each row lies; where it cannot, the result is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable

from loopax.ir.sizes import DimExpr, Dims, Window
from loopax.ir.sizes.dim_expr import total

NONE, ONE = DimExpr(), DimExpr(offset=1)


@dataclass(frozen=True)
class Row:
    """One row: a variable with one dimension less."""

    row: Any
    count: DimExpr = ONE


@dataclass(frozen=True)
class Fill:
    """One row ``count`` times; ``value`` is the row, or the common value of its elements."""

    value: Any
    count: DimExpr


Piece = Window | Row | Fill
Rows = tuple[Piece, ...]


def part(dims: Dims, rows: Rows, start: DimExpr, count: DimExpr) -> Rows | None:
    """Take ``count`` rows from ``start`` on; None where the pieces that hold them are not known."""
    least, pieces = dims.at_least, []
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
            n = left
        elif least(left - count):
            n = count
        else:
            return None
        of_piece = cut(piece, start, n)
        if of_piece is None:
            return None
        pieces.append(of_piece)
        start, count = NONE, count - n
    return joined(pieces) if count == NONE else None


def in_window(dims: Dims, rows: Rows, window: Window) -> Rows | None:
    """The rows in a window of the tensor that has ``rows``, None where they are not known."""
    if window.step == 1:
        return part(dims, rows, window.start, window.count)
    window = window.backwards()
    rows_inside = part(dims, rows, window.start, window.count)
    return None if rows_inside is None else backwards(rows_inside)


def aligned(
    dims: Dims, parts: Iterable[tuple[DimExpr, list[Piece]]], rows: Rows
) -> list[tuple[DimExpr, list[Piece]]] | None:
    """Pairs of ``parts``, pieces of equal counts, and the matching pieces of ``rows``; None if unknown.

    Both are cut at the borders of either.
    """
    segments: list[tuple[DimExpr, list[Piece]]] = []
    done = NONE
    for count, together in parts:
        beside = part(dims, rows, done, count)
        if beside is None:
            return None
        start = NONE
        for piece in beside:
            cuts = [cut(p, start, piece.count) for p in together]
            if None in cuts:
                return None
            segments.append((piece.count, [*cuts, piece]))  # type: ignore[list-item]
            start = start + piece.count
        done = done + count
    return segments if done == total(piece.count for piece in rows) else None


def backwards(rows: Rows) -> Rows:
    return joined(p.backwards() if isinstance(p, Window) else p for p in reversed(rows))


def is_zero(piece: Piece) -> bool:
    """Whether all elements are the constant 0."""
    if not isinstance(piece, Fill) or not isinstance(piece.value, Constant):
        return False
    return piece.value.data.size > 0 and not np.any(piece.value.data)


def cut(piece: Piece, start: DimExpr, count: DimExpr) -> Piece | None:
    """Take ``count`` rows of a piece; None where a single row is not the row asked for."""
    if isinstance(piece, Window):
        return piece.part(start, count)
    if isinstance(piece, Fill):
        return replace(piece, count=count)
    return piece if start == NONE and count == ONE else None


def repeated(y: Variable, piece: Piece, count: DimExpr) -> Piece:
    """The row ``y``, described by ``piece``, repeated ``count`` times."""
    if count == ONE:
        return piece
    return Fill(piece.value if isinstance(piece, Fill) else y, count)


def joined(pieces: Iterable[Piece]) -> Rows:
    """Drop empty pieces and merge neighbours that continue one another."""
    merged: list[Piece] = []
    for piece in pieces:
        if piece.count == NONE:
            continue
        if isinstance(piece, Window) and piece.count == ONE and piece.step == -1:
            piece = replace(piece, step=1)
        both = _continued(merged[-1], piece) if merged else None
        if both is None:
            merged.append(piece)
        else:
            merged[-1] = both
    return tuple(merged)


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


def _same(a: Variable, b: Variable) -> bool:
    return a is b or (isinstance(a, Constant) and isinstance(b, Constant) and bool(a.equals(b)))
