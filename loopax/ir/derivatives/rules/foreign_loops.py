"""PyTensor's own loops in a graph before the import: forward mode transposes their pullback.

The ``pushforward`` of PyTensor's Scan builds tangents whose types differ from their states', and so a
loop that refuses its arguments when it runs (3.0.7, 3.3.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.scan.op import Scan

from loopax.ir.derivatives.rules.registry import pushforward_of


@pushforward_of.register(Scan)
def _scan(
    op: Scan, inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Variable]
) -> Any:
    raise NotImplementedError(f"the pushforward of {op} is not used")
