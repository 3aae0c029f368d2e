"""Inverses, and systems of linear equations. See `matrices.py` for the choice by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import TRUE, Dim, Expr, Index, call, expr, literal
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Small, Value, View, Virtual
from loopax.numba_backend.rules.linalg import written_out as out
from loopax.numba_backend.rules.linalg.matrices import (
    by_size,
    by_size_of,
    nan_unless,
    of_any_size,
    square,
    target_in_c_order,
    typed,
    written_out,
)


@rule(MatrixInverse)
@by_size
def inverse(site: Site, a: Value) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    n, a = square(emit, a), typed(emit, a, dtype)

    if not isinstance(n, int) or not written_out(emit, n, out.EXCHANGED, (n, n)):
        w = _augmented(emit, a, n, n, dtype)
        emit.do("inverse", w, n)
        return _behind(emit, w, n, n, dtype)
    unit = np.full((n, n), literal(0, dtype), dtype=object)
    np.fill_diagonal(unit, literal(1, dtype))
    matrix = emit.in_locals(a, (n, n))
    solution, good = _solved(emit, matrix, n, Small(unit, dtype), dtype)
    with emit.when(expr("not {} and {}", good, out.finite(matrix.elements))):
        emit.fail("np.linalg.LinAlgError", "Singular matrix")
    return Small(out.nan_unless(emit, good, solution.elements, dtype), dtype)


def _solved(emit: Emitter, a: Value, n: Dim, b: Value, dtype: str) -> tuple[Any, Expr]:
    """Solve for the columns of ``b``; also returns whether ``a`` is regular."""
    if written_out(emit, n, out.EXCHANGED, (n, n), b.shape):
        factors, pivots = out.lu_factor(emit, emit.in_locals(a, (n, n)).elements)
        good = emit.temp(out.regular(factors), "regular")
        x = out.exchanged(emit, emit.in_locals(b).elements, pivots)
        x = out.triangular_solve(emit, factors, x, lower=True, unit=True)
        return Small(out.triangular_solve(emit, factors, x, lower=False, unit=False), dtype), good
    return _eliminated(emit, a, n, b, dtype)


def _eliminated(
    emit: Emitter, a: Value, n: Dim, b: Value, dtype: str, triangle: bool | None = None
) -> tuple[Any, Expr]:
    """Eliminate in memory; for a symmetric ``a`` read the lower ``triangle`` (or the upper) alone."""
    m = b.shape[1]
    w = _augmented(emit, a, n, m, dtype)
    b = b if emit.is_small([n, m]) else emit.indexable(b)
    with emit.loops([n, m]) as indices:
        for i, j in indices:
            emit.set(w[i, emit.number(n + j)], emit.read(b, [i, j]))
    if triangle is not None:
        emit.do("mirror", w, n, triangle)
    good = emit.temp(call("solve", w, n), "regular")
    return _behind(emit, w, n, m, dtype), good


def _augmented(emit: Emitter, a: Value, n: Dim, m: Dim, dtype: str) -> Expr:
    """Allocate a matrix for ``a`` and ``m`` additional columns."""
    w = emit.empty([n, emit.number(n + m)], dtype)
    a = a if emit.is_small([n, n]) else emit.indexable(a)
    with emit.loops([n, n]) as indices:
        for i, j in indices:
            emit.set(w[i, j], emit.read(a, [i, j]))
    return w


def _behind(emit: Emitter, w: Expr, n: Dim, m: Dim, dtype: str) -> Virtual:
    """The last ``m`` columns of ``w``, after the first ``n``."""
    return Virtual((n, m), dtype, lambda at: emit.temp(w[at[0], emit.number(n + at[1])]))


def columns(emit: Emitter, b: Value) -> Value:
    """Convert ``b`` to a matrix: a vector becomes one column."""
    if len(b.shape) == 2:
        return b
    if isinstance(b, Small):
        return Small(b.elements.reshape((-1, 1)), b.dtype)
    return Virtual((b.shape[0], 1), b.dtype, lambda at: emit.read(b, at[:1]))


def _prepared(site: Site, a: Value, b: Value) -> tuple[Dim, Value, Value]:
    """The order of the system, its matrix, and its right side as columns, in the result's dtype."""
    emit, dtype = site.emit, site.out.type.dtype
    n, b = square(emit, a), columns(emit, b)
    emit.agree(n, b.shape[0])
    if isinstance(n, int):
        b = _fitted(b, n)
    return n, typed(emit, a, dtype), typed(emit, b, dtype)


def _fitted(b: Value, n: int) -> Value:
    """Give ``b`` the static number of rows ``n``."""
    if isinstance(b.shape[0], int) and b.shape[0] != n:  # a check has raised before the read
        return Virtual((n, b.shape[1]), b.dtype, lambda at: literal(0, b.dtype))
    if isinstance(b, Virtual) and b.shape[0] != n:
        return Virtual((n, *b.shape[1:]), b.dtype, b.at, b.cheap)
    return replace(b, shape=(n, *b.shape[1:])) if isinstance(b, Array) else b


