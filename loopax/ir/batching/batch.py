"""The batch axes of a node's inputs, for the rules of PyTensor's ``vectorize_graph``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import TensorType

from loopax.base.upstream.pytensor import copy_origin
from loopax.ir.batching.array_ops import batched_outputs
from loopax.ir.ops.bounds import known_number


class Batch:
    """The number and the lengths of the batch axes of one node's inputs."""

    def __init__(self, core: Sequence[Any], inputs: Sequence[Any]) -> None:
        extra = [
            x.type.ndim - v.type.ndim if isinstance(v.type, TensorType) else 0
            for v, x in zip(core, inputs, strict=True)
        ]
        self.ndim = max(extra, default=0)
        self.batched = [n > 0 for n in extra]
        batches = [(x, n) for x, n in zip(inputs, extra, strict=True) if n]
        self.static = _broadcast_static([x.type.shape[:n] for x, n in batches], self.ndim)
        self.shape = [
            next(
                x.shape[k - self.ndim + n]
                for x, n in batches
                if k + n >= self.ndim and x.type.shape[k - self.ndim + n] != 1
            )
            if static is None
            else static
            for k, static in enumerate(self.static)
        ]

    def inside(self, batched: Any) -> Batch:
        """The batch inside a body, where ``batched`` is a value with all batch axes."""
        inner_batch = copy(self)
        inner_batch.shape = [
            batched.shape[k] if n is None else n for k, n in enumerate(self.static)
        ]
        return inner_batch

    def type(self, core: TensorType) -> TensorType:
        """The type of a batched value whose rows have the type ``core``."""
        return TensorType(core.dtype, (*self.static, *core.shape))

    def full(self, x: Any, core: TensorType) -> Any:
        """Broadcast ``x``, which may lack batch axes, to all of them."""
        extra = x.type.ndim - core.ndim
        if extra == self.ndim and x.type.shape[:extra] == self.static and None not in self.static:
            return x
        # A length of 1 as a number: where one Alloc is read by another, PyTensor tests for a constant
        # 1.
        trailing = [
            x.shape[extra + k] if n is None else n for k, n in enumerate(x.type.shape[extra:])
        ]
        return self.type(core).filter_variable(pt.broadcast_to(x, [*self.shape, *trailing]))

    def all_full(
        self, xs: Sequence[Variable], cores: Sequence[Variable], flags: Sequence[bool]
    ) -> list[Any]:
        """Apply `full` to ``xs``, with the types of ``cores``, where the ``flags`` are set."""
        triples = zip(xs, cores, flags, strict=True)
        return [self.full(x, v.type) if flag else x for x, v, flag in triples]


def _broadcast_static(
    shapes: Sequence[tuple[int | None, ...]], ndim: int
) -> tuple[int | None, ...]:
    result: list[int | None] = []
    for k in range(ndim):
        lengths = {s[k - ndim + len(s)] for s in shapes if k - ndim + len(s) >= 0} - {1}
        result.append(1 if not lengths else (lengths - {None} or {None}).pop())
    return tuple(result)


def vectorized(outputs: Sequence[Variable], replace: Mapping[Any, Any]) -> list[Any]:
    """Vectorize ``outputs`` over batches of some of their ancestors, keeping names and source lines."""
    values = {v: x for v, x in replace.items() if v is not x}
    replaced = set(values)
    for node in toposort(outputs, blockers=[*values]):
        if not any(v in values for v in node.inputs):
            continue
        results = batched_outputs(node, [values.get(v, v) for v in node.inputs])
        for v, x in zip(node.outputs, results, strict=True):
            if v not in replaced:
                values[v] = x
                copy_origin(v, x)
    return [values.get(v, v) for v in outputs]


def is_batched(out: Variable, core: Variable) -> bool:
    return isinstance(core.type, TensorType) and out.type.ndim > core.type.ndim


def greatest(n: Variable) -> Any:
    """The greatest of an array of lengths; 0 if the array is empty."""
    if (number := known_number(n)) is not None:
        return pt.constant(number, dtype="int64")
    return pt.max(pt.concatenate([pt.zeros(1, dtype="int64"), pt.flatten(n)])) if n.type.ndim else n
