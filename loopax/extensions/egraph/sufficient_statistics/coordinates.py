"""Coordinates of the constants of rows: the fewest rows with the same sums over groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.math import Dot, Sum

from loopax.extensions.egraph.sufficient_statistics.polynomials import (
    SCATTERS,
    Search,
    Sums,
    index_of,
)

_ENOUGH = 0.7  # the largest ratio of new to old rows
_WORK = 4e8  # the most multiplications of a basis
_SPREAD = (
    1e-3  # the least range of a column, relative to its size, that keeps the digits of differences
)
_FEW = 16  # the most columns of which dependent ones are dropped, one by one


@dataclass(frozen=True)
class Statistics:
    """Constants on fewer rows, with the sums over ``n`` rows of the original ones."""

    n: int  # the number of original rows
    ones: np.ndarray  # the replacement of a vector of ones, (m,)
    # The replacements of constants of n rows, and of n columns.
    columns: dict[Variable, np.ndarray]
    across: dict[Variable, np.ndarray]
    # The nodes whose index has an entry for each row, uniform in a group.
    gathers: tuple[Apply, ...]
    scatters: tuple[Apply, ...]
    row_of: np.ndarray  # an original row in the group of each new row, (m,)


def statistics(graph: FunctionGraph) -> Iterator[Statistics]:
    """Yield the sufficient statistics of a program where they are few enough to pay off."""
    if not any(isinstance(node.op, (Sum, Dot, *SCATTERS)) for node in graph.apply_nodes):
        return
    search = Search(graph)
    for n, sums in search.sums.items():
        without_indices = [
            entry for entry in sums if not entry.polynomial.gathers and not entry.scatters
        ]
        for subset in (sums, without_indices) if len(without_indices) < len(sums) else (sums,):
            if subset and (reduced := _statistics(n, subset, search.value)) is not None:
                yield reduced
                break


class _Matrix:
    """A matrix of a column of ones and distinct constants."""

    def __init__(self, n: int) -> None:
        self.columns = [np.ones((n, 1))]
        self._start: dict[bytes, int] = {}
        self.width = 1

    def add(self, value: np.ndarray) -> slice:
        value = value.reshape(len(value), -1)
        start = self._start.setdefault(value.tobytes(), self.width)
        if start == self.width:
            self.columns.append(value)
            self.width += value.shape[1]
        return slice(start, start + value.shape[1])

    @cached_property
    def whole(self) -> np.ndarray:
        return np.concatenate(self.columns, axis=1)


def _statistics(n: int, sums: Sequence[Sums], value: Callable[..., Any]) -> Statistics | None:
    constants = dict.fromkeys(v for entry in sums for v in entry.polynomial.constants)
    across = dict.fromkeys(v for entry in sums for v in entry.across)
    gathers = tuple(dict.fromkeys(v for entry in sums for v in entry.polynomial.gathers))
    scatters = tuple(dict.fromkeys(v for entry in sums for v in entry.scatters))
    index = [v.data for node in (*gathers, *scatters) for v in index_of(node) if v.type.ndim]
    group = np.zeros(n, int)
    if index:
        group = np.unique(np.stack(index), axis=1, return_inverse=True)[1].reshape(n)
    matrix = _Matrix(n)
    column_slices = {v: matrix.add(value(v)) for v in constants}
    across_slices = {v: matrix.add(np.ascontiguousarray(value(v).T)) for v in across}
    n_groups = int(group.max()) + 1
    if n_groups > _ENOUGH * n or n * matrix.width * min(n, matrix.width) > _WORK:
        return None
    if not _is_spread(matrix.whole):
        return None
    parts, row_of = [], []
    order = np.argsort(group, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(group))[:-1]):
        parts.append(_coordinates(matrix.whole[members]))
        row_of += [members[0]] * len(parts[-1])
    few = np.concatenate(parts)
    if not 2 <= len(few) <= _ENOUGH * n:
        return None
    return Statistics(
        n,
        few[:, 0].copy(),
        {v: few[:, k].reshape(len(few), *np.shape(value(v))[1:]) for v, k in column_slices.items()},
        {v: np.ascontiguousarray(few[:, k].T) for v, k in across_slices.items()},
        gathers,
        scatters,
        np.array(row_of),
    )


def _is_spread(matrix: np.ndarray) -> bool:
    """Whether the range of each column is large enough, relative to its size.

    ``y - mu`` of numbers near 1e8 that differ by 1 is exact in each row, but not in coordinates.
    """
    size = np.max(np.abs(matrix), axis=0)
    around = np.ptp(matrix, axis=0)
    return bool(np.all((around == 0) | (around >= _SPREAD * size)))


def _coordinates(matrix: np.ndarray) -> np.ndarray:
    """``Q.T @ matrix``, for an orthonormal basis ``Q`` of a space that contains its columns."""
    n, m = matrix.shape
    if n <= 2:
        return matrix
    if m > _FEW:
        return np.asarray(np.linalg.qr(matrix, mode="r")) if m < n else matrix
    basis = np.empty((n, 0))
    for column in matrix.T:
        residual = column
        for _ in range(2):  # twice, against rounding
            residual = residual - basis @ (basis.T @ residual)
        length = np.linalg.norm(residual)
        if length > 32 * np.finfo(float).eps * np.linalg.norm(column):
            basis = np.column_stack([basis, residual / length])
    return basis.T @ matrix
