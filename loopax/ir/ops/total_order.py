"""``TotalOrder``: integers in the total order of floats, IEEE 754's ``totalOrder``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.type import Type
from pytensor.tensor.elemwise import Elemwise

from loopax.facts.record import ScalarFacts
from loopax.facts.scalars import register_scalar
from loopax.ir.ops.flat_scalar import FlatScalar

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class TotalOrder(FlatScalar, ps.UnaryScalarOp):
    """``x -> n``, with ``n(x) < n(y)`` where ``x`` comes before ``y``.

    The order is: negative nan, negative numbers, -0, 0, positive numbers, positive nan. Integers are equal
    only for equal bits. XLA sorts by it.

    >>> [int(n) for n in map(TotalOrder(name="total_order").impl, (-0.0, 0.0, 5e-324))]
    [-1, 0, 1]
    """

    def output_types(self, types: Sequence[Type]) -> list[Any]:
        return [ps.int64]

    def impl(self, x: ArrayLike) -> Any:
        x = np.asarray(x)
        n = x.view(f"int{8 * x.itemsize}")
        return (n ^ ((n >> (8 * x.itemsize - 1)) & np.iinfo(n.dtype).max)).astype("int64")


total_order: Any = Elemwise(TotalOrder(name="total_order"))
register_scalar(TotalOrder, ScalarFacts(0.5, 3))
