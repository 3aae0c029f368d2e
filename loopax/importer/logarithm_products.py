"""``x log(y)`` and ``x log(1 + y)`` as graphs with the ops' own derivatives, if the logarithm is finite.

    xlogy(x, y) -> x * switch(x == 0 and log(y) is not finite, 0, log(y))

The inner graph of PyTensor is ``switch(x == 0, 0, x * log(y))``, and its pullback for x is ``log(y)``.
The derivative of that graph is 0 if x is 0: a Beta likelihood would have no slope at ``alpha == 1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.tensor.special import XLog1PY, XLogY

_LOGARITHMS: dict[type[OpFromGraph], Any] = {XLogY: pt.log, XLog1PY: pt.log1p}


def logarithm_product(op: Any, inputs: Sequence[Variable]) -> list[Variable] | None:
    """The outputs of ``op`` at ``inputs``; None if it is another op.

    Where y is not positive and x is 0 the derivatives for both are 0 or nan, as those of a `switch`.
    """
    if type(op) not in _LOGARITHMS:
        return None
    x, y = inputs
    logarithm = _LOGARITHMS[type(op)](y)
    undefined = pt.eq(x, 0) & (pt.isinf(logarithm) | pt.isnan(logarithm))
    return [x * pt.switch(undefined, 0, logarithm)]
