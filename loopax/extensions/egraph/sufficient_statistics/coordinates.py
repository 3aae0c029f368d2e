"""The constants of rows in coordinates: as few rows as sums over groups can tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.math import Dot, Sum

from loopax.extensions.egraph.sufficient.polynomials import SCATTERS, Search, Sums, index_of

_ENOUGH = 0.7  # of the rows may be left
_WORK = 4e8  # multiplications that a basis may take
_SPREAD = (
    1e-3  # of its size a column has around its mean, or the digits of differences would be lost
)
_FEW = 16  # columns: of so many those that follow from the others are left out, one by one


@dataclass(frozen=True)
class Statistics:
    """What sums over ``n`` rows are of, as fewer.

    Attributes
    ----------
    n
        How many rows there were.
    ones
        What a vector of ones becomes, (m,).
    columns, across
        What constants of n rows, and of n columns, become.
    gathers, scatters
        The nodes whose index has an entry for each row, the same for all rows of a group.
    row_of
        For each row that is left, one of the rows of its group, (m,).
    """

    n: int
    ones: np.ndarray
    columns: dict[Variable, np.ndarray]
    across: dict[Variable, np.ndarray]
    gathers: tuple[Apply, ...]
    scatters: tuple[Apply, ...]
    row_of: np.ndarray


def statistics(graph: FunctionGraph) -> Iterator[Statistics]:
    """The sufficient statistics of a program, where they are few enough to pay."""
    if not any(isinstance(node.op, (Sum, Dot, *SCATTERS)) for node in graph.apply_nodes):
        return
    search = Search(graph)
    for n, sums in search.sums.items():
        of_numbers = [one for one in sums if not one.of.gathers and not one.scatters]
        for some in (sums, of_numbers) if len(of_numbers) < len(sums) else (sums,):
            if some and (found := _statistics(n, some, search.value)) is not None:
                yield found
                break


class _Matrix:
    """Constants side by side, each once, and a column of ones before them."""

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


def _statistics(n: int, sums: Sequence[Sums], value: Any) -> Statistics | None:
    constants = dict.fromkeys(v for one in sums for v in one.of.constants)
    across = dict.fromkeys(v for one in sums for v in one.across)
    gathers = tuple(dict.fromkeys(v for one in sums for v in one.of.gathers))
    scatters = tuple(dict.fromkeys(v for one in sums for v in one.scatters))
    index = [v.data for node in (*gathers, *scatters) for v in index_of(node) if v.type.ndim]
    group = np.zeros(n, int)
    if index:
        group = np.unique(np.stack(index), axis=1, return_inverse=True)[1].reshape(n)
    matrix = _Matrix(n)
    of_columns = {v: matrix.add(value(v)) for v in constants}
    of_across = {v: matrix.add(np.ascontiguousarray(value(v).T)) for v in across}
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
        {v: few[:, k].reshape(len(few), *np.shape(value(v))[1:]) for v, k in of_columns.items()},
        {v: np.ascontiguousarray(few[:, k].T) for v, k in of_across.items()},
        gathers,
        scatters,
        np.array(row_of),
    )


def _is_spread(matrix: np.ndarray) -> bool:
    """Whether columns vary by no little of what they are.

    ``y - mu`` of numbers near 1e8 that differ by 1 is exact in each row, and is not in coordinates.
    """
    size = np.max(np.abs(matrix), axis=0)
    around = np.ptp(matrix, axis=0)
    return bool(np.all((around == 0) | (around >= _SPREAD * size)))


def _coordinates(matrix: np.ndarray) -> np.ndarray:
    """``Q.T @ matrix``, of an orthonormal basis ``Q`` of a space that has its columns."""
    n, m = matrix.shape
    if n <= 2:
        return matrix
    if m > _FEW:
        return np.asarray(np.linalg.qr(matrix, mode="r")) if m < n else matrix
    basis = np.empty((n, 0))
    for column in matrix.T:
        rest = column
        for _ in range(2):  # once more, for what rounding left the first time
            rest = rest - basis @ (basis.T @ rest)
        length = np.linalg.norm(rest)
        if length > 32 * np.finfo(float).eps * np.linalg.norm(column):
            basis = np.column_stack([basis, rest / length])
    return basis.T @ matrix
