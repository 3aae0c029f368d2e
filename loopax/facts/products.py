"""Records of sums of products, and of ops on each row of a stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot, matmul

from loopax.facts.families import ndim_of
from loopax.facts.linearity import zero_groups_of
from loopax.facts.record import Axes, Errors, Groups, OpFacts, Structure, facts_of, register


def _outer(node: Apply) -> Axes | None:
    """The axes of a matrix product: rows run along the first factor, columns along the second."""
    a, b = map(ndim_of, node.inputs)
    if max(a, b) > 2:
        return None
    left, right = [0] * (a == 2), [b - 1] * (b == 2)
    return [*left, *([None] * len(right))], [*([None] * len(left)), *right]


def _each(node: Apply) -> Groups:
    return frozenset({0}), frozenset({1})


register(
    Dot,
    OpFacts(
        structure=Structure.CONTRACTS,
        errors=lambda node: Errors.SHAPE,
        axes=_outer,
        behind=lambda node, n: matmul if n == -1 and ndim_of(node.inputs[0]) == 2 else None,
        linear=_each,
    ),
)
register(BatchedDot, OpFacts(structure=Structure.CONTRACTS, linear=_each))


# -- stacks ------------------------------------------------------------------------------------------


class CoreNode(NamedTuple):
    """The core op of a Blockwise as a node on its stacked variables, of which only the dtypes are right."""

    op: Any
    inputs: Sequence[Any]
    outputs: Sequence[Any]

    @classmethod
    def of(cls, node: Apply) -> Any:
        return cls(node.op.core_op, node.inputs, node.outputs)


class _Typed(NamedTuple):
    """A stand-in for a variable whose type alone is read."""

    type: Any


def _of_batch_and_row(node: Apply) -> Axes:
    """The axes of a Blockwise: batch axes run along themselves, row axes as in the core op."""
    op: Any = node.op
    n, ndim = op.batch_ndim(node), ndim_of(node.outputs[0])
    rows: Any = [
        [_Typed(v.type.clone(shape=v.type.shape[n:])) for v in vs]
        for vs in (node.inputs, node.outputs)
    ]
    of_row = facts_of(op.core_op).axes(CoreNode(op.core_op, *rows))  # type: ignore[arg-type]
    if of_row is None:
        of_row = ((None,) * (ndim - n),) * len(node.inputs)
    return [[*range(n), *(None if k is None else k + n for k in own)] for own in of_row]


register(
    Blockwise,
    OpFacts(
        axes=_of_batch_and_row,
        linear=lambda node: facts_of(node.op.core_op).linear(CoreNode.of(node)),
        zero=lambda node: zero_groups_of(CoreNode.of(node)),
    ),
)
