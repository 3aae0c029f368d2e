"""A `JaxOp` over a batch: ``jax.vmap``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import vectorize_rules
from loopax.jax_backend.jax_op.functions import Batched
from loopax.jax_backend.jax_op.op import JaxOp


@vectorize_rules.register(JaxOp)
def vectorize_jax_op(op: JaxOp, node: Apply, *inputs: Any) -> Sequence[Variable]:
    """Leading axes that the inputs have more than those of ``node`` are those of the batch."""
    ranks = tuple(v.type.ndim for v in node.inputs)
    leads = [x.type.shape[: x.type.ndim - n] for x, n in zip(inputs, ranks, strict=True)]
    n_batch = max(map(len, leads), default=0)
    if not n_batch:
        return op.make_node(*inputs).outputs
    lead = []
    for axis in range(-n_batch, 0):
        lengths = {own[axis] for own in leads if len(own) >= -axis} - {1}
        known = lengths - {None}
        lead.append(known.pop() if known else None if lengths else 1)
    types = [TensorType(v.type.dtype, (*lead, *v.type.shape)) for v in node.outputs]
    return JaxOp(Batched(op.function, ranks), op.name, types).make_node(*inputs).outputs
