"""A loop over the rows of a batch, for graphs that have no form for all rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs

from loopax.ir.batching.batch import is_batched
from loopax.ir.ops.calling_convention import INDEX_TYPE, BodyArgs, BodyOuts, ScanArgs, ScanOptions
from loopax.ir.ops.scan import Scan
from loopax.ir.replace import replaced


def row_by_row(
    outputs: Sequence[Variable], rows: Mapping[Any, Any], n: Any, name: str | None = None
) -> list[Any]:
    """Compute ``outputs``, functions of the variables of one row, for ``n`` rows in a loop.

    ``rows`` has for each variable its batch, with an additional leading axis, or its value for all rows.
    All rows share the other variables that the outputs depend on.
    """
    shared = [v for v in graph_inputs(outputs, [*rows]) if not isinstance(v, Constant)]
    rows = {**{v: v for v in shared if v not in rows}, **rows}
    inner = {v: v.type() for v in rows}
    sequences = [v for v, x in rows.items() if is_batched(x, v)]
    consts = [v for v in rows if v not in sequences]
    body = BodyArgs(INDEX_TYPE(), [inner[v] for v in sequences], [], [inner[v] for v in consts])
    loop = Scan.from_body(body, BodyOuts([], replaced(outputs, inner)), ScanOptions(name))
    n_steps = pt.as_tensor(n, dtype="int64")
    return list(
        loop.bind(ScanArgs(n_steps, [rows[v] for v in sequences], [], [rows[v] for v in consts]))
    )
