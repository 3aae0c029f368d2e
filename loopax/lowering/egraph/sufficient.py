"""Sufficient statistics: rows of constants of which sums see little, as fewer rows.

    sum((y - X @ b)**2), X of 2000 rows and 25 columns   ->  the same of 27 rows

Each row of a vector may be a polynomial in the constants of that row, whose coefficients are one for all
rows of a group: numbers, or what a constant index reads for them (``a[group]``). Sums over groups of such
polynomials of degree 2 are inner products of the constants, and of these a coordinate in an orthonormal
basis ``Q`` of their span says all: the constants ``C`` of a group become ``Q.T @ C``, and the program stays
what it is, of as many rows as the constants of the groups have dimensions. What is of lower degree is
multiplied by a vector of ones first, which is one of the constants.

No normal equations are formed: with ``A = Q R``, ``|A p|`` becomes ``|R p|``, as in least squares by QR,
and differs from it by what a rounding of the constants makes of it.

The rules are in `rules/sufficient.py`. Here is what they cannot do: the constants of a program are found,
and their coordinates computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from loopax.ir.compat import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.lowering.redundancy.fold_constants import known_values

LEAST = 32  # rows: of fewer there is nothing to gain
_ENOUGH = 0.7  # of the rows may be left
_WORK = 4e8  # multiplications that a basis may take
_SPREAD = (
    1e-3  # of its size a column has around its mean, or the digits of differences would be lost
)
_FEW = 16  # columns: of so many those that follow from the others are left out, one by one
_GATHERS = AdvancedSubtensor, AdvancedSubtensor1
_SCATTERS = AdvancedIncSubtensor, AdvancedIncSubtensor1


class Polynomial(NamedTuple):
    """What the rows of a vector are: of which degree, of which constants and gathers, in order."""

    degree: int
    constants: tuple[Variable, ...] = ()
    gathers: tuple[Apply, ...] = ()


class Sums(NamedTuple):
    """A node that sums rows: of a polynomial, of what is read or written where, across which matrix."""

    of: Polynomial
    across: tuple[Variable, ...] = ()
    scatters: tuple[Apply, ...] = ()


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
    """Those of a program, where they are few enough to pay."""
    if not any(isinstance(node.op, (Sum, Dot, *_SCATTERS)) for node in graph.apply_nodes):
        return
    search = _Search(graph)
    for n, sums in search.sums.items():
        of_numbers = [one for one in sums if not one.of.gathers and not one.scatters]
        for some in (sums, of_numbers) if len(of_numbers) < len(sums) else (sums,):
            if some and (found := _statistics(n, some, search.value)) is not None:
                yield found
                break


# -- which sums there are ------------------------------------------------------------------------------


def length_of(v: Any) -> int | None:
    """How many rows a vector has, (n,) or (n, 1), where it has enough of them and is of doubles."""
    shape = getattr(v.type, "shape", ())
    if len(shape) not in (1, 2) or shape[1:] not in ((), (1,)) or v.type.dtype != "float64":
        return None
    return shape[0] if shape[0] is not None and shape[0] >= LEAST else None


def is_layout(node: Apply) -> bool:
    """Whether a node makes (n,) of (n, 1), or the other way round."""
    if not isinstance(node.op, DimShuffle) or node.op.new_order not in ((0,), (0, "x")):
        return False
    n = length_of(node.inputs[0])
    return n is not None and n == length_of(node.outputs[0])


class _Search:
    """The sums of a graph whose operands are polynomials, by how many rows these have."""

    def __init__(self, graph: FunctionGraph) -> None:
        self._values = known_values(graph, {})
        self._of: dict[Variable, Polynomial] = {}
        self.sums: dict[int, list[Sums]] = {}
        for node in graph.toposort():
            if node.outputs[0] in self._values:
                continue
            if (found := self._polynomial(node)) is not None:
                self._of[node.outputs[0]] = found
            if (sums := self._sums(node)) is not None:
                n, found_sums = sums
                self.sums.setdefault(n, []).append(found_sums)

    def value(self, v: Any) -> Any:
        """The value of what is constant, None of what is not."""
        return v.data if isinstance(v, Constant) else self._values.get(v)

    def of(self, v: Any) -> Polynomial | None:
        if (value := self.value(v)) is None:
            return self._of.get(v)
        if length_of(v) is None or not np.all(np.isfinite(value)):
            return None
        return Polynomial(1, (v,))

    def _polynomial(self, node: Apply) -> Polynomial | None:
        op: Any = node.op
        n = length_of(node.outputs[0])
        if n is None or len(node.outputs) > 1:
            return None
        if is_layout(node) or isinstance(op, CheckAndRaise):
            return self.of(node.inputs[0])
        if is_gather(node):
            return Polynomial(0, gathers=(node,))
        if isinstance(op, Dot):
            return (
                Polynomial(1, tuple(node.inputs[:1])) if self._is_matrix(node.inputs[0]) else None
            )
        return self._elementwise(node) if isinstance(op, Elemwise) else None

    def _elementwise(self, node: Apply) -> Polynomial | None:
        scalar: Any = node.op.scalar_op  # type: ignore[attr-defined]
        parts = [Polynomial(0) if _is_number(v) else self.of(v) for v in node.inputs]
        found = [one for one in parts if one is not None]
        if len(found) < len(parts):
            return None
        degrees = [one.degree for one in found]
        if isinstance(scalar, ps.Add | ps.Sub | ps.Neg):
            degree = max(degrees)
        elif isinstance(scalar, ps.Mul):
            degree = sum(degrees)
        elif isinstance(scalar, ps.Sqr):
            degree = 2 * degrees[0]
        elif isinstance(scalar, ps.TrueDiv):
            degree = degrees[0] + 3 * degrees[1]
        else:
            degree = 3 * sum(degrees)
        if degree > 2:
            return None
        constants = dict.fromkeys(v for one in found for v in one.constants)
        gathers = dict.fromkeys(v for one in found for v in one.gathers)
        return Polynomial(degree, tuple(constants), tuple(gathers))

    def _sums(self, node: Apply) -> tuple[int, Sums] | None:
        op: Any = node.op
        if isinstance(op, Sum) and node.outputs[0].type.ndim == 0:
            x, across, scatters = node.inputs[0], (), ()
        elif isinstance(op, Dot) and self._is_matrix(node.inputs[0]):
            across, x, scatters = (node.inputs[0],), node.inputs[1], ()
        elif is_scatter(node):
            x, across, scatters = node.inputs[1], (), (node,)
        else:
            return None
        n = length_of(x)
        if n is None or self.value(x) is not None or (found := self.of(x)) is None:
            return None
        if across and (found.degree > 1 or np.shape(self.value(across[0]))[1] != n):
            return None
        return n, Sums(found, across, scatters)

    def _is_matrix(self, v: Any) -> bool:
        value = self.value(v)
        is_one = value is not None and v.type.dtype == "float64" and np.ndim(value) == 2
        return is_one and bool(np.all(np.isfinite(value)))


def _is_number(v: Any) -> bool:
    return all(n == 1 for n in v.type.shape)


def is_gather(node: Apply) -> bool:
    """Whether a node reads an entry for each row, at constant places."""
    n = length_of(node.outputs[0])
    is_one = isinstance(node.op, _GATHERS) and node.outputs[0].type.ndim == 1 and n is not None
    return is_one and _is_index(node.inputs[1:], n)


def is_scatter(node: Apply) -> bool:
    """Whether a node adds rows to entries at constant places."""
    if not isinstance(node.op, _SCATTERS) or node.op.set_instead_of_inc:
        return False
    n = length_of(node.inputs[1])
    return n is not None and node.inputs[1].type.ndim == 1 and _is_index(node.inputs[2:], n)


def _is_index(index: Sequence[Any], n: int | None) -> bool:
    return bool(index) and all(
        isinstance(v, Constant) and v.data.dtype.kind in "iu" and v.data.shape in ((), (n,))
        for v in index
    )


def at_rows(node: Apply, rows: np.ndarray) -> Apply:
    """A gather or a scatter with the entries of its index at ``rows``."""
    index = [
        type(v)(v.type.clone(shape=rows.shape), v.data[rows]) if v.type.ndim else v
        for v in _index_of(node)
    ]
    first = node.inputs[: len(node.inputs) - len(index)]
    if len(first) == 2:
        first = [first[0], first[1].type.clone(shape=rows.shape)()]
    return node.op.make_node(*first, *index)


def _index_of(node: Apply) -> list[Any]:
    return node.inputs[2 if isinstance(node.op, _SCATTERS) else 1 :]


# -- what they see ---------------------------------------------------------------------------------------


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
    index = [v.data for node in (*gathers, *scatters) for v in _index_of(node) if v.type.ndim]
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
        return np.linalg.qr(matrix, mode="r") if m < n else matrix
    basis = np.empty((n, 0))
    for column in matrix.T:
        rest = column
        for _ in range(2):  # once more, for what rounding left the first time
            rest = rest - basis @ (basis.T @ rest)
        length = np.linalg.norm(rest)
        if length > 32 * np.finfo(float).eps * np.linalg.norm(column):
            basis = np.column_stack([basis, rest / length])
    return basis.T @ matrix
