"""Rewriting of a program to the cheapest form under equations.

    log1p(-1 * exp(x))      ->  log1mexp(x)
    exp(a[i]), i of 1500    ->  exp(a)[i], where a has 120 rows
    inv(A) @ x, x @ that    ->  solve(A, x), once

Condition: the option ``optimize="egraph"`` of `loopax.jaxify`, and the package egglog. The new program
replaces the old one if it costs less, by the model of `cost.py`.

Reason: PyTensor's rewrites run one after the other, and an earlier one may destroy the pattern of a
later one. An e-graph keeps every form of an expression beside the others, and selects one at the end.

In the literature: equality saturation (Tate et al. 2009, Willsey et al. 2021).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from operator import itemgetter
from typing import Any

from pytensor.graph.fg import FunctionGraph, Output

from loopax.extensions.egraph.conditions import add_condition_facts
from loopax.extensions.egraph.cost import DIGITS, cost_of, keeping_cost_of
from loopax.extensions.egraph.decode import Decoder, Unwritable, original_choice, original_terms
from loopax.extensions.egraph.encode import Encoded
from loopax.extensions.egraph.extract import Choice, cheapest, users_of
from loopax.extensions.egraph.refine import refined
from loopax.extensions.egraph.rules import RULES_BY_NAME
from loopax.extensions.egraph.saturate import Saturated, saturated
from loopax.extensions.egraph.sufficient_statistics.facts import add_statistics_facts
from loopax.lowering.bodies import map_bodies
from loopax.lowering.notes import note

MISSING = (
    "optimize='egraph' needs the package egglog, which is not installed: pip install 'loopax[egraph]'. "
    "Without it: optimize='none', the default."
)
LEAST = 10.0  # the least gain of a change, in nanoseconds
ENOUGH = 0.95  # largest ratio of new to old cost: the model of costs is no more precise


def optimizer() -> Callable[[FunctionGraph], None]:
    """The pass, `egraph`.

    Raises `ImportError` if the package egglog is missing.
    """
    if find_spec("egglog") is None:
        raise ImportError(MISSING)
    return egraph


def egraph(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    map_bodies(graph, egraph, where=lambda body: len(body.apply_nodes) > 1)
    if len(graph.apply_nodes) > 1:
        take_cheapest(graph)


def take_cheapest(
    graph: FunctionGraph, costs: Callable[[Any, Any], Any] | None = None, enough: float = ENOUGH
) -> None:
    """Rewrite ``graph`` in place, without its bodies, if the new cost is below ``enough`` of the old.

    ``costs`` builds the cost function, by default `cost.cost_of`.
    """
    program = Encoded(graph)
    add_condition_facts(program)
    add_statistics_facts(program, graph)
    equal_terms = saturated(program)
    cost = (costs or cost_of)(program.table, equal_terms)
    keeping_cost = keeping_cost_of(program.table, equal_terms)
    original = original_choice(program, equal_terms)
    unchanged = {
        c: next((literal for literal in equal_terms.classes[c] if literal.head == "Lit"), node)
        for c, node in original.items()
    }
    greedy = cheapest(equal_terms.classes, cost, unchanged)
    users = users_of(equal_terms.classes)
    shared = cheapest(equal_terms.classes, lambda c, node: cost(c, node) / users[c], unchanged)
    roots = [equal_terms.class_of_term[k] for k in program.outputs]
    pools = greedy, {**greedy, **unchanged}
    choice, after = min(
        (
            refined(equal_terms.classes, cost, keeping_cost, start, pools, roots)
            for start in (unchanged, greedy, shared)
        ),
        key=itemgetter(1),
    )
    before = _total(
        list(original_terms(program, equal_terms)),
        program,
        equal_terms.class_of_term,
        cost,
        keeping_cost,
    )
    if after > enough * before or 0 <= before - after < LEAST:
        return
    try:
        new = Decoder(program, equal_terms, choice, original, graph.outputs)
    except Unwritable:
        return
    for k, (old, out) in enumerate(zip(list(graph.outputs), new.outputs, strict=True)):
        if out is not old:
            [node] = [
                n for n, _ in graph.clients[old] if isinstance(n.op, Output) and n.op.idx == k
            ]
            graph.change_node_input(node, 0, out, reason="egraph")
    bound = ", a bound reached" if equal_terms.full else ""
    lost = ", and digits that were lost" if before - after > DIGITS / 2 else ""
    times = f"{before % DIGITS:.0f} ns -> {after % DIGITS:.0f} ns by the table of costs{lost}"
    note(f"egraph: {equal_terms.rounds} rounds{bound}; {times}")
    for line in used_rules(equal_terms, choice, new.changed):
        note(f"egraph: {line}")


def _total(
    terms: Sequence[tuple[int, Any]],
    program: Any,
    class_of_term: Sequence[int],
    cost: Callable[[int, Any], float],
    keeping_cost: Callable[[int, Any], float],
) -> float:
    uses = Counter(program.outputs)
    for number, _ in terms:
        uses.update(program.terms[number].operands)
    return sum(
        cost(class_of_term[number], node)
        + (keeping_cost(class_of_term[number], node) if uses[number] > 1 else 0.0)
        for number, node in terms
    )


def used_rules(egraph: Saturated, choice: Choice, changed: Iterable[int]) -> list[str]:
    """Count the rules that added the selected terms of classes ``changed``: ``"log1mexp (2)"``.

    The most frequent rule comes first. An e-graph stores equalities without their reasons: if several rules
    added terms of one op to a class, each is named.
    """
    counts = Counter(
        name
        for c in changed
        for name in egraph.used.get(c, ())
        if RULES_BY_NAME[name].gives(choice[c])
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [name if n == 1 else f"{name} ({n})" for name, n in ordered]
