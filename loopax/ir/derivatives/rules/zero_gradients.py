"""The pushforward of ``zero_grad``: disconnected.

PyTensor's pushforward is a vector with one zero (``ZeroGrad.pushforward``, 3.0.7, 3.3.8), whose type
differs from the value's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.gradient import ZeroGrad, disconnected_type
from pytensor.graph.basic import Variable

from loopax.ir.derivatives.rules.registry import pushforward_of


@pushforward_of.register(ZeroGrad)
def _none(
    op: ZeroGrad,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> Any:
    return [disconnected_type()]
