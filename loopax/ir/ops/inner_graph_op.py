"""``InnerGraphOp``: an op that is what it does with graphs of its own: a loop, a conditional, a call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.traversal import applys_between
from pytensor.tensor.blockwise import Blockwise

from loopax.base.upstream.pytensor import WithShapes, thaw

Step = Callable[..., Sequence[Any]]


class InnerGraphOp(WithShapes, HasInnerGraph, Op):
    """An Op with one frozen inner graph in ``fgraph``.

    What it means is said once, by `run`, of the functions that its `bodies` are: `evaluate` gives it
    functions that go through a body node by node, ``perform`` compiled ones
    (`loopax.ir.evaluation.inner.CompiledBodies`).

    3.0 wants ``fn``, ``inner_inputs``, ``inner_outputs`` and ``clone`` of such an Op, 3.3 only
    ``fgraph``.
    """

    fgraph: FrozenFunctionGraph
    # The graph that was frozen to `fgraph`, for the names and source lines of its variables: a frozen graph
    # has none, since equal parts of all programs share its nodes. It takes part in nothing else. Whoever
    # rewrites a body takes `unfrozen` and gives `with_graph`, which keep them.
    written: FunctionGraph | None = None

    def unfrozen(self) -> FunctionGraph:
        """A copy of the inner graph, to be rewritten, with names and source lines where they are known."""
        return thaw(self.fgraph, self.written)

    def with_graph(self, graph: FunctionGraph) -> Self:
        """This op around ``graph``, an inner graph of the same types."""
        op = self.with_body(graph.freeze())
        op.written = graph
        return op

    @property
    def bodies(self) -> Sequence[Any]:
        """The graphs that `run` runs: the inner graph, or the branches that are its halves."""
        return (self.fgraph,)

    @property
    def bodies_as_written(self) -> Sequence[Any]:
        """The `bodies`, with names and source lines where they are known."""
        bodies = self.bodies
        return bodies if self.written is None or len(bodies) > 1 else (self.written,)

    @abstractmethod
    def run(self, inputs: Sequence[Any], *steps: Step) -> list[Any]:
        """The values of the outputs for those of the inputs; ``steps`` are the `bodies` as functions."""

    @property
    def asks_for_all_steps_at_once(self) -> bool:
        """Whether its author asked for a form whose steps do not come one after another."""
        return False

    @property
    def inner_inputs(self) -> list[Variable]:
        return list(self.fgraph.inputs)

    @property
    def inner_outputs(self) -> list[Variable]:
        return list(self.fgraph.outputs)

    def _key(self) -> tuple[Any, ...]:
        """What equal ops of one class have in common."""
        return (self.fgraph,)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), *self._key()))

    def clone(self) -> Op:
        return self  # the inner graph is frozen: there is nothing to copy

    def do_constant_folding(self, fgraph: Any, node: Apply) -> bool:
        """Fold constants as PyTensor does in its own modes, but not in `stabilize`."""
        return not getattr(fgraph, "keeps_loops", False)

    def with_body(self, body: FrozenFunctionGraph) -> Self:
        """This op around another inner graph of the same types."""
        raise NotImplementedError(type(self).__name__)


def core_of(op: Any) -> Any:
    """What ``op`` applies to one row, if it is a Blockwise; else itself."""
    return op.core_op if isinstance(op, Blockwise) else op


def nodes_within(inputs: Iterable[Variable], outputs: Sequence[Variable]) -> Iterator[Apply]:
    """The nodes between ``inputs`` and ``outputs``, and those of the bodies of their ops, in no order."""
    stack = list(applys_between(list(inputs), outputs))
    while stack:
        node = stack.pop()
        yield node
        op = core_of(node.op)
        if isinstance(op, InnerGraphOp):
            stack += [inner for body in op.bodies for inner in body.apply_nodes]
        elif isinstance(op, HasInnerGraph):
            stack += op.fgraph.apply_nodes
