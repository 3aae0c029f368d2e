"""Factorizations and determinants. See `matrices.py` for the choice by size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LU, LUFactor, PivotToPermutations
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.summary import Det, SLogDet

from loopax.ir.ops.lu_factor import LapackLUFactor
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, call, expr, joined, literal
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Small, Value, small
from loopax.numba_backend.rules.linalg import written_out as out
from loopax.numba_backend.rules.linalg.matrices import (
    by_size,
    by_size_of,
    nan_unless,
    of_any_size,
    room_for_pivots,
    square,
    target_in_c_order,
    typed,
    written_out,
)


@rule(Cholesky)
@of_any_size
def cholesky(site: Site, a: Value) -> Any:
    emit, lower, dtype = site.emit, site.op.lower, site.out.type.dtype
    n, a = square(emit, a), typed(emit, a, dtype)
    if written_out(emit, n, out.TRIANGULAR, (n, n)):
        elements = emit.in_locals(a, (n, n)).elements
        factor, definite = out.cholesky(emit, elements if lower else elements.T, dtype)
        factor = out.nan_unless(emit, definite, factor, dtype)
        return Small(factor if lower else factor.T, dtype)
    array = target_in_c_order(site, 0, a)
    nan_unless(emit, call(by_size_of(n, "cholesky"), array.name, lower), array)
    return array


@rule(LUFactor)
def lu_factor(site: Site, a: Value) -> Any:
    """Drop the pivots of a wide matrix that PyTensor's conversion never writes (3.3.8)."""
    emit, (m, n) = site.emit, a.shape
    is_square = emit.scopes.same(m, n) or (isinstance(m, int) and isinstance(n, int))
    if is_square or emit.scopes.frames:  # a step of a loop checks that it is square
        return _square_lu_factor(site, a)
    factors, pivots = leaf(site, a)
    least = emit.temp(call("min", m, n))
    return factors, _copied_corner(emit, pivots, least)


@by_size
def _square_lu_factor(site: Site, a: Value) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    n, takes_singular = square(emit, a), isinstance(site.op, LapackLUFactor)
    if written_out(emit, n, out.EXCHANGED, (n, n)):
        elements = emit.in_locals(a, (n, n)).elements
        factors, pivots = out.lu_factor(emit, elements, takes_singular)
        typed = [emit.temp(p.astype("int32")) for p in pivots]
        if not takes_singular:
            factors = out.nan_unless(emit, emit.temp(out.regular(factors)), factors, dtype)
        return Small(factors, dtype), small(typed, "int32")
    array, name = target_in_c_order(site, 0, a), room_for_pivots(emit, n)
    emit.do("lu_factor", array.name, name)
    if not takes_singular:
        nan_unless(emit, call("is_regular", array.name), array)
    return array, Array(name, (n,), "int32", fresh=True)


@rule(PivotToPermutations)
def pivot_to_permutations(site: Site, pivots: Value) -> Any:
    emit = site.emit
    array = emit.dense(pivots).name
    order = emit.empty(pivots.shape, "int64")
    emit.do("permutation", array, order)
    if not site.op.inverse:
        back = emit.empty(pivots.shape, "int64")
        emit.do("invert_order", order, back)
        order = back
    return Array(order, pivots.shape, "int64", fresh=True)


@rule(LU)
def lu(site: Site, a: Value) -> Any:
    """Pad a matrix to a square one, since PyTensor's conversion reads beyond others (3.3.7).

    The rows or columns of zeros are never exchanged with a row of ``a``: the first largest element is
    the pivot. The factors of ``a`` are corners of the factors of the padded matrix.
    """
    emit, op = site.emit, site.op
    m, n = a.shape
    if m == n:
        return leaf(site, a)
    least, most = (emit.temp(call(function, m, n)) for function in ("min", "max"))
    padded = emit.empty([most, most], a.dtype)
    emit.set(_corner(padded), 0)
    emit.set(_corner(padded, m, n), emit.dense(a).name)
    outs = leaf(site, Array(padded, (most, most), a.dtype, fresh=True))
    shapes: list[tuple[Dim, ...]] = [(m, least), (least, n)]
    if not op.permute_l:
        shapes.insert(0, (m,) if op.p_indices else (m, m))
    return tuple(
        _copied_corner(emit, factor, *shape) for factor, shape in zip(outs, shapes, strict=True)
    )


