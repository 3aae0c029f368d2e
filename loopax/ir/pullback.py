"""An op's own pullback, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.null_type import NullType
from pytensor.graph.replace import clone_replace

_FLOATS = ("float16", "float32", "float64", "complex64", "complex128")


def floats(variables: Sequence[Any]) -> list[int]:
    """The positions of the variables that can have a derivative."""
    return [k for k, v in enumerate(variables) if getattr(v.type, "dtype", "") in _FLOATS]


def pullback_graph(op: Any, inputs: Sequence[Variable]) -> FunctionGraph:
    """``[*inputs, *outputs, *float cotangents] -> [*cotangents of the float inputs]`` of ``op``.

    ``inputs`` are roots of the types it is applied to. A cotangent that the op leaves disconnected or
    undefined is zero.

    Raises
    ------
    NotImplementedError
        The op has no pullback.
    """
    applied = op.make_node(*inputs).outputs
    outputs = [v.type() for v in applied]
    given = {k: outputs[k].type() for k in floats(outputs)}
    cotangents = [given.get(k, DisconnectedType()()) for k in range(len(outputs))]
    # As PyTensor's own `grad`, ask no op whose outputs are all disconnected: an op asks its cotangents for
    # their ranks, and `PermuteRowElements` of integers raises.
    nothing: list[Any] = [None] * len(inputs)
    found: list[Any] = op.pullback(list(inputs), applied, cotangents) if given else nothing
    wanted: list[Variable] = []
    for k in floats(inputs):
        x: Any = inputs[k]
        absent = found[k] is None or isinstance(found[k].type, DisconnectedType | NullType)
        if absent:
            wanted.append(x.zeros_like())
        else:
            wanted.append(x.type.filter_variable(found[k].astype(x.type.dtype)))
    replace = dict(zip(applied, outputs, strict=True))
    wanted = clone_replace(wanted, replace, rebuild_strict=False)
    return FunctionGraph([*inputs, *outputs, *given.values()], wanted, clone=True)
