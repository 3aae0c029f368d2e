"""What is known of a value before the program runs: its shape, its elements, and what these depend on."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

Lengths = tuple[int | None, ...]


class UnknownStructure(Exception):
    """Which element depends on which cannot be told; its text says why."""


class Known(NamedTuple):
    """A value of the program.

    ``deps`` has a row for each element, in C order, and a column for each element of what is differentiated
    with respect to: True where there may be a derivative; None where there is none at all.
    """

    shape: Lengths
    value: Any = None
    deps: Any = None

    @property
    def full_shape(self) -> tuple[int, ...]:
        """The shape, where each length is known.

        Raises
        ------
        UnknownStructure
            One is not.
        """
        if any(n is None for n in self.shape):
            raise UnknownStructure(
                f"an array of shape {self.shape}, of which a length is not known"
            )
        return tuple(int(n) for n in self.shape if n is not None)

    @property
    def size(self) -> int:
        return prod(self.full_shape)


def constant(value: Any) -> Known:
    """What is known of a value that is given."""
    return Known(np.shape(value) if isinstance(value, np.ndarray | np.generic) else (), value)


def union(parts: Sequence[Any]) -> Any:
    """Dependences on all that ``parts`` depend on, row by row; None among them are no dependences."""
    given = [part for part in parts if part is not None]
    return reduce(operator.add, given) if given else None


def stacked(parts: Sequence[Any]) -> Any:
    """The rows of all ``parts``, one after the other."""
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def rows_at(deps: Any, ids: np.ndarray) -> Any:
    """The rows ``ids`` of ``deps``; -1 for an element that depends on nothing."""
    flat = np.asarray(ids).ravel()
    if flat.size == deps.shape[0] and np.array_equal(flat, np.arange(flat.size)):
        return deps
    rows = np.flatnonzero(flat >= 0)
    return _links(rows, flat[rows], (flat.size, deps.shape[0])) @ deps


def masked(deps: Any, mask: np.ndarray) -> Any:
    """``deps`` without the rows where ``mask`` is False."""
    return deps if mask.all() else sparse.diags(mask.ravel(), dtype=bool, format="csr") @ deps


def gathered(deps: Any, groups: np.ndarray, n: int) -> Any:
    """For each of ``n`` groups the dependences of all rows in it; ``groups`` has the group of each row."""
    flat = np.asarray(groups).ravel()
    return _links(flat, np.arange(flat.size), (n, flat.size)) @ deps


def linked(rows: Any, columns: Any, shape: tuple[int, int], deps: Any) -> Any:
    """For each of ``rows`` the dependences of the row of ``deps`` that stands beside it in ``columns``."""
    return _links(np.asarray(rows), np.asarray(columns), shape) @ deps


def _links(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Any:
    ones = np.ones(len(rows), dtype=bool)
    return sparse.csr_matrix((ones, (rows, columns)), shape=shape, dtype=bool)
