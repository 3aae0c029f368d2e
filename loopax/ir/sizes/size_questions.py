"""What a rule may ask while it finds a `Size`: `Sizes` answers, and asks the rules in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from loopax.ir.sizes.size import Size


class RowSizes(Protocol):
    """The lengths of what comes out of a loop."""

    def of(self, at: int, axis: int) -> Size | None:
        """That of output ``at`` along ``axis``, which for a trace is not that of its rows."""


class SizeQuestions(ABC):
    """The sizes in one graph."""

    @abstractmethod
    def of(self, v: Any) -> Size:
        """The value of ``v``, an integer scalar: a number, a tensor or PyTensor's scalar."""

    @abstractmethod
    def length(self, x: Any, axis: int = 0) -> Size:
        """The length of ``x``, a tensor or a typed list, along ``axis``."""

    @abstractmethod
    def at_least(self, size: Size, k: int = 0) -> bool:
        """Whether ``size >= k`` in every run, as far as can be told."""

    @abstractmethod
    def clipped(self, largest: bool, a: Size, b: Size) -> Size:
        """The larger (``largest``) or the smaller of two sizes."""

    @abstractmethod
    def learn(self, size: Size, least: int) -> None:
        """From here on ``size >= least`` is known: an atom and a number, nothing else is kept."""

    @abstractmethod
    def window(self, x: Any, rows: slice, axis: int = 0) -> tuple[Size, Size, int] | None:
        """``(start, count, step)``: what ``rows`` takes of ``x`` along ``axis``; None if nobody can tell.

        ``start`` is the first of ``count`` positions, ``step`` apart; where ``count`` is 0 any position.
        """

    @abstractmethod
    def of_loop(self, node: Any) -> RowSizes:
        """What is known of the rows of the loop of ``node``."""

    @abstractmethod
    def steps(self, node: Any) -> Size:
        """The number of steps of a loop, which is known from here on not to be negative."""
