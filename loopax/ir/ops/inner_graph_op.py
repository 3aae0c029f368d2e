"""``InnerGraphOp``: an op with inner graphs: a loop, a conditional, a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.traversal import applys_between
from pytensor.tensor.blockwise import Blockwise

from loopax.base.upstream.pytensor import WithShapes, freeze, thaw

Step = Callable[..., Sequence[Any]]


class InnerGraphOp(WithShapes, HasInnerGraph, Op):
    """An Op with one frozen inner graph in ``fgraph``.

    Its meaning is defined once, by `run`, in terms of functions for its `bodies`: `evaluate` passes
    functions that run a body node by node, ``perform`` compiled ones
    (`loopax.ir.evaluation.inner.CompiledBodies`).

    PyTensor 3.0 needs ``fn``, ``inner_inputs``, ``inner_outputs`` and ``clone`` of such an Op, 3.3
    only ``fgraph``.
    """

    fgraph: FrozenFunctionGraph
    # The graph before freezing, for the names and source lines of its variables: a frozen graph has
    # none, since equal parts of all programs share its nodes. It has no other use. A rewrite of a
    # body goes from `unfrozen` to `with_graph`, which keep them.
    written: FunctionGraph | None = None

    def unfrozen(self) -> FunctionGraph:
        """A mutable copy of the inner graph, with names and source lines where they are known."""
        return thaw(self.fgraph, self.written)

    def with_graph(self, graph: FunctionGraph) -> Self:
        """This op with the inner graph ``graph``, of the same types."""
        op = self.with_body(freeze(graph))
        op.written = graph
        return op

    @property
    def bodies(self) -> Sequence[Any]:
        """The graphs that `run` gets as functions: the inner graph, or its halves, the branches."""
        return (self.fgraph,)

    @property
    def bodies_as_written(self) -> Sequence[Any]:
        """The `bodies`, with names and source lines where they are known."""
        bodies = self.bodies
        return bodies if self.written is None or len(bodies) > 1 else (self.written,)

    def run(self, inputs: Sequence[Any], *steps: Step) -> list[Any]:
        """Compute the outputs at ``inputs``; ``steps`` are the `bodies` as functions.

        By default it calls the one body.
        """
        (step,) = steps
        return list(step(*inputs))

    @property
    def asks_for_all_steps_at_once(self) -> bool:
        """Whether the user asked for an evaluation whose steps are not sequential."""
        return False

    @property
    def inner_inputs(self) -> list[Variable]:
        return list(self.fgraph.inputs)

    @property
    def inner_outputs(self) -> list[Variable]:
        return list(self.fgraph.outputs)

    def _key(self) -> tuple[Any, ...]:
        """The key that compares ops of one class."""
        return (self.fgraph,)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), *self._key()))

    def clone(self) -> Op:
        return self  # the inner graph is frozen and needs no copy

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        """Whether to fold constants: yes in PyTensor's own modes, but not in `stabilize`."""
        return not getattr(fgraph, "keeps_loops", False)

    def with_body(self, body: FrozenFunctionGraph) -> Self:
        """This op with another inner graph of the same types."""
        raise NotImplementedError(type(self).__name__)


def core_of(op: Op) -> Any:
    """The core op of a Blockwise, which it applies to one row; any other op itself."""
    return op.core_op if isinstance(op, Blockwise) else op


def nodes_within(inputs: Iterable[Variable], outputs: Sequence[Variable]) -> Iterator[Apply]:
    """The nodes between ``inputs`` and ``outputs`` and in the bodies of their ops, in any order."""
    stack = list(applys_between(list(inputs), outputs))
    while stack:
        node = stack.pop()
        yield node
        op = core_of(node.op)
        if isinstance(op, InnerGraphOp):
            stack += [inner for body in op.bodies for inner in body.apply_nodes]
        elif isinstance(op, HasInnerGraph):
            stack += op.fgraph.apply_nodes
