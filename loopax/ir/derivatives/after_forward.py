"""Ops that share state: the gradient of a solver reads the state that its forward run has left.

    y = solve(x)               y = solve(x)
    g = slope(x, c)     ->     g = AfterForward(slope)(x, c)

A program may run the gradient without the op, if nothing reads its value; after all steps of a loop, or
all rows of a batch; or between two other runs. So the gradient runs the op first, unless the op last
ran for the same inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op, OutputStorageType
from pytensor.graph.type import Type
from pytensor.tensor.blockwise import Blockwise

from loopax.base.lock import free_in_children
from loopax.base.upstream.pytensor import core_node
from loopax.facts.record import is_foreign
from loopax.ir.ops.inner_graph_op import core_of

_LOCK = RLock()  # the state must not change before the gradient reads it
free_in_children(_LOCK)
# The last inputs of each op whose gradient reads its state.
_LAST: WeakKeyDictionary[Any, list[np.ndarray]] = WeakKeyDictionary()


class AfterForward(Op):
    """``op``, preceded by a run of ``forward`` where that last ran for other inputs.

    Parameters
    ----------
    op
        The gradient, which has only a ``perform``.
    forward
        A node of the op whose gradient it is.
    places
        The positions of ``forward``'s inputs among the inputs of ``op``.
    """

    def __init__(self, op: Op, forward: Apply, positions: Sequence[int]) -> None:
        self.op, self.positions = op, tuple(positions)
        # A fresh node: the program's node would keep all ancestors of its inputs alive.
        self.forward = forward.clone_with_new_inputs([v.type() for v in forward.inputs])
        self.destroy_map, self.view_map = op.destroy_map, op.view_map
        if hasattr(op, "infer_shape"):
            self.infer_shape = op.infer_shape

    def make_node(self, *inputs: Variable) -> Apply:
        node = self.op.make_node(*inputs)
        return Apply(self, node.inputs, [v.type() for v in node.outputs])

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: OutputStorageType
    ) -> None:
        forward_inputs = [inputs[k] for k in self.positions]
        with _LOCK:
            last_inputs = _LAST.setdefault(self.forward.op, [])
            if not last_inputs or not all(map(np.array_equal, last_inputs, forward_inputs)):
                perform(self.forward, forward_inputs, [[None] for _ in self.forward.outputs])
            self.op.perform(unwrapped(node), inputs, output_storage)

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> Any:
        return self.op.pullback(inputs, outputs, cotangents)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AfterForward) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((AfterForward, *self._key()))

    def _key(self) -> tuple[Any, ...]:
        return self.op, self.forward.op, self.positions

    def __str__(self) -> str:
        return str(self.op)


def unwrapped(node: Apply) -> Apply:
    """``node`` as a node of the wrapped op, where its op is an `AfterForward`."""
    op: Any = node.op
    if not isinstance(op, AfterForward):
        return node
    return Apply(op.op, node.inputs, [v.type() for v in node.outputs])


def run_after_forward(graph: FunctionGraph, further_nodes: Sequence[Apply] = ()) -> None:
    """Wrap gradients in ``graph`` that share state with its ops or ``further_nodes``, in place."""
    # Most graphs have none, and need not be sorted.
    if not any(is_foreign(type(core_of(n.op))) for n in graph.apply_nodes):
        return
    nodes = [n for n in graph.toposort() if is_foreign(type(core_of(n.op)))]
    for node in nodes:
        for forward in (*further_nodes, *nodes):
            positions = _forward_positions(node, forward)
            if positions is not None:
                outputs = _wrapped(node, forward, positions).make_node(*node.inputs).outputs
                pairs = list(zip(node.outputs, outputs, strict=True))
                graph.replace_all(pairs, import_missing=True, reason="after forward")
                break


def _forward_positions(node: Apply, forward: Apply) -> list[int] | None:
    """The positions of ``forward``'s inputs in ``node``'s, if the two share state; else None."""
    forward_inputs = forward.inputs
    if len(node.inputs) <= len(forward_inputs) or not all(v in node.inputs for v in forward_inputs):
        return None
    shared = _state(core_of(node.op)) & _state(core_of(forward.op))
    return [node.inputs.index(v) for v in forward_inputs] if shared else None


def _wrapped(node: Apply, forward: Apply, positions: Sequence[int]) -> Op:
    op: Any = node.op
    if not isinstance(op, Blockwise):
        return AfterForward(op, forward, positions)
    if isinstance(forward.op, Blockwise):
        forward = core_node(forward.op, forward.inputs)
    wrapped = AfterForward(op.core_op, forward, positions)
    return Blockwise(wrapped, signature=op.signature, name=op.name)


_NUMBERS = type(None), bool, int, float, complex, str, bytes, tuple, frozenset, np.generic, np.dtype
_STATELESS = *_NUMBERS, type, Type, Variable, FunctionType, MethodType, ModuleType


def _state(op: Op) -> set[int]:
    """The identities of ``op`` and of the mutable objects that it holds."""
    values = vars(op).values() if hasattr(op, "__dict__") else ()
    return {id(op), *(id(x) for x in values if not isinstance(x, _STATELESS))}


def perform(node: Apply, inputs: Sequence[Any], storage: list[list[Any]]) -> None:
    """Run ``node.op.perform``, and record the inputs where a gradient reads its state."""
    op, core = node.op, core_of(node.op)
    if core not in _LAST:
        op.perform(node, inputs, storage)
        return
    with _LOCK:
        _LAST[core] = []
        op.perform(node, inputs, storage)
        if core is op:  # otherwise it ran for many rows
            _LAST[core] = [np.array(x) for x in inputs]
