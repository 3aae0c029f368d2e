"""A program that locates the first nonfinite value of another program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytensor.graph.basic import Variable, clone
from pytensor.graph.fg import FunctionGraph

from loopax.ir.program import Program
from loopax.lowering.finiteness.locate import Locations, locating


def locating_program(program: Program) -> tuple[Program, Locations]:
    """A program, to be lowered, that reports on the inputs of ``program``; and the report's meaning."""
    assert program.has_flag and program.as_read is not None
    inputs, outputs = clone(*program.as_read)
    graph = FunctionGraph(inputs, outputs[:-1], clone=False)
    locations = locating(graph, output_names(program, outputs))
    new = replace(
        program.with_graph(locations.graph),
        build=lambda leaves: leaves[0],
        name=f"{program.name}, looked for nan in",
        updates=(),
        has_flag=False,
        as_read=clone(locations.graph.inputs, locations.graph.outputs),
    )
    return new, locations


def output_names(program: Program, outputs: list[Variable]) -> list[str]:
    """Names of the outputs, given or by position, and of the updates."""
    n = program.n_returned
    marks = [object() for _ in range(n)]
    try:
        paths = dict(_paths(program.build(marks), ""))
    except Exception:  # a class of the user's that accepts only arrays
        paths = {}
    names = []
    for k, v in enumerate(outputs[:n]):
        path = paths.get(marks[k], f"[{k}]" if n > 1 else "")
        names.append(f"'{v.name}'" if v.name else path or "of the program")
    return [*names, *(f"'{program.shared_names[k]}', updated" for k in program.updates)]


def _paths(tree: object, path: str) -> Iterator[tuple[Any, str]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _paths(value, f"{path}[{key!r}]")
    elif isinstance(tree, list | tuple):
        for k, value in enumerate(tree):
            yield from _paths(value, f"{path}[{k}]")
    else:
        yield tree, path