def _finished(site: Site, x: Value, good: Expr) -> Value:
    """Finish a solution: nan where the system is singular, a vector where the output is one."""
    emit, dtype = site.emit, site.out.type.dtype
    if isinstance(x, Small):
        elements = out.nan_unless(emit, good, x.elements, dtype)
        return Small(elements[:, 0] if site.out.type.ndim == 1 else elements, dtype)
    if isinstance(x, Array) and good != TRUE:
        nan_unless(emit, good, x)
        good = TRUE
    column = [0] * (2 - site.out.type.ndim)
    if good == TRUE:
        if not column:
            return x
        return Virtual(x.shape[:1], dtype, lambda at: emit.read(x, [*at, *column]))

    def at(index: Sequence[Index]) -> Expr:
        element = emit.read(x, [*index, *column])
        return emit.temp(expr("{} if {} else {}", element, good, literal(np.nan, dtype)))

    return site.result(Virtual(x.shape[: site.out.type.ndim], dtype, at))


@rule(Solve)
def solve_by_kind(site: Site, a: Value, b: Value) -> Any:
    if site.op.assume_a == "pos":
        return solve_by_cholesky(site, a, b)
    return solve(site, a, b) if site.op.assume_a in ("gen", "sym", "her") else leaf(site, a, b)


@by_size
def solve(site: Site, a: Value, b: Value) -> Any:
    emit, op, dtype = site.emit, site.op, site.out.type.dtype
    n, a, b = _prepared(site, a, b)
    if op.assume_a == "gen":
        return _finished(site, *_solved(emit, a, n, b, dtype))
    if written_out(emit, n, out.EXCHANGED, (n, n), b.shape):
        elements = emit.in_locals(a, (n, n)).elements.copy()
        for i, j in zip(*np.tril_indices(len(elements), -1), strict=True):
            to, from_ = ((j, i), (i, j)) if op.lower else ((i, j), (j, i))
            elements[to] = elements[from_]
        return _finished(site, *_solved(emit, Small(elements, dtype), n, b, dtype))
    return _finished(site, *_eliminated(emit, a, n, b, dtype, op.lower))


@of_any_size
def solve_by_cholesky(site: Site, a: Value, b: Value) -> Any:
    emit, lower, dtype = site.emit, site.op.lower, site.out.type.dtype
    n, a, b = _prepared(site, a, b)
    if written_out(emit, n, out.TRIANGULAR, (n, n), b.shape):
        elements = emit.in_locals(a, (n, n)).elements
        factor, definite = out.cholesky(emit, elements if lower else elements.T, dtype)
        return _finished(site, _solved_by_factor(emit, factor, b, dtype), definite)
    array, x = target_in_c_order(site, 0, a), target_in_c_order(site, 1, b)
    good = emit.temp(call(by_size_of(n, "cholesky"), array.name, lower), "definite")
    _two_solves(emit, n, View(array.name), x, lower)
    return _finished(site, x, good)


@rule(SolveTriangular)
@of_any_size
def solve_triangular(site: Site, a: Value, b: Value) -> Any:
    emit, op, dtype = site.emit, site.op, site.out.type.dtype
    n, a, b = _prepared(site, a, b)
    unit = op.unit_diagonal
    if written_out(emit, n, out.TRIANGULAR, (n, n), b.shape):
        matrix, columns_of_b = emit.in_locals(a, (n, n)).elements, emit.in_locals(b).elements
        elements = out.triangular_solve(emit, matrix, columns_of_b, op.lower, unit)
        return _finished(
            site, Small(elements, dtype), TRUE if unit else out.nonzero_diagonal(matrix)
        )
    x, factor = target_in_c_order(site, 1, b), emit.view(a)
    function, stored_lower = _solver(n, factor, op.lower)
    if unit:
        emit.do(function, factor.name, x.name, stored_lower, unit)
        return _finished(site, x, TRUE)
    return _finished(site, x, call(function, factor.name, x.name, stored_lower, unit))


def _solver(n: Dim, factor: View, lower: bool) -> tuple[str, bool]:
    """The function that solves with a triangular matrix, and which triangle of the array it reads."""
    name = "transposed_solve" if factor.is_transposed else "triangular_solve"
    return by_size_of(n, name), lower != factor.is_transposed


@rule(CholeskySolve)
@of_any_size
def cholesky_solve(site: Site, c: Value, b: Value) -> Any:
    emit, lower, dtype = site.emit, site.op.lower, site.out.type.dtype
    n, c, b = _prepared(site, c, b)
    if written_out(emit, n, out.TRIANGULAR, (n, n), b.shape):
        factor = emit.in_locals(c, (n, n)).elements
        factor = factor if lower else factor.T
        return _finished(site, _solved_by_factor(emit, factor, b, dtype), TRUE)
    x = target_in_c_order(site, 1, b)
    _two_solves(emit, n, emit.view(c), x, lower)
    return _finished(site, x, TRUE)


def _solved_by_factor(emit: Emitter, factor: np.ndarray, b: Value, dtype: str) -> Small:
    """The solution of a system, from the lower Cholesky factor of its matrix, in locals."""
    x = out.triangular_solve(emit, factor, emit.in_locals(b).elements, lower=True, unit=False)
    return Small(out.triangular_solve(emit, factor.T, x, lower=False, unit=False), dtype)


def _two_solves(emit: Emitter, n: Dim, factor: View, x: Array, lower: bool) -> None:
    """Solve in ``x`` with the matrix of the Cholesky factor ``factor``."""
    first, last = (factor, factor.T) if lower else (factor.T, factor)
    for triangle, is_lower in ((first, True), (last, False)):
        function, stored_lower = _solver(n, triangle, is_lower)
        emit.do(function, triangle.name, x.name, stored_lower, False)


READS_ONCE[MatrixInverse] = READS_ONCE[Solve] = lambda node, position: True
READS_ONCE[SolveTriangular] = READS_ONCE[CholeskySolve] = lambda node, position: position == 1
