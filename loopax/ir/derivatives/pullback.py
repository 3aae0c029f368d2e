"""The pullback of an op as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.null_type import NullType
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.type import Type

from loopax.base.upstream.pytensor import freeze
from loopax.ir.derivatives.after_forward import run_after_forward
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.derivatives.rules.complex_numbers import as_cotangent_of, pullback_with_conjugates


def floats(variables: Sequence[Variable]) -> list[int]:
    """The positions of the variables that can have a derivative."""
    return [k for k, v in enumerate(variables) if is_float(v)]


class PullbackRule:
    """The pullback of ``op`` as a graph, built at its first use.

    It is not built earlier because a pullback may apply its own op recursively without end, and may raise.

    Parameters
    ----------
    op
        An op with a ``pullback``.
    types
        The types of its inputs.
    prepare
        A rewrite of the graph, in place: always `import_graph`, passed in since `ir` may not import it.
    used
        Which outputs are read; an empty sequence means all. The others have no cotangent.
    """

    def __init__(
        self,
        op: Op,
        types: Sequence[Type],
        prepare: Callable[[FunctionGraph], None],
        used: Sequence[bool] = (),
    ) -> None:
        self.op, self.types, self.prepare, self.used = op, tuple(types), prepare, tuple(used)

    @property
    def graph(self) -> FrozenFunctionGraph:
        """``[*inputs, *outputs, *float cotangents] -> [*cotangents of the float inputs]``.

        A cotangent that the op leaves disconnected, or `unknown`, is zero.

        Raises `NotImplementedError` if the op has no pullback.
        """
        return self._graph_and_unknown[0]

    @property
    def unknown(self) -> dict[int, Any]:
        """The inputs with an unknown cotangent, and PyTensor's null variables with the reasons."""
        return self._graph_and_unknown[1]

    @cached_property
    def _graph_and_unknown(self) -> tuple[FrozenFunctionGraph, dict[int, Any]]:
        op, inputs = self.op, [t() for t in self.types]
        applied = op.make_node(*inputs).outputs
        outputs = [v.type() for v in applied]
        out_cotangents = {k: outputs[k].type() for k in floats(outputs)}
        read_cotangents = {k: g for k, g in out_cotangents.items() if not self.used or self.used[k]}
        cotangents = [read_cotangents.get(k, DisconnectedType()()) for k in range(len(outputs))]
        # As in PyTensor's `grad`, skip an op whose outputs are all disconnected: ops read their
        # cotangents' ranks, and `PermuteRowElements` of integers raises.
        nothing: list[Any] = [None] * len(inputs)
        in_cotangents = (
            pullback_with_conjugates(op, list(inputs), applied, cotangents)
            if read_cotangents
            else nothing
        )
        results: list[Variable] = []
        unknown = {}
        for k in floats(inputs):
            x: Any = inputs[k]
            if in_cotangents[k] is not None and isinstance(in_cotangents[k].type, NullType):
                unknown[k] = in_cotangents[k]
            if (
                k in unknown
                or in_cotangents[k] is None
                or isinstance(in_cotangents[k].type, DisconnectedType)
            ):
                results.append(x.zeros_like())
            else:
                results.append(x.type.filter_variable(as_cotangent_of(x, in_cotangents[k])))
        replace = dict(zip(applied, outputs, strict=True))
        results = clone_replace(results, replace, rebuild_strict=False)
        graph = FunctionGraph([*inputs, *outputs, *out_cotangents.values()], results, clone=False)
        run_after_forward(graph, [applied[0].owner])
        self.prepare(graph)
        return freeze(graph), unknown

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PullbackRule):
            return False
        if (self.types, self.prepare, self.used) != (other.types, other.prepare, other.used):
            return False
        try:
            return bool(self.op == other.op)
        except (
            Exception
        ):  # OpFromGraphs compare the results of their pullbacks, which may raise anything
            return False

    def __hash__(self) -> int:
        return hash((PullbackRule, self.op, self.types))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_graph_and_unknown"}
