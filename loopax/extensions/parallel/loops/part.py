"""``Part``: states of a loop that read one another, what their step is, and how it is taken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import jax.numpy as jnp

from loopax.extensions.parallel.loops.choice import MOST_NUMBERS
from loopax.extensions.parallel.loops.coordinates import Coordinates
from loopax.extensions.parallel.loops.images import Image
from loopax.extensions.parallel.loops.linear_fractional import LinearFractional
from loopax.extensions.parallel.loops.semirings import InSemiring
from loopax.extensions.parallel.loops.trajectory import Equation, Step
from loopax.lowering.analysis.atoms import Atom


class Method(Enum):
    """How the states of a part are computed."""

    KNOWN = 1  # no step reads them before
    AFFINE = 2  # a recurrence in blocks
    MAPS = 3  # composed maps of positions
    SOLVER = 4  # steps that compose in another closed form
    NEWTON = 5
    ONE_BY_ONE = 6


@dataclass(eq=False)
class Part:
    """The states of ``atom`` in ``n_steps`` steps; ``following`` are the images of the next states.

    ``by_newton`` says that Newton's method was requested, and works; ``is_known``, that the next states
    depend on none before. ``solver`` is the form of steps that are not affine, but can be composed;
    ``places`` is the length of the row that the only state indexes, if it does.
    """

    atom: Atom
    n_steps: int
    by_newton: bool
    following: list[Image]
    shapes: list[tuple[int, ...]]
    dtypes: set[Any]
    is_known: bool
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
        """The operations that make the step not affine, in JAX's terms."""
        return " and ".join(dict.fromkeys(x.broken_by for x in self.following if not x.affine))

    @property
    def has_numbers(self) -> bool:
        """Whether all states have one numeric dtype, so that matrices can be formed."""
        (one, *others) = self.dtypes
        return not others and bool(jnp.issubdtype(one, jnp.number)) and self.coordinates.size > 0

    @property
    def is_smooth(self) -> bool:
        return self.has_numbers and all(jnp.issubdtype(t, jnp.inexact) for t in self.dtypes)

    @property
    def varies(self) -> bool:
        """Whether the linear part differs between steps."""
        return any(x.varying for x in self.following)

    def equation(self, step: Step, row: Any, start: Any, reverse: bool) -> tuple[Equation, Any]:
        """The equation of the part's states, from one row of its steps, and the step's constants."""
        selects = any(x.selects for x in self.following)
        return Equation.of(step, row, self.coordinates, start, reverse, selects)

    @property
    def is_sum(self) -> bool:
        return len(self.following) == 1 and self.following[0].unit and self.is_affine

    @property
    def fits(self) -> bool:
        """Whether the matrices of all steps fit into memory."""
        size = self.coordinates.size
        matrices = self.n_steps if self.varies else 1
        return size * size * self.coordinates.width * matrices <= MOST_NUMBERS

    @property
    def method(self) -> Method:
        if self.is_known:
            return Method.KNOWN
        if self.is_affine and self.fits:
            return Method.AFFINE
        if self.places is not None:
            return Method.MAPS
        if self.solver is not None:
            return Method.SOLVER
        if self.by_newton and self.is_smooth and self.fits:
            return Method.NEWTON
        return Method.ONE_BY_ONE

    @property
    def in_words(self) -> str:
        """Describe the method in words."""
        size, width = self.coordinates.size, self.coordinates.width
        match self.method:
            case Method.KNOWN:
                return "known from its rows"
            case Method.AFFINE:
                kind = "a sum" if self.is_sum else f"an affine recurrence of {size} x {size}"
                return kind + (f" for each of {width}" if width > 1 else "")
            case Method.MAPS:
                return f"by maps of {self.places} places"
            case Method.SOLVER:
                assert self.solver is not None
                return self.solver.in_words
            case Method.NEWTON:
                return "by Newton's method"
        return f"one by one ({self.obstacle})"

    @property
    def obstacle(self) -> str:
        """The reason why the steps are sequential, as a phrase that follows the name."""
        if self.is_affine or not self.fits:
            return "has too many numbers in its matrices"
        if not self.has_numbers:
            return "is not of numbers of one dtype"
        return f"is not affine because of {self.not_affine_by}"
