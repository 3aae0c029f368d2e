"""Equality saturation in egglog, to a fixed point or up to a bound.

The bounds are counts of rounds and terms, so that the result is the same in every process and on every
machine. They bound the time too: a round on a full e-graph takes some 20 ms.

egglog is used through its own language, in place of the expressions of its Python package: the rules
are text, which it parses in 5 ms, and the e-graph is read back whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from loopax.extensions.egraph.encode import Encoded
from loopax.extensions.egraph.language import LANGUAGE
from loopax.extensions.egraph.rules import COMMUTE, FACTS, RULES

ROUNDS = 8
TERMS = 6000  # the most terms of an e-graph
_TERMS_OF_ALL = 1000  # the most terms of all programs of one engine

_ROUND = "(run-schedule (saturate (run facts)) (run rules))"
_HEADS = ("Atom", "Lit", "E1", "E2", "E3", "S", "N1", "N2", "NN")


class Node(NamedTuple):
    """A term whose operands are classes, by number."""

    head: str
    name: Any
    operands: tuple[int, ...] = ()


def in_order(node: Node) -> Node:
    """The representative of ``x + y`` and ``y + x``."""
    if node.head == "E2" and node.name in COMMUTE:
        return Node(node.head, node.name, tuple(sorted(node.operands)))
    return node


@dataclass(frozen=True)
class Saturated:
    """An e-graph: classes of equal terms."""

    classes: dict[int, list[Node]]  # the terms of each class
    class_of_term: list[int]  # the class of each term of the program, by the term's number
    counts: dict[int, int]  # the numbers of entries of classes, where they are known
    constants: set[int]  # the classes that are constants
    used: dict[int, set[str]]  # the names of the rules that added terms to a class
    # The number of rounds, and whether a bound ended them.
    rounds: int
    full: bool


class _Engine:
    """An egglog e-graph with the language and the rules, which takes 35 ms to build.

    Each program is pushed and popped. But the copy of a push grows with every term that the e-graph
    ever had, by 7 us a term (egglog 14.0.0: a push took 4 ms, and 45 after sixty programs of 170
    terms), so that an engine serves `_TERMS_OF_ALL` terms and no more.
    """

    def __init__(self) -> None:
        from egglog.bindings import EGraph

        self._graph = EGraph()
        self.terms = 0  # terms of all programs so far
        self.run("\n".join([LANGUAGE, FACTS, *(rule.text for rule in RULES)]))

    def run(self, text: str) -> list[Any]:
        """Run commands; returns their outputs."""
        return self._graph.run_program(*self._graph.parse_program(text))

    def saturated(self, program: Encoded) -> Saturated:
        self.run(f"(push)\n{program.text}")
        rounds, full = 0, False
        while not full:
            [outcome] = self.run(_ROUND)
            if not outcome.report.updated:
                break
            rounds += 1
            full = rounds == ROUNDS or _size(self.run("(print-size)")) > TERMS
        self.run("(run-schedule (saturate (run facts)))")
        egraph = _read_back(self._graph, len(program.terms), rounds, full)
        self.run("(pop)")
        self.terms += len(program.terms)
        return egraph


class _Idle(threading.local):
    """The idle engine of a thread; egglog 13 refuses calls from any other thread."""

    engine: _Engine | None = None


_idle = _Idle()


def saturated(program: Encoded) -> Saturated:
    """Saturate the e-graph of a program, within the bounds."""
    engine = _idle.engine or _Engine()
    _idle.engine = None  # an engine that raises is not used again
    egraph = engine.saturated(program)
    if engine.terms < _TERMS_OF_ALL:
        _idle.engine = engine
    return egraph


def _size(outputs: list[Any]) -> int:
    [table] = outputs
    return sum(n for name, n in table.sizes if name in _HEADS)


def _read_back(graph: Any, n_terms: int, rounds: int, full: bool) -> Saturated:
    functions = graph.freeze().functions
    numbers: dict[Any, int] = {}  # numbers of classes, in order of appearance

    def number(value: Any) -> int:
        return numbers.setdefault(value, len(numbers))

    def rows(name: str) -> Any:
        return functions[name].rows if name in functions else ()

    class_of_term = [0] * n_terms
    for row in rows("value"):
        class_of_term[graph.value_to_i64(row.inputs[0])] = number(row.output)
    cells = {row.output: row.inputs for row in rows("Cons")}

    def items(value: Any) -> tuple[Any, ...]:
        heads = []
        while value in cells:
            head, value = cells[value]
            heads.append(head)
        return tuple(heads)

    classes: dict[int, dict[Node, None]] = {}
    for head in _HEADS:
        name_of = {
            "Atom": graph.value_to_i64,
            "S": graph.value_to_i64,
            "Lit": graph.value_to_f64,
        }.get(head, graph.value_to_string)
        for row in rows(head):
            first, *arguments = row.inputs
            operands = items(arguments[0]) if head == "NN" else tuple(arguments)
            node = Node(head, name_of(first), tuple(map(number, operands)))
            classes.setdefault(number(row.output), {})[in_order(node)] = None
    sizes = {row.inputs[0]: graph.value_to_i64(row.output) for row in rows("count")}
    counts = {
        number(row.inputs[0]): sizes[row.output] for row in rows("shape") if row.output in sizes
    }
    used: dict[int, set[str]] = {}
    for row in rows("Used"):
        used.setdefault(number(row.inputs[0]), set()).add(graph.value_to_string(row.inputs[1]))
    constant_classes = {number(row.inputs[0]) for row in rows("Known")}
    terms = _buildable({c: _numbers_alone(nodes) for c, nodes in classes.items()})
    return Saturated(terms, class_of_term, counts, constant_classes, used, rounds, full)


def _numbers_alone(nodes: Iterable[Node]) -> list[Node]:
    """The literals of a class, if there are any, since terms equal to a number may differ in rank."""
    terms = list(nodes)
    return [node for node in terms if node.head == "Lit"] or terms


def _buildable(classes: dict[int, list[Node]]) -> dict[int, list[Node]]:
    """The terms whose operands have terms; classes that rules alone introduce may have none."""
    while True:
        remaining = {
            c: [n for n in nodes if all(map(classes.__contains__, n.operands))]
            for c, nodes in classes.items()
        }
        nonempty = {c: nodes for c, nodes in remaining.items() if nodes}
        if sum(map(len, nonempty.values())) == sum(map(len, classes.values())):
            return nonempty
        classes = nonempty
