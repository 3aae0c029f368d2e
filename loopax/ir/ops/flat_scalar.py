"""``FlatScalar``: a scalar function whose derivative is zero, for native code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from loopax.facts.scalars import is_float


class FlatScalar(ps.ScalarOp):
    """The base class of scalar ops that are piecewise constant, or of integers, and have no C code."""

    def c_code(self, *args: object) -> str:
        raise NotImplementedError("it runs in native code of Numba's")

    def pullback(
        self,
        inputs: Sequence[TensorVariable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Any]:
        return [x.zeros_like(dtype=x.type.dtype if is_float(x) else "float64") for x in inputs]
