"""``Watch`` and ``Breakpoint``: marks on values to observe, step by step.

Both are identities, and removed before the first pass: `loopax.watched` builds another program, which
returns the marked values. PyTensor's own modes drop or ignore them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op, OutputStorageType
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import WithShapes, vectorize_rules


class _Identity(WithShapes, Op):
    """``(x, *others) -> x``, also for derivatives."""

    view_map = {0: [0]}

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: OutputStorageType
    ) -> None:
        output_storage[0][0] = inputs[0]

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[0]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True], *[[False]] * (len(node.inputs) - 1)]

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Any]:
        return [cotangents[0], *[disconnected_type()] * (len(inputs) - 1)]

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> list[Any]:
        return [tangents[0]]


class Watch(_Identity):
    """Mark ``x``, which a watched program records under ``name``."""

    __props__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def make_node(self, x: Variable) -> Apply:
        return Apply(self, [x], [x.type()])


class Breakpoint(_Identity):
    """Map ``(x, condition) -> x``; a watched program's record ends at the first true ``condition``."""

    __props__ = ()

    def make_node(self, x: Variable, condition: Variable) -> Apply:
        return Apply(self, [x, condition], [x.type()])


@vectorize_rules.register(_Identity)
def _batched(op: _Identity, node: Apply, x: Variable, *conditions: Variable) -> Apply:
    if not isinstance(x.type, TensorType):
        raise NotImplementedError(f"{op} of a batch of {x.type}")
    return op.make_node(x, *conditions)
