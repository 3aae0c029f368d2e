"""Convert programs with named axes to plain tensors, whose axes are positional."""

from __future__ import annotations

from typing import Any

from pytensor.graph.fg import FunctionGraph

from loopax.ir.named_axes import axis_names, with_names, without_names
from loopax.ir.program import Program
from loopax.ir.replace import replaced


def with_plain_tensors(program: Program) -> Program:
    """Replace the inputs and outputs of ``program`` by plain tensors, if it has named axes."""
    graph = program.graph
    if all(axis_names(v) is None for v in [*graph.inputs, *graph.outputs]):
        return program
    inputs, replacements = [], {}
    for v in graph.inputs:
        x: Any = without_names(v).type(name=v.name)
        names = axis_names(v)
        replacements[v] = x if names is None else with_names(x, names)
        inputs.append(x)
    outputs = [without_names(v) for v in replaced(graph.outputs, replacements)]
    return program.with_graph(FunctionGraph(inputs, outputs, clone=True))
