"""Search for the node at which a gradient stops being finite while the value is finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import Switch

from loopax.diagnosis.findings import at_node
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.numbers import (
    at_entry,
    bad_entries,
    entry_in_words,
    first_true,
    kind_of,
    number_in_words,
)
from loopax.diagnosis.origin import op_name
from loopax.diagnosis.places import Place, entries_read
from loopax.diagnosis.report import Diagnosis, Finding
from loopax.diagnosis.reverse import NotFinite, Reverse
from loopax.diagnosis.runner import Runner
from loopax.diagnosis.traps import explain_gradient
from loopax.facts.elementwise import is_elementwise
from loopax.ir.derivatives.inner_gradients import is_float

_FINITE = "every value and every derivative is finite."


def diagnose_gradient(
    name: str,
    runner: Runner,
    frame: Frame,
    names: Mapping[Variable, str],
    gradient: Mapping[Variable, Any],
) -> Diagnosis:
    """Diagnose ``gradient``, by input, of the sum of the float outputs of ``frame``."""
    bad = {
        v: flags
        for v, g in gradient.items()
        if (flags := bad_entries(g)) is not None and flags.any()
    }
    if not bad:
        return Diagnosis(name, _FINITE)
    entries = ", ".join(
        f"{names.get(v, v.name)}{entry_in_words(first_true(flags))}" for v, flags in bad.items()
    )
    summary = f"the value is finite; the derivative by {entries} is not."
    seeds = [np.ones_like(frame.value(v)) if is_float(v) else None for v in frame.graph.outputs]
    moving = [v in gradient for v in frame.graph.inputs]
    for guards in (True, False):
        try:
            Reverse(runner, guards).pull(frame, seeds, moving)
        except NotFinite as stop:
            spread = tuple(f"the derivative by {names.get(v, v.name)}" for v in bad)
            return Diagnosis(name, summary, (_finding(stop, names, spread),))
    note = (
        "the derivatives, pulled back op by op, are finite: a rewriting or JAX computes them in another "
        "form. loopax.compare(f, ...) shows which forms agree."
    )
    return Diagnosis(name, summary, (), (note,))


def _finding(stop: NotFinite, names: Mapping[Variable, str], spread: tuple[str, ...]) -> Finding:
    frame, node = stop.frame, stop.node
    out = node.outputs[0]
    shape = np.shape(frame.value(out))
    at_operand = stop.entry
    entry = at_operand if at_operand is not None and len(at_operand) == len(shape) else None
    place = Place(frame, out, entry)
    numbers = [
        at_entry(frame.value(v), entries_read(place, node, k)) for k, v in enumerate(node.inputs)
    ]
    arrived = stop.cotangents[0]
    cotangent = at_entry(arrived, entry) if arrived is not None else np.nan
    untaken = bool(np.ndim(cotangent) == 0 and cotangent == 0 and _is_untaken(frame, out, entry))
    trap = explain_gradient(op_name(node.op), numbers, cotangent, untaken)
    if np.ndim(cotangent) == 0:
        trap = trap._replace(
            why=f"{trap.why} The cotangent that came in is {number_in_words(cotangent)}."
        )
    return at_node(
        frame,
        node,
        names,
        kind=kind_of(at_entry(stop.pulled, stop.entry)),
        trap=trap,
        variable=out,
        entry=entry,
        spread=spread,
        in_gradient=True,
    )


def _is_untaken(frame: Frame, v: Variable, entry: tuple[int, ...] | None) -> bool:
    """Whether a later switch discards the value computed from ``v``."""
    clients: dict[Variable, list[tuple[Apply, int]]] = {}
    for node in frame.order:
        for k, x in enumerate(node.inputs):
            clients.setdefault(x, []).append((node, k))
    visited: set[Apply] = set()
    stack: Sequence[Variable] = [v]
    while stack:
        *stack, x = stack
        for node, k in clients.get(x, []):
            if node in visited:
                continue
            visited.add(node)
            if is_elementwise(node, Switch) and k > 0:
                condition = np.asarray(frame.value(node.inputs[0]))
                choice = (
                    condition[entry]
                    if entry is not None and len(entry) == condition.ndim
                    else condition
                )
                if not np.all(np.equal(choice, k == 1)):
                    return True
            stack = [*stack, *node.outputs]
    return False
