"""``Frame``: one run of a graph, with the value of each of its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable

from loopax.ir.ops.scan_grammar import ScanGrammar


@dataclass(eq=False)
class Frame:
    """A run of a graph: of the program, of a step of a loop, of a branch, of a row of a batch."""

    graph: Any  # Any object with ``inputs``, ``outputs`` and ``toposort()``
    inputs: Sequence[Any]  # the values of its inputs
    # The outer frame, and the node in it that runs this graph; None for the program.
    parent: Frame | None = None
    node: Apply | None = None
    # A label for reports: ``step 3``, ``row 6``; empty for a branch and for the program.
    label: str = ""
    number: int = 0  # the step of the loop
    row: tuple[int, ...] = ()  # the row of the batch
    values: dict[Variable, Any] = field(default_factory=dict)
    # Errors of nodes whose outputs compiled code has computed, and runs inside of nodes with graphs.
    errors: dict[Apply, Exception] = field(default_factory=dict)
    inside: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values.update(zip(self.graph.inputs, self.inputs, strict=True))

    @cached_property
    def order(self) -> Sequence[Apply]:
        return list(self.graph.toposort())

    @cached_property
    def positions(self) -> Mapping[Apply, int]:
        return {node: k for k, node in enumerate(self.order)}

    @cached_property
    def roots(self) -> Mapping[Variable, int]:
        return {v: k for k, v in enumerate(self.graph.inputs)}

    @cached_property
    def _constants(self) -> set[Variable]:
        """Variables that are computed from constants alone."""
        constants: set[Variable] = set()
        for node in self.order:
            if node.inputs and all(isinstance(v, Constant) or v in constants for v in node.inputs):
                constants.update(node.outputs)
        return constants

    def is_constant(self, v: Variable) -> bool:
        """Whether ``v`` is written in the program: a constant, or computed from constants alone."""
        if isinstance(v, Constant) or v in self._constants:
            return True
        outer = self.outer(v) if v in self.roots else None
        return outer is not None and self.parent is not None and self.parent.is_constant(outer)

    def outer(self, v: Variable) -> Variable | None:
        """The outer variable that an input holds, or a row of which it holds; None for loop states."""
        op: Any = None if self.node is None else self.node.op
        if op is None or self.node is None:
            return None
        k = self.roots[v]
        if isinstance(op, ScanGrammar):
            first = 1 + op.n_seqs
            is_made = k == 0 or (first <= k < first + op.n_states and self.number > 0)
            return None if is_made else self.node.inputs[k]
        return self.node.inputs[len(self.node.inputs) - len(self.graph.inputs) + k]

    def value(self, v: Variable) -> Any:
        return v.data if isinstance(v, Constant) else self.values[v]

    @property
    def path(self) -> tuple[Frame, ...]:
        """The outer frames and this one, outermost first, without the program's frame."""
        around = () if self.parent is None else self.parent.path
        return around if self.node is None else (*around, self)

    def order_key(self, node: Apply | None) -> tuple[Any, ...]:
        """A sort key for the order of computation; the key of None stands before all nodes."""
        own = -1 if node is None else self.positions[node]
        if self.parent is None or self.node is None:
            return (own,)
        return (*self.parent.order_key(self.node), self.number, *self.row, own)


class Failed(Exception):
    """Raised where a node raised, and no other form computes its outputs."""

    def __init__(self, frame: Frame, node: Apply, cause: Exception) -> None:
        super().__init__(str(cause))
        self.frame, self.node, self.cause = frame, node, cause


class TooLong(Exception):
    """Raised where the nodes that ran one by one exceed the budget."""
