"""What a rule may ask while it finds the rows of a tensor: `Pieces` answers, and asks the rules in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from loopax.ir.sizes import DimExpr
from loopax.lowering.access.piece_expressions import Expressions
from loopax.lowering.access.row_pieces import Piece, Rows


class RowQuestions(Expressions, ABC):
    """The rows of the tensors of one graph."""

    @abstractmethod
    def of(self, x: Any) -> Rows:
        """The rows of ``x``, a tensor with a leading axis."""

    @abstractmethod
    def nodes(self, x: Any) -> int:
        """How many nodes make ``x`` of the sources of its rows; 0 where it is its own source."""

    @abstractmethod
    def asked(self, x: Any) -> tuple[Rows, int]:
        """Both."""

    @abstractmethod
    def itself(self, x: Any) -> Rows:
        """``x`` as a window of the first tensor of its rows: for a cut that nobody knows more of."""

    @abstractmethod
    def uniform(self, v: Any) -> Any:
        """The scalar that all elements of ``v`` are, None where nobody knows one."""

    @abstractmethod
    def as_row(self, v: Any) -> Piece:
        """``v`` as one row of a tensor."""

    @abstractmethod
    def row_in(self, v: Any) -> tuple[Piece, int]:
        """``v`` as one row, found in what it was read from; and the nodes that read it there."""

    @abstractmethod
    def position(self, x: Any, index: Any) -> DimExpr | None:
        """Where ``x[index]`` is, None where the index may be out of range."""

    @abstractmethod
    def is_guarded(self, v: Any) -> bool:
        """Whether a check stands in the arithmetic of the integer ``v``: `Dims` looks through it."""

    @abstractmethod
    def added(self, terms: Sequence[Rows], like: Any) -> tuple[Rows, int] | None:
        """The sum of rows, where zeros in some of them leave less to add; and the nodes it takes."""

    @abstractmethod
    def adds_up(self, x: Any, node: Any) -> bool:
        """Whether the inputs of the sum ``x`` are of its dtype and its shape."""
