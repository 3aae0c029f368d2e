"""Batched lazy derivatives: rules for PyTensor's ``vectorize_graph``.

    a batch of grad(f)   ->   grad(sum of a batch of f)

Rows are independent, so the gradient of the sum holds the gradients of all rows: one backward pass over the
batch, with the batched function visible to rewrites. Pullbacks and pushforwards are batched in the same
way. A Jacobian would have blocks for each pair of rows, and is expanded instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import vectorize_rules
from loopax.ir.batching.batch import Batch, vectorized
from loopax.ir.derivatives.lazy import Derivative, Grad, Jacobian


@vectorize_rules.register(Derivative)
def vectorize_derivative(op: Derivative, node: Apply, *inputs: TensorVariable) -> Sequence[Any]:
    """The derivative of the batched function; for a Jacobian a batch of its expansion."""
    batch = Batch(node.inputs, inputs)
    if not batch.ndim:
        return list(op.make_node(*inputs).outputs)
    if isinstance(op, Jacobian):
        roots = [v.type() for v in node.inputs]
        blocks = vectorized(op.expanded(roots), dict(zip(roots, inputs, strict=True)))
        return [
            _full(batch, results, v.type) for results, v in zip(blocks, node.outputs, strict=True)
        ]
    moving = {*op.wrt, *range(op.n_inputs, len(inputs))}
    operands = [
        batch.full(x, v.type) if k in moving or f else x
        for k, (x, v, f) in enumerate(zip(inputs, node.inputs, batch.batched, strict=True))
    ]
    body = op.unfrozen()
    rows = [
        batch.type(v.type)() if k in moving or f else v
        for k, (v, f) in enumerate(zip(body.inputs, batch.batched, strict=False))
    ]
    outs = vectorized(body.outputs, dict(zip(body.inputs, rows, strict=True)))
    inside = batch.inside(rows[op.wrt[0]])
    outs = [_full(inside, results, v.type) for results, v in zip(outs, body.outputs, strict=True)]
    body_outputs = [pt.sum(outs[0])] if isinstance(op, Grad) else outs
    results = (
        op.with_graph(FunctionGraph(rows, body_outputs, clone=True)).make_node(*operands).outputs
    )
    if not isinstance(op, Grad):
        return list(results)
    values = vectorized(body.outputs, dict(zip(body.inputs, operands[: op.n_inputs], strict=True)))
    value = _full(batch, values[0], body.outputs[0].type)
    return [value, *results[1:]]


def _full(batch: Batch, x: TensorVariable, core: TensorType) -> Any:
    return batch.full(x, core) if hasattr(core, "ndim") else x
