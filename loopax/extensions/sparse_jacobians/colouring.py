"""Colouring: groups of columns measured by one product, and the place of each entry in the products.

    columns     columns with an entry in a common row differ: each row of a product has one entry
    symmetric   a star colouring: neighbours differ in colour, and each path of four vertices has three
                colours, so that (i, j) or (j, i), which are equal, is alone in its row of a product

Both are greedy, over several orders of the columns, and keep the best result: the optimum is NP-hard.
On a band of half-width b they find 2 b + 1 colours, the fewest of either kind. Gebremedhin, Manne and
Pothen, What Color Is Your Jacobian? Graph Coloring for Computing Derivatives, SIAM Review 47 (2005),
algorithms 3.1 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

# The most Python steps of a star colouring, some 0.2 us each.
_MANY = 20_000_000


class Compression(NamedTuple):
    """Recovery of a sparse matrix ``A`` from products ``A @ seeds[c]``, a row for each colour ``c``.

    Its entries are at ``indices`` and ``indptr``, as in CSR form; entry ``k`` is element ``(colours[k],
    elements[k])`` of the products.
    """

    seeds: np.ndarray
    colours: np.ndarray
    elements: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    @property
    def passes(self) -> int:
        return len(self.seeds)


def by_columns(pattern: sparse.csr_matrix) -> Compression:
    """Compress a matrix of ``pattern``, of bools in CSR form, by groups of columns.

    >>> import numpy as np
    >>> from scipy import sparse
    >>> from loopax.extensions.sparse_jacobians.colouring import by_columns
    >>> by_columns(sparse.csr_matrix(np.eye(4, dtype=bool))).seeds
    array([[1., 1., 1., 1.]])
    """
    pattern = _sorted(pattern)
    colour = column_colours(pattern)
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    return _compression(pattern, colour, colour[pattern.indices], rows)


def by_rows(pattern: sparse.csr_matrix) -> Compression:
    """Compress a matrix by groups of rows: row ``c`` of the products is ``seeds[c] @ A``."""
    pattern = _sorted(pattern)
    colour = column_colours(_sorted(pattern.T))
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    return _compression(pattern, colour, colour[rows], pattern.indices)


def symmetric(pattern: sparse.csr_matrix) -> Compression:
    """Compress a symmetric matrix by the groups of columns of a star colouring.

    >>> import numpy as np
    >>> from scipy import sparse
    >>> from loopax.extensions.sparse_jacobians.colouring import symmetric
    >>> arrow = np.eye(9, dtype=bool)
    >>> arrow[-1] = arrow[:, -1] = True
    >>> symmetric(sparse.csr_matrix(arrow)).passes
    2
    """
    pattern = _sorted(pattern)
    neighbours = _neighbours(pattern)
    by_degree = np.argsort([-len(adjacent) for adjacent in neighbours], kind="stable")
    orders = [range(len(neighbours)), by_degree]
    if sum(len(neighbours[w]) for adjacent in neighbours for w in adjacent) > _MANY:
        return by_columns(pattern)
    colour = _best(lambda order: _star(neighbours, order), orders)
    direct = by_columns(pattern)
    if direct.passes <= colour.max(initial=-1) + 1:
        return direct
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    columns = pattern.indices
    # Number of entries of row i with the colour of column j: where it is 1, (i, j) is read in row i.
    width = int(colour.max(initial=-1)) + 1
    met = np.zeros((pattern.shape[0], width), dtype=np.int64)
    np.add.at(met, (rows, colour[columns]), 1)
    alone = met[rows, colour[columns]] == 1
    assert np.all(alone | (met[columns, colour[rows]] == 1)), "no star colouring"
    colours = np.where(alone, colour[columns], colour[rows])
    elements = np.where(alone, rows, columns)
    return _compression(pattern, colour, colours, elements)


def _compression(
    pattern: sparse.csr_matrix, colour: np.ndarray, colours: np.ndarray, elements: np.ndarray
) -> Compression:
    seeds = np.zeros((int(colour.max(initial=-1)) + 1, len(colour)))
    seeds[colour, np.arange(len(colour))] = 1.0
    at = pattern.indices.astype("int32"), pattern.indptr.astype("int32")
    return Compression(seeds, colours, elements, *at, pattern.shape)


def _sorted(pattern: sparse.spmatrix) -> Any:
    matrix = sparse.csr_matrix(pattern, dtype=bool)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def column_colours(pattern: sparse.csr_matrix) -> np.ndarray:
    """A colour for each column, such that columns with an entry in a common row differ."""
    by_column = pattern.tocsc()
    n = pattern.shape[1]
    rows_of = [by_column.indices[by_column.indptr[j] : by_column.indptr[j + 1]] for j in range(n)]
    densest = int(np.diff(pattern.indptr).max(initial=0))  # a lower bound of the colours
    if densest == n:
        return np.arange(n)
    by_degree = np.argsort([-len(rows) for rows in rows_of], kind="stable")

    def coloured(order: Sequence[int]) -> np.ndarray:
        met: list[set[int]] = [set() for _ in range(pattern.shape[0])]
        colour = np.zeros(n, dtype=np.int64)
        for j in order:
            used: set[int] = set().union(*(met[i] for i in rows_of[j]))
            colour[j] = next(c for c in range(n) if c not in used)
            for i in rows_of[j]:
                met[i].add(int(colour[j]))
        return colour

    return _best(coloured, [range(n), by_degree], densest)


def neighbour_colours(pattern: sparse.csr_matrix) -> np.ndarray:
    """A colour for each column of a symmetric matrix, such that neighbours differ."""
    neighbours = _neighbours(_sorted(pattern))
    n = len(neighbours)

    def coloured(order: Sequence[int]) -> np.ndarray:
        colour = np.full(n, -1, dtype=np.int64)
        for v in order:
            used = {int(colour[w]) for w in neighbours[v]}
            colour[v] = next(c for c in range(n) if c not in used)
        return colour

    by_degree = np.argsort([-len(adjacent) for adjacent in neighbours], kind="stable")
    return np.asarray(_best(coloured, [range(n), by_degree]))


def _best(
    coloured: Callable[[Any], np.ndarray], orders: Sequence[Any], least: int = 0
) -> np.ndarray:
    """The colouring with the fewest colours over all orders, or the first with at most ``least``."""
    colourings = []
    for order in orders:
        colourings.append(coloured(order))
        if colourings[-1].max(initial=-1) + 1 <= least:
            break
    return min(colourings, key=lambda colour: int(colour.max(initial=-1)))


def _neighbours(pattern: sparse.csr_matrix) -> list[list[int]]:
    return [
        [int(j) for j in pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]] if j != i]
        for i in range(pattern.shape[0])
    ]


def _star(neighbours: Sequence[Sequence[int]], order: Sequence[int]) -> np.ndarray:
    """Algorithm 4.1: forbid colours that complete a path of four vertices in two colours."""
    n = len(neighbours)
    colour = [-1] * n
    for v in order:
        forbidden = set()
        for w in neighbours[v]:
            own = colour[w]
            if own >= 0:
                forbidden.add(own)
            for x in neighbours[w]:
                if x == v or colour[x] < 0 or colour[x] in forbidden:
                    continue
                # While w has no colour, its neighbours must differ, since w may get any colour later.
                if own < 0 or any(y != w and colour[y] == own for y in neighbours[x]):
                    forbidden.add(colour[x])
        colour[v] = next(c for c in range(n) if c not in forbidden)
    return np.asarray(colour, dtype=np.int64)
