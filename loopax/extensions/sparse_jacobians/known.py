"""``Known``: static structure of a value: its shape, its elements, and their dependences."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

Lengths = tuple[int | None, ...]


class UnknownStructure(Exception):
    """Raised if the dependences of elements are unknown, with the reason as message."""


class Known(NamedTuple):
    """The static structure of a value of the program.

    ``deps`` has a row for each element, in C order, and a column for each element of the inputs of
    differentiation: True where a derivative may exist; None where none does.
    """

    shape: Lengths
    value: Any = None
    deps: Any = None

    @property
    def full_shape(self) -> tuple[int, ...]:
        """The shape as integers.

        Raises `UnknownStructure` if a length is unknown.
        """
        if any(n is None for n in self.shape):
            raise UnknownStructure(f"an array of shape {self.shape}, with an unknown length")
        return tuple(int(n) for n in self.shape if n is not None)

    @property
    def size(self) -> int:
        return prod(self.full_shape)


def constant(value: ArrayLike) -> Known:
    return Known(np.shape(value) if isinstance(value, np.ndarray | np.generic) else (), value)


def union(parts: Sequence[Any]) -> Any:
    """The union of the dependences in ``parts``, row by row; None stands for no dependences."""
    present = [part for part in parts if part is not None]
    return reduce(operator.add, present) if present else None


def stacked(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def rows_at(deps: sparse.csr_matrix, ids: np.ndarray) -> Any:
    """The rows ``ids`` of ``deps``; -1 denotes an element without dependences."""
    flat = np.asarray(ids).ravel()
    if flat.size == deps.shape[0] and np.array_equal(flat, np.arange(flat.size)):
        return deps
    rows = np.flatnonzero(flat >= 0)
    return _links(rows, flat[rows], (flat.size, deps.shape[0])) @ deps


def masked(deps: sparse.csr_matrix, mask: np.ndarray) -> Any:
    """``deps`` with empty rows where ``mask`` is False."""
    return deps if mask.all() else sparse.diags(mask.ravel(), dtype=bool, format="csr") @ deps


def gathered(deps: sparse.csr_matrix, groups: np.ndarray, n: int) -> Any:
    """The union of dependences in each of ``n`` groups; ``groups`` has the group of each row."""
    flat = np.asarray(groups).ravel()
    return _links(flat, np.arange(flat.size), (n, flat.size)) @ deps


def linked(
    rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int], deps: sparse.csr_matrix
) -> Any:
    """Dependences of each of ``rows`` on the row of ``deps`` in ``columns``."""
    return _links(np.asarray(rows), np.asarray(columns), shape) @ deps


def _links(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Any:
    ones = np.ones(len(rows), dtype=bool)
    return sparse.csr_matrix((ones, (rows, columns)), shape=shape, dtype=bool)
