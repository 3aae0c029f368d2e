"""The rule of a Blockwise: the rule of its core op, vectorized as PyTensor vectorizes its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.null_type import NullType
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import core_node
from loopax.ir.batching.batch import vectorized
from loopax.ir.derivatives.rules.elementwise import summed
from loopax.ir.derivatives.rules.registry import (
    Fault,
    fault_of,
    has_own_pullback,
    own_pullback,
    pullback_of,
)


@pullback_of.register(Blockwise)
def _blockwise(
    op: Blockwise,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    if not has_own_pullback(op.core_op):
        return own_pullback(op, inputs, outputs, cotangents)
    core = core_node(op, inputs)
    seeds = [
        g if isinstance(g.type, DisconnectedType) else y.type()
        for y, g in zip(core.outputs, cotangents, strict=True)
    ]
    in_cotangents = pullback_of(op.core_op, core.inputs, core.outputs, seeds)
    batch = dict(zip([*core.inputs, *core.outputs], [*inputs, *outputs], strict=True))
    batch |= {
        seed: g
        for seed, g in zip(seeds, cotangents, strict=True)
        if not isinstance(g.type, DisconnectedType)
    }
    return [
        g
        if isinstance(g.type, DisconnectedType | NullType)
        else summed(vectorized([g], batch)[0], x)
        for x, g in zip(inputs, in_cotangents, strict=True)
    ]


@fault_of.register(Blockwise)
def _fault(op: Blockwise, node: Apply) -> Fault | None:
    return fault_of(op.core_op, node)
