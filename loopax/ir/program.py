"""``Program``: a graph with its signature: named inputs, shared values, and the structure of its result.

The front end builds one, the passes rewrite its graph, the backends run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytensor.graph.basic import Variable, clone
from pytensor.graph.fg import FunctionGraph

from loopax.base.upstream.pytensor import forget_history
from loopax.ir.ops.inner_graph_op import nodes_within


@dataclass(frozen=True)
class Input:
    """An argument of the callable; the caller does not use a ``donated`` one again."""

    variable: Variable
    name: str | None
    donated: bool = False


@dataclass(frozen=True)
class Shared:
    """A shared variable of PyTensor; ``storage[0]`` is its current value.

    The storage is read at every call, since PyTensor's functions change its array in place. All
    variables for one shared variable have the same storage.
    """

    variable: Variable
    storage: list[Any]

    @property
    def value(self) -> Any:
        return self.storage[0]


# The inputs and outputs of a graph.
GraphParts = tuple[list[Variable], list[Variable]]


@dataclass
class Program:
    """A function as a graph, from the front end.

    The inputs of ``graph`` are the variables of ``inputs``, then of ``shared``, in order. Its outputs are
    the leaves of the callable's result, which ``build`` puts into their structure, and then the next values
    of ``shared[k]`` for the ``k`` in ``updates``. ``as_read`` has the inputs and outputs of a copy from
    before the first pass, if there is one, for derivatives. With ``has_flag`` there is an additional last
    output: whether a value of the program is nan or infinite. ``watching`` has the inputs and outputs of a
    copy in which values are watched, if there is one; none are watched in ``graph``. ``canonical`` has the
    inputs and outputs of a copy of ``as_read`` after the passes that both forms begin with; None if they
    begin differently, or if these passes have not run.
    """

    graph: FunctionGraph
    inputs: tuple[Input, ...]
    shared: tuple[Shared, ...]
    build: Callable[[Any], Any]
    name: str = "program"
    doc: str | None = None
    updates: tuple[int, ...] = ()
    as_read: GraphParts | None = None
    has_flag: bool = False
    watching: GraphParts | None = None
    canonical: GraphParts | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A graph's features remember the nodes that rewrites have replaced.
        graph = FunctionGraph(self.graph.inputs, self.graph.outputs, clone=False)
        own = graph.inputs, graph.outputs
        for inputs, outputs in filter(None, [own, self.as_read, self.watching, self.canonical]):
            for node in nodes_within(inputs, outputs):
                forget_history(node)
        return {**self.__dict__, "graph": graph}

    @classmethod
    def of_graph(cls, graph: FunctionGraph, name: str = "program") -> Program:
        """The program that takes the inputs of ``graph`` and returns the list of its outputs."""
        inputs = tuple(Input(v, v.name or f"x{k}") for k, v in enumerate(graph.inputs))
        return cls(graph, inputs, (), list, name=name)

    @property
    def n_returned(self) -> int:
        return len(self.graph.outputs) - len(self.updates) - self.has_flag

    def before_passes(self) -> Program:
        """Copy the program in its state before the first pass (``as_read``), to be lowered."""
        assert self.as_read is not None
        return self.with_graph(FunctionGraph(*clone(*self.as_read), clone=False))

    def with_watches(self) -> Program:
        """Copy the program in its state before the passes, with values watched, to be rebuilt."""
        source = self.watching
        if source is None:
            assert self.as_read is not None
            outputs = self.as_read[1]
            source = self.as_read[0], outputs[: len(outputs) - self.has_flag]
        program = self.with_graph(FunctionGraph(*clone(*source), clone=False))
        return replace(program, as_read=None, has_flag=False, watching=None)

    def with_graph(self, graph: FunctionGraph) -> Program:
        """Copy the program with another ``graph``, whose inputs and outputs correspond."""
        n = len(self.inputs)
        return replace(
            self,
            graph=graph,
            canonical=None,
            inputs=tuple(
                replace(i, variable=v) for i, v in zip(self.inputs, graph.inputs[:n], strict=True)
            ),
            shared=tuple(
                replace(s, variable=v) for s, v in zip(self.shared, graph.inputs[n:], strict=True)
            ),
        )

    @property
    def shared_names(self) -> tuple[str, ...]:
        return unique_names(self.shared)


def unique_names(shared: Sequence[Shared]) -> tuple[str, ...]:
    """Unique names: each variable's own, or ``shared``; duplicates get ``_1`` and so on.

    A variable's own name is never given to another one.
    """
    base_names = [s.variable.name or "shared" for s in shared]
    own_names = set(base_names)
    names: list[str] = []
    for name in base_names:
        k, candidate = 0, name
        while candidate in names or (k and candidate in own_names):
            k, candidate = k + 1, f"{name}_{k + 1}"
        names.append(candidate)
    return tuple(names)


@dataclass(frozen=True, eq=False)
class EarlyPart:
    """A program in two parts; the first runs once for each set of values of shared variables.

    ``early`` computes, from the shared variables at ``reads``, values that are the last inputs of
    ``residual``. The inputs of ``residual`` before these are the program's inputs, and the shared variables
    at ``left``.
    """

    early: FunctionGraph
    reads: tuple[int, ...]
    residual: FunctionGraph
    left: tuple[int, ...]
