"""A program as the cheapest one that equations make of it.

    log1p(-1 * exp(x))      ->  log1mexp(x)
    exp(a[i]), i of 1500    ->  exp(a)[i], where a has 120 rows
    inv(A) @ x, x @ that    ->  solve(A, x), once

Condition: the option ``optimize="egraph"`` of `loopax.jaxify`, and the package egglog. The new program
is taken where it costs less than the one that was there, by the costs of `cost.py`.

Reason: PyTensor's rewrites come one after the other, and each has to undo what the one before made of its
pattern. Here none is lost: every form that an equation gives is kept beside the others, and one is
taken in the end.

In the literature: equality saturation (Tate et al. 2009, Willsey et al. 2021).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from operator import itemgetter
from typing import Any

from pytensor.graph.fg import FunctionGraph, Output

from loopax.lowering.bodies import map_bodies
from loopax.lowering.notes import note

MISSING = (
    "optimize='egraph' needs the package egglog, which is not installed: pip install 'loopax[egraph]'. "
    "Without it: optimize='none', the default."
)
LEAST = 10.0  # nanoseconds that a change has to gain
ENOUGH = 0.95  # of the cost that was: the table of costs is no better than that


def optimizer() -> Callable[[FunctionGraph], None]:
    """The pass, `egraph`.

    Raises
    ------
    ImportError
        The package egglog is missing.
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
    """Rewrite ``graph`` in place, but for its bodies, where that costs less than ``enough`` of the cost.

    ``costs`` are those of `cost.cost_of` where none are given.
    """
    from loopax.extensions.egraph.conditions import say_conditions
    from loopax.extensions.egraph.cost import DIGITS, cost_of, keeping_cost_of
    from loopax.extensions.egraph.decode import Decoder, Unwritable, original_choice, original_terms
    from loopax.extensions.egraph.encode import Encoded
    from loopax.extensions.egraph.explain_rules import used_rules
    from loopax.extensions.egraph.extract import cheapest, users_of
    from loopax.extensions.egraph.refine import refined
    from loopax.extensions.egraph.saturate import saturated
    from loopax.extensions.egraph.sufficient.facts import say_statistics

    program = Encoded(graph)
    say_conditions(program)
    say_statistics(program, graph)
    found = saturated(program)
    cost = (costs or cost_of)(program.table, found)
    keeping_cost = keeping_cost_of(program.table, found)
    original = original_choice(program, found)
    as_it_was = {
        c: next((one for one in found.classes[c] if one.head == "Lit"), node)
        for c, node in original.items()
    }
    greedy = cheapest(found.classes, cost, as_it_was)
    users = users_of(found.classes)
    shared = cheapest(found.classes, lambda c, node: cost(c, node) / users[c], as_it_was)
    roots = [found.of_term[k] for k in program.outputs]
    pools = greedy, {**greedy, **as_it_was}
    choice, after = min(
        (
            refined(found.classes, cost, keeping_cost, start, pools, roots)
            for start in (as_it_was, greedy, shared)
        ),
        key=itemgetter(1),
    )
    before = _total(
        list(original_terms(program, found)), program, found.of_term, cost, keeping_cost
    )
    if after > enough * before or 0 <= before - after < LEAST:
        return
    try:
        new = Decoder(program, found, choice, original, graph.outputs)
    except Unwritable:
        return
    for k, (old, out) in enumerate(zip(list(graph.outputs), new.outputs, strict=True)):
        if out is not old:
            [node] = [
                n for n, _ in graph.clients[old] if isinstance(n.op, Output) and n.op.idx == k
            ]
            graph.change_node_input(node, 0, out, reason="egraph")
    bound = ", a bound reached" if found.full else ""
    lost = ", and digits that were lost" if before - after > DIGITS / 2 else ""
    times = f"{before % DIGITS:.0f} ns -> {after % DIGITS:.0f} ns by the table of costs{lost}"
    note(f"egraph: {found.rounds} rounds{bound}; {times}")
    for line in used_rules(found, choice, new.changed):
        note(f"egraph: {line}")


def _total(
    terms: Sequence[tuple[int, Any]],
    program: Any,
    of_term: Sequence[int],
    cost: Callable[[int, Any], float],
    keeping_cost: Callable[[int, Any], float],
) -> float:
    """What the terms of a program cost as they stood there."""
    uses = Counter(program.outputs)
    for number, _ in terms:
        uses.update(program.terms[number].operands)
    return sum(
        cost(of_term[number], node)
        + (keeping_cost(of_term[number], node) if uses[number] > 1 else 0.0)
        for number, node in terms
    )
