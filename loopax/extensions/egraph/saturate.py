"""Terms and rules in egglog, until nothing is new or a bound is reached; what is there then.

The bounds are counts, so that a program becomes the same in every process and on every machine: rounds, and
terms. Of time there is a bound only by them: a round on a full e-graph takes some 20 ms.

egglog is used by its own language, and not by the expressions of its Python package: the rules are
text, which it reads in 5 ms, and the e-graph is read back whole.
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
TERMS = 6000  # of the size of the e-graph, terms of all kinds
_TERMS_OF_ALL = 1000  # of the programs that one engine takes

_ROUND = "(run-schedule (saturate (run facts)) (run rules))"
_HEADS = ("Atom", "Lit", "E1", "E2", "E3", "S", "N1", "N2", "NN")


class Node(NamedTuple):
    """A term whose operands are classes, by number."""

    head: str
    name: Any
    operands: tuple[int, ...] = ()


def in_order(node: Node) -> Node:
    """The one of ``x + y`` and ``y + x`` that stands for both."""
    if node.head == "E2" and node.name in COMMUTE:
        return Node(node.head, node.name, tuple(sorted(node.operands)))
    return node


@dataclass(frozen=True)
class Saturated:
    """An e-graph: classes of equal terms.

    Attributes
    ----------
    classes
        The terms of each class.
    of_term
        The class of each term of the program, by the term's number.
    counts
        How many entries a class has, where that is known.
    known
        The classes that are constants.
    used
        The names of the rules that have said something of a class.
    rounds, full
        How many there were, and whether a bound ended them.
    """

    classes: dict[int, list[Node]]
    of_term: list[int]
    counts: dict[int, int]
    known: set[int]
    used: dict[int, set[str]]
    rounds: int
    full: bool


class _Engine:
    """An e-graph of egglog that has the language and the rules: to make one takes 35 ms.

    A program is taken back when it is done with, and the next one comes. But what egglog copies for that
    grows with every term that ever was there, by 7 us a term (egglog 14.0.0: a push took 4 ms, and 45 after
    sixty programs of 170 terms), so that an engine serves for `_TERMS_OF_ALL` and no more.
    """

    def __init__(self) -> None:
        from egglog.bindings import EGraph

        self._graph = EGraph()
        self.terms = 0  # of all programs so far
        self.run("\n".join([LANGUAGE, FACTS, *(rule.text for rule in RULES)]))

    def run(self, text: str) -> list[Any]:
        """What the commands say."""
        return self._graph.run_program(*self._graph.parse_program(text))

    def saturated(self, program: Encoded) -> Saturated:
        self.run(f"(push)\n{program.text}")
        rounds, full = 0, False
        while not full:
            [done] = self.run(_ROUND)
            if not done.report.updated:
                break
            rounds += 1
            full = rounds == ROUNDS or _size(self.run("(print-size)")) > TERMS
        self.run("(run-schedule (saturate (run facts)))")
        found = _read(self._graph, len(program.terms), rounds, full)
        self.run("(pop)")
        self.terms += len(program.terms)
        return found


class _Idle(threading.local):
    """The engine that a thread may take. It is that thread's alone: egglog 13 refuses any other."""

    engine: _Engine | None = None


_idle = _Idle()


def saturated(program: Encoded) -> Saturated:
    """The e-graph of a program, after as many rounds as the bounds allow."""
    engine = _idle.engine or _Engine()
    _idle.engine = None  # where this raises, the engine is not used again
    found = engine.saturated(program)
    if engine.terms < _TERMS_OF_ALL:
        _idle.engine = engine
    return found


def _size(outputs: list[Any]) -> int:
    [found] = outputs
    return sum(n for name, n in found.sizes if name in _HEADS)


def _read(graph: Any, n_terms: int, rounds: int, full: bool) -> Saturated:
    functions = graph.freeze().functions
    numbers: dict[Any, int] = {}  # of classes, as they come

    def number(value: Any) -> int:
        return numbers.setdefault(value, len(numbers))

    def rows(name: str) -> Any:
        return functions[name].rows if name in functions else ()

    of_term = [0] * n_terms
    for row in rows("value"):
        of_term[graph.value_to_i64(row.inputs[0])] = number(row.output)
    cells = {row.output: row.inputs for row in rows("Cons")}

    def items(value: Any) -> tuple[Any, ...]:
        found = []
        while value in cells:
            head, value = cells[value]
            found.append(head)
        return tuple(found)

    classes: dict[int, dict[Node, None]] = {}
    for head in _HEADS:
        read = {"Atom": graph.value_to_i64, "S": graph.value_to_i64, "Lit": graph.value_to_f64}.get(
            head, graph.value_to_string
        )
        for row in rows(head):
            first, *rest = row.inputs
            operands = items(rest[0]) if head == "NN" else tuple(rest)
            node = Node(head, read(first), tuple(map(number, operands)))
            classes.setdefault(number(row.output), {})[in_order(node)] = None
    sizes = {row.inputs[0]: graph.value_to_i64(row.output) for row in rows("count")}
    counts = {
        number(row.inputs[0]): sizes[row.output] for row in rows("shape") if row.output in sizes
    }
    used: dict[int, set[str]] = {}
    for row in rows("Used"):
        used.setdefault(number(row.inputs[0]), set()).add(graph.value_to_string(row.inputs[1]))
    known = {number(row.inputs[0]) for row in rows("Known")}
    terms = _buildable({c: _numbers_alone(nodes) for c, nodes in classes.items()})
    return Saturated(terms, of_term, counts, known, used, rounds, full)


def _numbers_alone(nodes: Iterable[Node]) -> list[Node]:
    """A number has no rank of its own; what it is equal to may have several."""
    found = list(nodes)
    return [node for node in found if node.head == "Lit"] or found


def _buildable(classes: dict[int, list[Node]]) -> dict[int, list[Node]]:
    """The terms whose operands have terms: some are of what stands in rules alone."""
    while True:
        left = {
            c: [n for n in nodes if all(map(classes.__contains__, n.operands))]
            for c, nodes in classes.items()
        }
        found = {c: nodes for c, nodes in left.items() if nodes}
        if sum(map(len, found.values())) == sum(map(len, classes.values())):
            return found
        classes = found
