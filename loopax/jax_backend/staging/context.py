"""``Context``: the options of an evaluation, and the plans and functions that its graphs share."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.traversal import toposort

from loopax.base.upstream.pytensor import thaw
from loopax.ir.derivatives.pullback import PullbackRule
from loopax.jax_backend.staging.checked import Failure
from loopax.lowering import lower
from loopax.lowering.derivatives.guarded_branches import guard_branches


@dataclass(frozen=True)
class Plan:
    """A graph ready to run: its nodes in order, each with flags for the outputs that are read."""

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...] = ()
    steps: tuple[tuple[Apply, tuple[bool, ...]], ...] = ()
    read: frozenset[Variable] = frozenset()

    @cached_property
    def positions(self) -> dict[Variable, int]:
        """The position of each input. An input of the core of a Blockwise may have an owner, a cast."""
        return {v: k for k, v in enumerate(self.inputs)}

    @cached_property
    def readers(self) -> dict[Variable, list[Apply]]:
        """The nodes that read each variable."""
        nodes: dict[Variable, list[Apply]] = {}
        for node, _ in self.steps:
            for v in node.inputs:
                nodes.setdefault(v, []).append(node)
        return nodes


def plan(graph: AbstractFunctionGraph) -> Plan:
    """Plan ``graph``: the nodes that its outputs need, prepared for JAX's derivatives."""
    outputs = guard_branches(graph.inputs, graph.outputs)
    read: set[Variable] = set(outputs)
    steps = []
    for node in reversed(list(toposort(outputs, blockers=graph.inputs))):
        used = tuple(v in read for v in node.outputs)
        if any(used):
            read.update(node.inputs)
            steps.append((node, used))
    return Plan(tuple(graph.inputs), tuple(outputs), tuple(reversed(steps)), frozenset(read))


# How assertions about traced values are handled. "auto": by flags in a direct call, by checkify under the
# caller's transformation. "nan": they raise, as do values that are not finite.
CHECKS = ("auto", "checkify", "raise", "ignore", "nan")

# The values of ``jaxify(..., parallel=)``, the default first: on a CPU it changes nothing.
PARALLEL: tuple[Any, ...] = ("auto", True, False)


@dataclass
class Context:
    """State that a whole evaluation shares: options, and the plans of the graphs seen so far.

    ``functions`` are the functions of repeated calls, traced once each. With ``open_lengths`` a length that
    depends on traced values makes a `PaddedArray`, if it has a bound; otherwise such values become static.
    ``parallel`` is one of `PARALLEL`. ``failures`` may be raised by checks when the program runs,
    ``remarks`` describe the forms of its loops. ``checks`` is one of `CHECKS` except the first, or "flag":
    then the program returns the number of the failing check, ``flagged`` are the failures, and ``errors``
    the structures of the returned errors. ``open_indices`` has an op for each index that is not proven to
    be in range; these are checked only with ``checks_indices``.
    """

    on_missing: str = "callback"
    checks: str = "checkify"
    open_lengths: bool = False
    parallel: Any = False
    plans: WeakKeyDictionary[Any, Plan] = field(default_factory=WeakKeyDictionary)
    # Not shared with a derived context: they are traced in this one.
    functions: dict[Any, Any] = field(default_factory=dict, init=False)
    pullbacks: dict[PullbackRule, FunctionGraph] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    failures: set[Failure] = field(default_factory=set)
    flagged: set[Failure] = field(default_factory=set)
    errors: list[Any] = field(default_factory=list)
    checks_indices: bool = False
    open_indices: set[str] = field(default_factory=set)
    remarks: dict[str, None] = field(default_factory=dict)

    def plan(self, graph: AbstractFunctionGraph) -> Plan:
        if graph not in self.plans:
            self.plans[graph] = plan(graph)
        return self.plans[graph]

    def warn_once(self, key: str, message: str) -> None:
        """Warn with ``message``, once for each ``key``."""
        if key not in self.warned:
            self.warned.add(key)
            warnings.warn(message, stacklevel=3)

    def lowered(self, rule: PullbackRule) -> FunctionGraph:
        """Run the passes on the graph of an op's own pullback."""
        if rule not in self.pullbacks:
            graph = thaw(rule.graph)
            lower(graph)
            self.pullbacks[rule] = graph
        return self.pullbacks[rule]
