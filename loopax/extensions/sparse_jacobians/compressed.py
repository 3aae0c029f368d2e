"""Sparse Jacobians and Hessians: as many products as there are colours, and the entries read off them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.sparse.basic import CSR
from scipy import sparse

from loopax.extensions.sparse_jacobians.colouring import Compression, by_columns, by_rows, symmetric
from loopax.ir.derivatives.of_graphs import (
    NO_PUSHFORWARD,
    over_rows,
    pulled_back,
    pushed_forward,
)
from loopax.ir.shapes import lengths


class Plan(NamedTuple):
    """How the blocks of a sparse matrix are computed.

    ``row_sizes`` and ``column_sizes`` are the numbers of elements of the outputs and of the variables.
    """

    compression: Compression
    forward: bool
    row_sizes: tuple[int, ...]
    column_sizes: tuple[int, ...]
    by_rows: Compression | None = None  # for an op on the way that has a pullback only


def plan(pattern: Any, row_sizes: Any, column_sizes: Any, is_symmetric: bool = False) -> Plan:
    """The fewest products for a matrix of ``pattern``: of columns, or of rows where these are fewer."""
    sizes = tuple(row_sizes), tuple(column_sizes)
    if is_symmetric:
        # An entry that is zero on one side of the diagonal is zero on the other.
        both = pattern.multiply(pattern.T)
        return Plan(symmetric(both), True, *sizes)
    columns, rows = by_columns(pattern), by_rows(pattern)
    forward = columns.passes <= rows.passes
    return Plan(columns if forward else rows, forward, *sizes, by_rows=rows)


def sparse_blocks(plan: Plan, wrt: Sequence[Any], outputs: Sequence[Any]) -> list[list[Any]]:
    """For each output a sparse matrix for each of ``wrt``: rows are its elements, in C order, columns
    theirs.

    Each is a matrix in CSR form of the entries of the pattern.
    """
    if plan.forward and plan.by_rows is not None:
        try:
            return _blocks(plan, wrt, outputs)
        except NO_PUSHFORWARD:
            plan = plan._replace(compression=plan.by_rows, forward=False)
    return _blocks(plan, wrt, outputs)


def _blocks(plan: Plan, wrt: Sequence[Any], outputs: Sequence[Any]) -> list[list[Any]]:
    of = plan.compression
    if plan.forward:
        tangents = [v.type() for v in wrt]
        products = pushed_forward(wrt, outputs, tangents)
        seeds = _seeds(of.seeds, tangents, wrt, plan.column_sizes)
    else:
        cotangents = [v.type() for v in outputs]
        products = pulled_back(wrt, outputs, cotangents)
        seeds = _seeds(of.seeds, cotangents, outputs, plan.row_sizes)
    found = over_rows(products, seeds)
    flat = pt.concatenate([x.reshape((of.passes, -1)) for x in found], axis=1)
    rows = np.repeat(np.arange(of.shape[0]), np.diff(of.indptr))
    row_starts, column_starts = _starts(plan.row_sizes), _starts(plan.column_sizes)
    blocks: list[list[Any]] = []
    for y, r0, r1 in zip(outputs, row_starts, row_starts[1:], strict=False):
        mine = (rows >= r0) & (rows < r1)
        blocks.append([])
        for c0, c1 in zip(column_starts, column_starts[1:], strict=False):
            at = np.flatnonzero(mine & (of.indices >= c0) & (of.indices < c1))
            entries = flat[of.colours[at], of.elements[at]].astype(y.type.dtype)
            shape = (r1 - r0, c1 - c0)
            form = sparse.csr_matrix((at, (rows[at] - r0, of.indices[at] - c0)), shape=shape)
            assert np.array_equal(form.data, at), "entries in another order than the pattern's"
            blocks[-1].append(
                CSR(
                    entries,
                    pt.constant(form.indices.astype("int32")),
                    pt.constant(form.indptr.astype("int32")),
                    pt.constant(np.asarray(shape, dtype="int32")),
                )
            )
    return blocks


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes, dtype=int).tolist()]


def _seeds(
    matrix: np.ndarray, variables: Sequence[Any], like: Sequence[Any], sizes: Sequence[int]
) -> dict[Any, Any]:
    """The part of the seeds for each variable, in the shape of what it is a derivative of."""
    starts = _starts(sizes)
    found = {}
    for v, x, a, b in zip(variables, like, starts, starts[1:], strict=False):
        part = pt.constant(matrix[:, a:b].astype(v.type.dtype))
        found[v] = part if v.type.ndim == 1 else part.reshape((len(matrix), *lengths(x)))
    return found
