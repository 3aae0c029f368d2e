"""The rule of a Blockwise: the rule of its core op, vectorized as PyTensor vectorizes its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.null_type import NullType
from pytensor.tensor.basic import constant
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.sort import SortOp
from pytensor.tensor.variable import TensorConstant, TensorVariable

from loopax.facts.axes import unshuffled
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
    dummies = op._create_dummy_core_node(inputs).inputs
    rows = [
        v if (number := _number_of_all(x)) is None or v.type.ndim else number
        for v, x in zip(dummies, inputs, strict=True)
    ]
    core = op.core_op.make_node(*rows)
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


def _number_of_all(x: Variable) -> TensorConstant | None:
    """The number that is this input in all rows, if it is a constant."""
    plain = unshuffled(x)
    if not isinstance(plain, TensorConstant) or plain.data.size != 1:
        return None
    return constant(plain.data.reshape(()))


@pullback_of.register(SortOp)
def _sort(
    op: SortOp,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    """PyTensor's rule, which reads a constant axis (3.0): its own Blockwise would hide the constant."""
    return own_pullback(op, inputs, outputs, cotangents)


@fault_of.register(Blockwise)
def _fault(op: Blockwise, node: Apply) -> Fault | None:
    return fault_of(op.core_op, node)
