"""A check of a value that is transparent to derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise


class Checked(CheckAndRaise):
    """``Checked(error, message)(x, *conditions)``: ``x``, unless a condition is false.

    PyTensor's own check has only a pullback, and so no forward mode.
    """

    def __init__(self, error: type[Exception], message: str) -> None:
        super().__init__(error, message)

    def pushforward(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Variable]
    ) -> list[Any]:
        return [tangents[0]]
