"""``MaskedTangent``: a number that has no derivative where a test is false."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from loopax.facts.record import ScalarFacts
from loopax.facts.scalars import ARITHMETIC, register_scalar

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class MaskedTangent(ps.BinaryScalarOp):
    """Map ``(x, is_moving) -> x``, with a derivative of zero where ``is_moving`` is false.

    It stays zero whatever it is multiplied by: ``0 * inf`` is 0 here.

    >>> MaskedTangent(ps.upcast_out, name="masked_tangent").impl(1.5, False)
    1.5
    """

    def impl(self, x: ArrayLike, is_moving: ArrayLike) -> Any:
        return x

    def c_code(self, *args: object) -> str:
        raise NotImplementedError("it is for graphs that JAX differentiates")

    def pullback(
        self,
        inputs: Sequence[TensorVariable],
        outputs: Sequence[Variable],
        cotangents: Sequence[TensorVariable],
    ) -> list[Any]:
        x, is_moving = inputs
        (g,) = cotangents
        return [ps.switch(is_moving, g, g.zeros_like()), x.zeros_like()]


masked_tangent = Elemwise(MaskedTangent(ps.upcast_out, name="masked_tangent"))
register_scalar(MaskedTangent, ScalarFacts(ARITHMETIC, 0, (frozenset({0}),)))
