"""Sparse Jacobians and Hessians: a product for each colour, and the entries read from the products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.sparse.basic import CSR
from scipy import sparse

from loopax.extensions.sparse_jacobians.colouring import Compression, by_columns, by_rows, symmetric
from loopax.ir.derivatives.graph_derivatives import (
    NO_PUSHFORWARD,
    over_rows,
    pulled_back,
    pushed_forward,
)
from loopax.ir.shapes import lengths


class Plan(NamedTuple):
    """A plan for the blocks of a sparse matrix.

    ``row_sizes`` and ``column_sizes`` are the numbers of elements of the outputs and of the variables.
    """

    compression: Compression
    forward: bool
    row_sizes: tuple[int, ...]
    column_sizes: tuple[int, ...]
    by_rows: Compression | None = None  # the plan for ops without a pushforward


def plan(
    pattern: sparse.csr_matrix,
    row_sizes: Sequence[int],
    column_sizes: Sequence[int],
    is_symmetric: bool = False,
) -> Plan:
    """Choose products for a matrix of ``pattern``: by columns, or by rows if that takes fewer."""
    sizes = tuple(row_sizes), tuple(column_sizes)
    if is_symmetric:
        # An entry that is zero on one side of the diagonal is zero on the other side.
        symmetric_pattern = pattern.multiply(pattern.T)
        return Plan(symmetric(symmetric_pattern), True, *sizes)
    columns, rows = by_columns(pattern), by_rows(pattern)
    forward = columns.passes <= rows.passes
    return Plan(columns if forward else rows, forward, *sizes, by_rows=rows)


def sparse_blocks(plan: Plan, wrt: Sequence[Any], outputs: Sequence[Any]) -> list[list[Any]]:
    """A sparse matrix for each output and each of ``wrt``, with rows and columns in C order.

    Each is in CSR form, with the entries of the pattern.
    """
    if plan.forward and plan.by_rows is not None:
        try:
            return _blocks(plan, wrt, outputs)
        except NO_PUSHFORWARD:
            plan = plan._replace(compression=plan.by_rows, forward=False)
    return _blocks(plan, wrt, outputs)


def _blocks(plan: Plan, wrt: Sequence[Any], outputs: Sequence[Any]) -> list[list[Any]]:
    compression = plan.compression
    if plan.forward:
        tangents = [v.type() for v in wrt]
        products = pushed_forward(wrt, outputs, tangents)
        seeds = _seeds(compression.seeds, tangents, wrt, plan.column_sizes)
    else:
        cotangents = [v.type() for v in outputs]
        products = pulled_back(wrt, outputs, cotangents)
        seeds = _seeds(compression.seeds, cotangents, outputs, plan.row_sizes)
    results = over_rows(products, seeds)
    # A length -1 would be undetermined for an empty pattern, which takes no pass.
    sizes = plan.row_sizes if plan.forward else plan.column_sizes
    lines = [x.reshape((compression.passes, n)) for x, n in zip(results, sizes, strict=True)]
    flat = pt.concatenate(lines, axis=1)
    rows = np.repeat(np.arange(compression.shape[0]), np.diff(compression.indptr))
    row_starts, column_starts = _starts(plan.row_sizes), _starts(plan.column_sizes)
    blocks: list[list[Any]] = []
    for y, r0, r1 in zip(outputs, row_starts, row_starts[1:], strict=False):
        in_rows = (rows >= r0) & (rows < r1)
        blocks.append([])
        for c0, c1 in zip(column_starts, column_starts[1:], strict=False):
            at = np.flatnonzero(in_rows & (compression.indices >= c0) & (compression.indices < c1))
            entries = flat[compression.colours[at], compression.elements[at]].astype(y.type.dtype)
            shape = (r1 - r0, c1 - c0)
            form = sparse.csr_matrix(
                (at, (rows[at] - r0, compression.indices[at] - c0)), shape=shape
            )
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
    """The part of the seeds for each variable, in the shape of the primal variable."""
    starts = _starts(sizes)
    seeds = {}
    for v, x, a, b in zip(variables, like, starts, starts[1:], strict=False):
        part = pt.constant(matrix[:, a:b].astype(v.type.dtype))
        seeds[v] = part if v.type.ndim == 1 else part.reshape((len(matrix), *lengths(x)))
    return seeds
