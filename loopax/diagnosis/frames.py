"""``Frame``: one run of a graph, with the value of every variable in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable


@dataclass(eq=False)
class Frame:
    """A run of a graph: of the program, of a step of a loop, of a branch, of a row of a batch.

    Parameters
    ----------
    graph
        What ran; its ``inputs``, ``outputs`` and ``toposort()`` are read.
    inputs
        The values of its inputs.
    parent, node
        The frame around it, and the node of that which ran it; None for the program.
    label
        What is said of it: ``step 3``, ``row 6``; empty for a branch and for the program.
    number
        The step, of a loop.
    row
        The row, of a batch.
    """

    graph: Any
    inputs: Sequence[Any]
    parent: Frame | None = None
    node: Apply | None = None
    label: str = ""
    number: int = 0
    row: tuple[int, ...] = ()
    values: dict[Variable, Any] = field(default_factory=dict)
    # What a node raised that went on all the same, and what ran in a node that has graphs inside.
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
        """The positions of the inputs."""
        return {v: k for k, v in enumerate(self.graph.inputs)}

    def value(self, v: Variable) -> Any:
        return v.data if isinstance(v, Constant) else self.values[v]

    @property
    def path(self) -> tuple[Frame, ...]:
        """The frames around it and itself, outermost first, without the program's."""
        around = () if self.parent is None else self.parent.path
        return around if self.node is None else (*around, self)

    def order_key(self, node: Apply | None) -> tuple[Any, ...]:
        """A key by which what ran earlier comes earlier; of an input, before all nodes."""
        own = -1 if node is None else self.positions[node]
        if self.parent is None or self.node is None:
            return (own,)
        return (*self.parent.order_key(self.node), self.number, *self.row, own)


class Failed(Exception):
    """A node raised, and nothing can stand for its outputs."""

    def __init__(self, frame: Frame, node: Apply, cause: Exception) -> None:
        super().__init__(str(cause))
        self.frame, self.node, self.cause = frame, node, cause


class TooLong(Exception):
    """More nodes have run than may run one by one."""