def _copied_corner(emit: Emitter, a: Value, *shape: Dim) -> Array:
    name = emit.empty(shape, a.dtype)
    emit.set(_corner(name), _corner(emit.dense(a).name, *shape))
    return Array(name, shape, a.dtype, fresh=True)


@rule(QR)
def qr(site: Site, a: Value) -> Any:
    """Add the rows of zeros below ``R`` that PyTensor's conversion drops (3.3.7)."""
    emit, op, node = site.emit, site.op, site.node
    if op.mode != "r":
        return leaf(site, a)
    factor, *pivots = [v.type for v in node.outputs]
    # The type that it returns, which differs from the declared one.
    types = [factor.clone(shape=(None, factor.shape[1])), *pivots]
    outs = leaf(replace(site, node=Apply(node.op, node.inputs, [t() for t in types])), a)
    rows = emit.dense(outs[0])
    m, n = a.shape
    whole = emit.empty([m, n], rows.dtype)
    emit.set(_corner(whole), 0)
    emit.set(_corner(whole, rows.name.length(0)), rows.name)
    return Array(whole, (m, n), rows.dtype, fresh=True), *outs[1:]


def _corner(array: Expr, *lengths: Dim) -> Expr:
    """The first ``lengths`` elements along the leading axes of ``array``."""
    return array[[expr(":{}", n) for n in lengths] or [Expr(":")]]


# -- determinants -----------------------------------------------------------------------------------


@rule(Det)
@by_size
def det(site: Site, a: Value) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    n, a = square(emit, a), typed(emit, a, dtype)
    if written_out(emit, n, out.EXCHANGED, (n, n)):
        finite = emit.temp(out.finite(emit.in_locals(a, (n, n)).elements), "finite")
        pivots, sign, regular = _pivots_and_sign(emit, a, n, dtype)
        product = _where(regular, joined([sign, *pivots], " * "), literal(0, dtype))
        return small(emit.temp(_where(finite, product, literal(np.nan, dtype))), dtype)
    value = call("determinant", target_in_c_order(site, 0, a).name, room_for_pivots(emit, n))
    return small(emit.temp(value), dtype)


@rule(SLogDet)
@by_size
def slogdet(site: Site, a: Value) -> Any:
    emit, dtype = site.emit, site.out.type.dtype
    n, a = square(emit, a), typed(emit, a, dtype)
    if written_out(emit, n, out.EXCHANGED, (n, n)):
        pivots, sign, regular = _pivots_and_sign(emit, a, n, dtype)
        signs = [_where(expr("{} < 0", p), literal(-1, dtype), literal(1, dtype)) for p in pivots]
        logs = [call("np.log", call("abs", p)) for p in pivots]
        log = joined(logs or [literal(0, dtype)], " + ")
        log = emit.temp(_where(regular, log, literal(-np.inf, dtype)))
        sign = _where(regular, joined([sign, *signs], " * "), literal(0, dtype))
        # The logarithm is infinite or nan if the matrix is not finite: see `runtime.linalg.is_regular`.
        finite = expr("{} < np.inf", log)
        results = (_where(finite, x, literal(np.nan, dtype)) for x in (sign, log))
        return tuple(small(emit.temp(x), dtype) for x in results)
    sign_and_log = emit.temp(
        call("log_determinant", target_in_c_order(site, 0, a).name, room_for_pivots(emit, n))
    )
    return tuple(small(emit.temp(sign_and_log[k]), dtype) for k in range(2))


def _pivots_and_sign(emit: Emitter, a: Value, n: Dim, dtype: str) -> tuple[list[Expr], Expr, Expr]:
    """The pivots, the sign of the row exchanges, and whether no pivot is zero."""
    factors, exchanges = out.lu_factor(emit, emit.in_locals(a, (n, n)).elements)
    plus, minus = literal(1, dtype), literal(-1, dtype)
    signs = [_where(expr("{} == {}", p, k), plus, minus) for k, p in enumerate(exchanges[:-1])]
    regular = emit.temp(out.nonzero_diagonal(factors), "regular")
    return list(factors.diagonal()), emit.temp(joined(signs or [plus], " * ")), regular


def _where(condition: Expr, if_true: Expr, if_false: Expr) -> Expr:
    return expr("{1} if {0} else {2}", condition, if_true, if_false)


for _op in (Cholesky, LUFactor, Det, SLogDet):
    READS_ONCE[_op] = lambda node, position: True
