"""The scalars that a vector of lengths is made of."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import MakeVector


def entries_of(shape: Any) -> list[Any] | None:
    """The scalars that the vector ``shape`` is made of; None where nobody can tell."""
    if isinstance(shape, Constant):
        return [pt.constant(int(k), dtype="int64") for k in shape.data]
    is_made = shape.owner is not None and isinstance(shape.owner.op, MakeVector)
    return list(shape.owner.inputs) if is_made else None
