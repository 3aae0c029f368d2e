"""A `Size`: a length or a number of steps, as an affine expression of what nothing more is known of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytensor.graph.basic import Variable

from loopax.ir import Scan


class Length(NamedTuple):
    """The length of a variable along an axis, as an atom."""

    of: Variable
    axis: int


class Clipped(NamedTuple):
    """The larger (``largest``) or smaller of two sizes, as an atom."""

    largest: bool
    a: Size
    b: Size


@dataclass(frozen=True)
class Size:
    """``offset`` and the atoms, with how often each counts."""

    terms: frozenset[tuple[Any, int]] = frozenset()
    offset: int = 0

    @property
    def constant(self) -> int | None:
        """The number that it is, None where it is not the same in every run."""
        return None if self.terms else self.offset

    def __add__(self, other: Size | int) -> Size:
        if isinstance(other, int):
            return Size(self.terms, self.offset + other)
        offset = self.offset + other.offset
        if not (
            self.terms and other.terms
        ):  # most are: without it, half of the time here is for dicts
            return Size(self.terms or other.terms, offset)
        counts = dict(self.terms)
        for atom, k in other.terms:
            counts[atom] = counts.get(atom, 0) + k
        return Size(frozenset((atom, k) for atom, k in counts.items() if k), offset)

    def __mul__(self, k: int) -> Size:
        if not k:
            return Size()
        return Size(frozenset((atom, k * n) for atom, n in self.terms), k * self.offset)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size | int) -> Size:
        if isinstance(other, Size) and self.terms == other.terms:
            return Size(offset=self.offset - other.offset)
        return self + -other


def total(sizes: Iterable[Size]) -> Size:
    """The sum of ``sizes``."""
    found = Size()
    for size in sizes:
        found = found + size
    return found


def counts_steps(atom: Any) -> bool:
    """Whether ``atom`` is the number of steps that a loop has taken before it stopped."""
    node = atom.owner if isinstance(atom, Variable) else None
    return (
        node is not None
        and isinstance(node.op, Scan)
        and node.op.stops
        and atom is node.outputs[-2]
    )
