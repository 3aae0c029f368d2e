"""What the rules are told of sufficient statistics (`../rules/sufficient.py`)."""

from __future__ import annotations

from typing import Any

from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import constant

from loopax.extensions.egraph.encode import Encoded
from loopax.extensions.egraph.sufficient.coordinates import Statistics, statistics
from loopax.extensions.egraph.sufficient.polynomials import at_rows, is_layout


def say_statistics(program: Encoded, graph: FunctionGraph) -> None:
    """State the sufficient statistics of a program as facts of its terms."""
    for p, found in enumerate(statistics(graph)):
        _add_facts(program, p, found)
        for node in graph.apply_nodes:
            if is_layout(node) and (k := program.table.access(node)) is not None:
                program.facts.append(f"(Layout {k})")


def _add_facts(program: Encoded, p: int, found: Statistics) -> None:
    """The constants of the p-th set of rows in coordinates, and what reads and writes fewer rows."""
    n, m = found.n, len(found.ones)
    for shape, shorter, ones in (
        (f"(Sh1 {n})", f"(Sh1 {m})", found.ones),
        (f"(Sh2 {n} 1)", f"(Sh2 {m} 1)", found.ones[:, None]),
    ):
        one = program.leaf(constant(ones))
        program.facts.append(f"(set (short {p} {shape}) {shorter})")
        program.facts.append(f"(Ones1 {p} {shape} (value {one}))")
    for v, value in found.columns.items():
        of, new = program.number_of(v), program.leaf(constant(value))
        program.fact("Safe", of)  # it has been computed
        is_matrix = value.ndim == 2 and value.shape[1] > 1
        program.facts.append(f"({'Columns' if is_matrix else 'Span'} {p} (value {of}))")
        if value.ndim == 2:
            program.facts.append(f"(Columns {p} (value {of}))")
        program.facts.append(f"(union (Lin {p} (value {of})) (value {new}))")
    for v, value in found.across.items():
        new = program.leaf(constant(value))
        program.facts.append(f"(Across {p} (value {program.number_of(v)}) (value {new}))")
    for node in found.gathers:
        k, few_rows = program.table.access(node), at_rows(node, found.row_of)
        fewer = program.table.access(few_rows)
        source = program.shape_of(node.inputs[0])
        program.facts.append(f"(FewerRows {p} {k} {fewer})")
        program.facts.append(f"(set (read {fewer} {source}) (Sh1 {m}))")
        program.facts.append(f"(Rows {fewer})")
    for node in found.scatters:
        name = program.terms[program.number_of(node.outputs[0])].name
        types = program.table.named(name).types
        rest: Any = at_rows(node, found.row_of).inputs[2:]
        few = program.table.number(node.op, types, rest)
        program.facts.append(f'(FewerWritten {p} "{name}" "#{few}")')
