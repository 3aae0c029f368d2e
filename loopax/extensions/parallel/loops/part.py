"""``Part``: states of a loop that read one another, and what their step is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp

from loopax.extensions.parallel.loops.coordinates import Coordinates
from loopax.extensions.parallel.loops.images import Image
from loopax.extensions.parallel.loops.linear_fractional import LinearFractional
from loopax.extensions.parallel.loops.semirings import InSemiring
from loopax.lowering.analysis.atoms import Atom


@dataclass(eq=False)
class Part:
    """The states of ``atom``; ``following`` are the next ones as images of them.

    ``solver`` says how they follow if not affinely, but in a form whose steps compose; ``places`` is the
    length of the row that the one state is a place in, if it is one.
    """

    atom: Atom
    following: list[Image]
    shapes: list[tuple[int, ...]]
    dtypes: set[Any]
    solver: InSemiring | LinearFractional | None = None
    places: int | None = None

    @cached_property
    def coordinates(self) -> Coordinates:
        return Coordinates.of(self.shapes, self.following)

    @property
    def is_affine(self) -> bool:
        return all(x.affine for x in self.following) and self.has_numbers

    @property
    def not_affine_by(self) -> str:
        """The operations that make it not affine, in JAX's words."""
        return " and ".join(dict.fromkeys(x.broken_by for x in self.following if not x.affine))

    @property
    def has_numbers(self) -> bool:
        """Whether they are numbers of one kind, with which matrices can be made."""
        (one, *others) = self.dtypes
        return not others and bool(jnp.issubdtype(one, jnp.number)) and self.coordinates.size > 0

    @property
    def is_smooth(self) -> bool:
        return self.has_numbers and all(jnp.issubdtype(t, jnp.inexact) for t in self.dtypes)

    @property
    def varies(self) -> bool:
        """Whether the linear part differs from step to step."""
        return any(x.varying for x in self.following)

    @property
    def is_sum(self) -> bool:
        return len(self.following) == 1 and self.following[0].unit and self.is_affine

    def numbers(self, n: int) -> int:
        """How many numbers the matrices of ``n`` steps have."""
        size = self.coordinates.size
        return size * size * self.coordinates.width * (n if self.varies else 1)
