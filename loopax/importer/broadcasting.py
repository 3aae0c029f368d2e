"""A tensor broadcast to the common shape of several tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable


def broadcast_with(x: TensorVariable, others: Iterable[Variable]) -> Any:
    """Broadcast ``x`` to the shape of an elementwise op on ``x`` and ``others``."""
    for v in others:
        x = pt.atleast_Nd(x, n=v.type.ndim) if x.type.ndim < v.type.ndim else x
        own = x.type.broadcastable[x.type.ndim - v.type.ndim :]
        if any(one and not other for one, other in zip(own, v.type.broadcastable, strict=True)):
            x = pt.second(v, x)
    return x
