"""An op's own pullback, as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.null_type import NullType
from pytensor.graph.replace import clone_replace

from loopax.ir.derivatives.after_forward import run_after_forward
from loopax.ir.derivatives.rules.registry import pullback_of

_FLOATS = ("float16", "float32", "float64", "complex64", "complex128")


def floats(variables: Sequence[Any]) -> list[int]:
    """The positions of the variables that can have a derivative."""
    return [k for k, v in enumerate(variables) if getattr(v.type, "dtype", "") in _FLOATS]


class PullbackRule:
    """The pullback that ``op`` brings along, as a graph that is made when it is first asked for.

    Not before: it may apply its own op, or one like it, without an end, and it may raise.

    Parameters
    ----------
    op
        It has a ``pullback``.
    types
        Those of the inputs that it is applied to.
    prepare
        What is done to the graph, in place: always `import_graph`, handed in since `ir` may not import it.
    used
        Which outputs are read; none means all. No cotangent comes from the others.
    """

    def __init__(
        self,
        op: Any,
        types: Sequence[Any],
        prepare: Callable[[FunctionGraph], None],
        used: Sequence[bool] = (),
    ) -> None:
        self.op, self.types, self.prepare, self.used = op, tuple(types), prepare, tuple(used)

    @property
    def graph(self) -> FrozenFunctionGraph:
        """``[*inputs, *outputs, *float cotangents] -> [*cotangents of the float inputs]``.

        A cotangent that the op leaves disconnected, or says to be `unknown`, is zero.

        Raises
        ------
        NotImplementedError
            The op has no pullback.
        """
        return self._graph_and_unknown[0]

    @property
    def unknown(self) -> dict[int, Any]:
        """The inputs of which the op says that it has no cotangent, with the variables that say why."""
        return self._graph_and_unknown[1]

    @cached_property
    def _graph_and_unknown(self) -> tuple[FrozenFunctionGraph, dict[int, Any]]:
        op, inputs = self.op, [t() for t in self.types]
        applied = op.make_node(*inputs).outputs
        outputs = [v.type() for v in applied]
        given = {k: outputs[k].type() for k in floats(outputs)}
        read = {k: g for k, g in given.items() if not self.used or self.used[k]}
        cotangents = [read.get(k, DisconnectedType()()) for k in range(len(outputs))]
        # As PyTensor's own `grad`, ask no op whose outputs are all disconnected: an op asks its cotangents
        # for their ranks, and `PermuteRowElements` of integers raises.
        nothing: list[Any] = [None] * len(inputs)
        found = pullback_of(op, list(inputs), applied, cotangents) if read else nothing
        wanted: list[Variable] = []
        unknown = {}
        for k in floats(inputs):
            x: Any = inputs[k]
            if found[k] is not None and isinstance(found[k].type, NullType):
                unknown[k] = found[k]
            if k in unknown or found[k] is None or isinstance(found[k].type, DisconnectedType):
                wanted.append(x.zeros_like())
            else:
                wanted.append(x.type.filter_variable(found[k].astype(x.type.dtype)))
        replace = dict(zip(applied, outputs, strict=True))
        wanted = clone_replace(wanted, replace, rebuild_strict=False)
        graph = FunctionGraph([*inputs, *outputs, *given.values()], wanted, clone=False)
        run_after_forward(graph, [applied[0].owner])
        self.prepare(graph)
        return graph.freeze(), unknown

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PullbackRule):
            return False
        if (self.types, self.prepare, self.used) != (other.types, other.prepare, other.used):
            return False
        try:
            return bool(self.op == other.op)
        except (
            Exception
        ):  # OpFromGraphs compare what their pullbacks give, which may raise anything
            return False

    def __hash__(self) -> int:
        return hash((PullbackRule, self.op, self.types))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_graph_and_unknown"}
