"""Ops that share state: the gradient of a solver reads what its forward run has left behind.

    y = solve(x)               y = solve(x)
    g = slope(x, c)     ->     g = AfterForward(slope)(x, c)

A program may run the gradient without the op itself, whose value nobody reads; after all steps of a loop,
or all rows of a batch; or between two other runs. So the gradient has the op run first, for the same
inputs, unless these are what it ran for last.
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
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.tensor.blockwise import Blockwise

from loopax.base.lock import free_in_children
from loopax.facts.record import is_foreign
from loopax.ir.ops.inner_graph_op import core_of

_LOCK = RLock()  # what is left must still be there when it is read
free_in_children(_LOCK)
# The inputs that ops ran for last, of those whose gradient reads what they leave.
_LAST: WeakKeyDictionary[Any, list[np.ndarray]] = WeakKeyDictionary()


class AfterForward(Op):
    """``op``, with ``forward`` run before it where it last ran for other inputs.

    Parameters
    ----------
    op
        The gradient, of which there is no more than a ``perform``.
    forward
        A node of the op that it is the gradient of.
    places
        Which inputs of ``op`` are those of ``forward``.
    """

    def __init__(self, op: Any, forward: Apply, places: Sequence[int]) -> None:
        self.op, self.places = op, tuple(places)
        # A node of its own: that of a program holds all that its inputs are computed from.
        self.forward = forward.clone_with_new_inputs([v.type() for v in forward.inputs])
        self.destroy_map, self.view_map = op.destroy_map, op.view_map
        if hasattr(op, "infer_shape"):
            self.infer_shape = op.infer_shape

    def make_node(self, *inputs: Variable) -> Apply:
        node = self.op.make_node(*inputs)
        return Apply(self, node.inputs, [v.type() for v in node.outputs])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        read = [inputs[k] for k in self.places]
        with _LOCK:
            last = _LAST.setdefault(self.forward.op, [])
            if not last or not all(map(np.array_equal, last, read)):
                perform(self.forward, read, [[None] for _ in self.forward.outputs])
            self.op.perform(unwrapped(node), inputs, output_storage)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        return self.op.pullback(inputs, outputs, cotangents)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AfterForward) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((AfterForward, *self._key()))

    def _key(self) -> tuple[Any, ...]:
        return self.op, self.forward.op, self.places

    def __str__(self) -> str:
        return str(self.op)


def unwrapped(node: Apply) -> Apply:
    """``node``, as one of the op inside where its own is an `AfterForward`."""
    op: Any = node.op
    if not isinstance(op, AfterForward):
        return node
    return Apply(op.op, node.inputs, [v.type() for v in node.outputs])


def run_after_forward(graph: FunctionGraph, more: Sequence[Apply] = ()) -> None:
    """Wrap the gradients in ``graph`` that share state with an op of it, or of ``more``, in place."""
    # Most graphs have none, and need not be sorted.
    if not any(is_foreign(type(core_of(n.op))) for n in graph.apply_nodes):
        return
    nodes = [n for n in graph.toposort() if is_foreign(type(core_of(n.op)))]
    for node in nodes:
        for other in (*more, *nodes):
            places = _places(node, other)
            if places is not None:
                new = _wrapped(node, other, places).make_node(*node.inputs).outputs
                pairs = list(zip(node.outputs, new, strict=True))
                graph.replace_all(pairs, import_missing=True, reason="after forward")
                break


def _places(node: Apply, forward: Apply) -> list[int] | None:
    """Which inputs of ``node`` those of ``forward`` are, if it reads what that leaves."""
    read = forward.inputs
    if len(node.inputs) <= len(read) or not all(v in node.inputs for v in read):
        return None
    shared = _state(core_of(node.op)) & _state(core_of(forward.op))
    return [node.inputs.index(v) for v in read] if shared else None


def _wrapped(node: Apply, forward: Apply, places: Sequence[int]) -> Op:
    op: Any = node.op
    if not isinstance(op, Blockwise):
        return AfterForward(op, forward, places)
    if isinstance(forward.op, Blockwise):
        forward = _core_node(forward)
    wrapped = AfterForward(op.core_op, forward, places)
    return Blockwise(wrapped, signature=op.signature, name=op.name)


def _core_node(node: Apply) -> Apply:
    """What a Blockwise applies to one row."""
    op: Any = node.op
    inputs: Any = node.inputs
    core: Apply = op._create_dummy_core_node(inputs)
    return core


_NUMBERS = type(None), bool, int, float, complex, str, bytes, tuple, frozenset, np.generic, np.dtype
_STATELESS = *_NUMBERS, type, Type, Variable, FunctionType, MethodType, ModuleType


def _state(op: Any) -> set[int]:
    """By identity, ``op`` and what it holds that may change."""
    held = vars(op).values() if hasattr(op, "__dict__") else ()
    return {id(op), *(id(x) for x in held if not isinstance(x, _STATELESS))}


def perform(node: Apply, inputs: Sequence[Any], storage: list[list[Any]]) -> None:
    """Run ``node.op.perform``, and note for what where a gradient reads what it leaves."""
    op, core = node.op, core_of(node.op)
    if core not in _LAST:
        op.perform(node, inputs, storage)
        return
    with _LOCK:
        _LAST[core] = []
        op.perform(node, inputs, storage)
        if core is op:  # else it ran for many rows
            _LAST[core] = [np.array(x) for x in inputs]
