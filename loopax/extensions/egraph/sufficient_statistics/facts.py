"""Facts on sufficient statistics for the rules (`../rules/sufficient.py`)."""

from __future__ import annotations

from typing import Any

from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import constant

from loopax.extensions.egraph.encode import Encoded
from loopax.extensions.egraph.sufficient_statistics.coordinates import Statistics, statistics
from loopax.extensions.egraph.sufficient_statistics.polynomials import at_rows, is_layout


def add_statistics_facts(program: Encoded, graph: FunctionGraph) -> None:
    """Add the sufficient statistics of a program to the facts of its terms."""
    for p, reduced in enumerate(statistics(graph)):
        _add_facts(program, p, reduced)
        for node in graph.apply_nodes:
            if is_layout(node) and (k := program.table.access(node)) is not None:
                program.facts.append(f"(Layout {k})")


def _add_facts(program: Encoded, p: int, reduced: Statistics) -> None:
    """Add the coordinates of the p-th set of rows, and its reads and writes of fewer rows."""
    n, m = reduced.n, len(reduced.ones)
    for shape, shorter, ones in (
        (f"(Sh1 {n})", f"(Sh1 {m})", reduced.ones),
        (f"(Sh2 {n} 1)", f"(Sh2 {m} 1)", reduced.ones[:, None]),
    ):
        number = program.leaf(constant(ones))
        program.facts.append(f"(set (short {p} {shape}) {shorter})")
        program.facts.append(f"(Ones1 {p} {shape} (value {number}))")
    for v, value in reduced.columns.items():
        old, new = program.number_of(v), program.leaf(constant(value))
        program.fact("Safe", old)  # a constant cannot raise
        is_matrix = value.ndim == 2 and value.shape[1] > 1
        program.facts.append(f"({'Columns' if is_matrix else 'Span'} {p} (value {old}))")
        if value.ndim == 2:
            program.facts.append(f"(Columns {p} (value {old}))")
        program.facts.append(f"(union (Lin {p} (value {old})) (value {new}))")
    for v, value in reduced.across.items():
        new = program.leaf(constant(value))
        program.facts.append(f"(Across {p} (value {program.number_of(v)}) (value {new}))")
    for node in reduced.gathers:
        k, few_rows = program.table.access(node), at_rows(node, reduced.row_of)
        fewer = program.table.access(few_rows)
        source = program.shape_of(node.inputs[0])
        program.facts.append(f"(FewerRows {p} {k} {fewer})")
        program.facts.append(f"(set (read {fewer} {source}) (Sh1 {m}))")
        program.facts.append(f"(Rows {fewer})")
    for node in reduced.scatters:
        name = program.terms[program.number_of(node.outputs[0])].name
        types = program.table.named(name).types
        index: Any = at_rows(node, reduced.row_of).inputs[2:]
        few = program.table.number(node.op, types, index)
        program.facts.append(f'(FewerWritten {p} "{name}" "#{few}")')
