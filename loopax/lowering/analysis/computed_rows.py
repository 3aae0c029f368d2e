"""Sequences of loops that are computed before the loop, and whether they are too large for a CPU.

A hundred thousand rows of one number cost little to store and read again. Rows that do not fit into the
caches cost more than the operations in the step that compute them: on a CPU with 1 MiB of L2 cache, a
recurrent net of 1,000 steps, 64 rows and 32 units takes 1.4 times as long if ``x @ U`` is computed for all
steps at once (16 MB), and its gradient 2 to 3 times; with 2 MB neither form is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.ir import Scan
from loopax.ir.sizes import DimExpr, Length, unconditional_dims_of, without_dims

# Bytes of one row, and of all rows. Smaller rows save operations of a step that do little.
_LEAST_ROW, _LEAST = 1024, 2**21 + 1


@dataclass(frozen=True)
class ComputedRows:
    """A sequence of a loop: the bytes of an element, and its lengths in terms of the graph's inputs."""

    item: int
    lengths: tuple[DimExpr, ...]

    def are_large(self, inputs: dict[Variable, Any], copies: int) -> bool:
        """Whether ``copies`` of them are large, for these shapes of inputs, or values of integers."""

        def value_of(v: Any) -> DimExpr | None:
            if isinstance(v, Length):
                shape = inputs.get(v.of)
                n = shape[v.axis] if isinstance(shape, tuple) else None
            else:
                n = inputs.get(v)
            return DimExpr(offset=n) if isinstance(n, int) else None

        size = copies * self.item
        for n in self.lengths[1:]:
            size *= n.replaced(value_of).constant or 0  # a length that is not known counts as 0
        steps = self.lengths[0].replaced(value_of).constant or 0
        return size >= _LEAST_ROW and steps * size >= _LEAST


def computed_rows(graph: FunctionGraph) -> list[ComputedRows]:
    """The computed sequences of the loops of ``graph``, without its bodies."""
    sequences = [
        x
        for node in graph.toposort()
        if isinstance(node.op, Scan)
        for x in node.op.split_inputs(node.inputs).sequences
        if isinstance(x.type, DenseTensorType) and _is_computed(x)
    ]
    if not sequences:  # the usual case, in which no length is derived
        return []
    dims = unconditional_dims_of(graph)
    rows = [
        ComputedRows(
            np.dtype(x.type.dtype).itemsize, tuple(dims.length(x, k) for k in range(x.type.ndim))
        )
        for x in sequences
    ]
    without_dims(graph)
    return rows


def _is_computed(x: Variable) -> bool:
    while x.owner is not None and isinstance(x.owner.op, DimShuffle | Subtensor):
        x = x.owner.inputs[0]
    return x.owner is not None and not isinstance(x.owner.op, Scan)
