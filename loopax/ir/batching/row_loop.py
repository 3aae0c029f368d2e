"""A loop over the rows of a batch, for graphs that have no form for all rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from loopax.ir.batching.batch import is_batched
from loopax.ir.ops.calling_convention import INDEX_TYPE, BodyArgs, BodyOuts, ScanArgs, ScanOptions
from loopax.ir.ops.scan import Scan


def row_by_row(
    outputs: Sequence[Variable], rows: Mapping[Any, Any], n: Any, name: str | None
) -> list[Any]:
    """Compute ``outputs``, functions of the variables of one row, for ``n`` rows in a loop.

    ``rows`` has for each variable its batch, with an additional leading axis, or its value for all rows.
    """
    sequences = {v: x for v, x in rows.items() if is_batched(x, v)}
    consts = {v: x for v, x in rows.items() if v not in sequences}
    body = BodyArgs(INDEX_TYPE(), [*sequences], [], [*consts])
    loop = Scan.from_body(body, BodyOuts([], list(outputs)), ScanOptions(name))
    n_steps = pt.as_tensor(n, dtype="int64")
    return list(loop.bind(ScanArgs(n_steps, [*sequences.values()], [], [*consts.values()])))
