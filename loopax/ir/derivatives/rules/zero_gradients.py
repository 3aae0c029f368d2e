"""The pushforward of ``zero_grad``: disconnected.

PyTensor's is a vector of one zero (``ZeroGrad.pushforward``, 3.0.7, 3.3.8), whose type differs from the
value's.
"""

from __future__ import annotations

from typing import Any

from pytensor.gradient import ZeroGrad, disconnected_type

from loopax.ir.derivatives.rules.registry import pushforward_of


@pushforward_of.register(ZeroGrad)
def _none(op: Any, inputs: Any, outputs: Any, tangents: Any) -> Any:
    return [disconnected_type()]
