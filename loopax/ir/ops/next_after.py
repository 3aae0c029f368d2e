"""``NextAfter``: the next float of a dtype towards another float, C's ``nextafter``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.scalar as ps
from pytensor.tensor.elemwise import Elemwise

from loopax.facts.record import ScalarFacts
from loopax.facts.scalars import register_scalar
from loopax.ir.ops.flat_scalar import FlatScalar

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class NextAfter(FlatScalar, ps.BinaryScalarOp):
    """``(x, y) -> the float next to x in the direction of y``, and ``y`` if both are equal.

    >>> float(NextAfter(ps.upcast_out, name="next_after").impl(1.0, 2.0))
    1.0000000000000002
    """

    nfunc_spec = ("nextafter", 2, 1)

    def impl(self, x: ArrayLike, y: ArrayLike) -> Any:
        with np.errstate(all="ignore"):
            return np.nextafter(x, y)


next_after = Elemwise(NextAfter(ps.upcast_out, name="next_after"))
register_scalar(NextAfter, ScalarFacts(4.0, 40))
