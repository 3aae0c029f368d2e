"""A batch of stopping loops: reads of its results move into the loop of each row.

    Blockwise{Scan}(...)[:, 1:][:, -1]  ->  Blockwise{Call(Scan(...)[1:][-1])}(...)

The rows of a batch stop after different numbers of steps, so that their traces cannot be stacked; their
last rows can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes import read_of


def batched_reads(
    fgraph: FunctionGraph, outputs: Sequence[Any], core: Sequence[TensorVariable]
) -> list[tuple[Any, Any]]:
    """Pairs ``(variable, read)`` for all reads of ``outputs`` in ``fgraph``.

    ``core`` are the counterparts of ``outputs`` for one row of the batch, and ``read`` is the counterpart
    of ``variable``.
    """
    pairs: list[tuple[Any, Any]] = []
    for batched, one in zip(outputs, core, strict=True):
        pairs += _reads(fgraph, batched, one)
    return pairs


def _reads(fgraph: FunctionGraph, batched: Variable, one: TensorVariable) -> list[tuple[Any, Any]]:
    n_batch = batched.type.ndim - one.type.ndim
    pairs: list[tuple[Any, Any]] = []
    for client, position in fgraph.clients.get(batched, ()):
        read = None if position else read_of(client)
        if read is None:
            return [(batched, one)]
        batch, later = read.index[:n_batch], read.index[n_batch:]
        known = all(isinstance(v, Constant) for v in client.inputs[1:])
        if not known or not later or any(i != slice(None) for i in batch):
            return [(batched, one)]
        pairs += _reads(fgraph, client.outputs[0], one[later]) or [(client.outputs[0], one[later])]
    return pairs
