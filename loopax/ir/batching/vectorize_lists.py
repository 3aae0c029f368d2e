"""Typed lists under ``vectorize_graph``: ops on lists that are not batched stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.typed_list import basic

from loopax.base.upstream.pytensor import vectorize_rules
from loopax.ir.ops.trace import Stack, Unstack


def vectorize_list_op(op: Op, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    """The op on its own inputs; PyTensor itself would refuse a list, which has no axes."""
    ranks = [getattr(v.type, "ndim", 0) for v in node.inputs]
    if any(getattr(x.type, "ndim", 0) > n for x, n in zip(inputs, ranks, strict=True)):
        raise NotImplementedError(
            f"{op} of a batch: a typed list has no batch axes. Stack the rows, pt.stack(rows), or keep "
            "the list out of the vectorized part."
        )
    return op.make_node(*inputs).outputs


for _cls in (
    basic.GetItem,
    basic.Append,
    basic.Extend,
    basic.Insert,
    basic.Remove,
    basic.Reverse,
    basic.Index,
    basic.Count,
    basic.Length,
    basic.MakeList,
    Stack,
    Unstack,
):
    vectorize_rules.register(_cls, vectorize_list_op)
