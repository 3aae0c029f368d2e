"""Closures: the variables that a step uses from outside.

A step is called with dummies, root variables created for that call. So every variable that depends on a
dummy is younger, and only younger nodes have to be visited: the cost of tracing a step is proportional to
the step, not to the graph around it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.random.type import RandomType

from loopax.base.errors import LoopaxError, StatefulFunctionError, describe
from loopax.ir.named_axes import axis_names, with_names, without_names
from loopax.ir.replace import applied_to


def age(variable: Variable) -> int:
    """A number that grows with each variable created.

    PyTensor numbers variables for their automatic names. A variable without a number counts as young,
    which only means that it is visited.
    """
    _, _, number = str(variable.auto_name).rpartition("_")
    return int(number) if number.isdecimal() else sys.maxsize


class Closure(NamedTuple):
    """The graph of a step: ``outer`` are the captured variables, ``inner`` their stand-ins in ``outs``."""

    outer: list[Variable]
    inner: list[Variable]
    outs: list[Any]


def close(
    outs: Sequence[Variable],
    dummies: Iterable[Variable],
    since: int,
    dummy_of: Mapping[Variable, Variable] | None = None,
    *,
    runs: bool = False,
) -> Closure:
    """Close ``outs`` over ``dummies`` and captured variables.

    Variables, but not constants, that are older than ``since`` are captured. All nodes of a step or a
    branch stay inside, so that if it does not run, none of them is computed or raises: a pass hoists
    invariants, under a guard.

    If the step surely ``runs``, the outermost variables that do not depend on ``dummies`` are captured:
    they are computed once, and a derivative of the loop pulls their cotangents back once, not at every
    step. Constants are not captured, nor nodes of constants alone, which rewriting folds.

    ``dummy_of`` has the dummies of values that a step reads in another form: a row, as an index into
    its sequence.
    """
    dummy_of = dummy_of or {}
    nodes = young_nodes(outs, since, {*dummy_of})
    inside, fixed = {*dummies, *dummy_of}, set[Variable]()
    for node in nodes:
        if all(isinstance(v, Constant) or v in fixed for v in node.inputs):
            fixed.update(node.outputs)
        elif not runs or any(v in inside for v in node.inputs):
            inside.update(node.outputs)
    inside |= fixed
    nodes = [node for node in nodes if node.outputs[0] in inside]
    captured: dict[Variable, Variable] = {}
    for v in [*(v for node in nodes for v in node.inputs), *outs]:
        if v not in inside and not isinstance(v, Constant) and v not in captured:
            captured[v] = v
    inner = {v: without_names(v).type(name=v.name) for v in captured}
    for v, x in inner.items():
        names = axis_names(v)
        captured[v] = x if names is None else with_names(x, names)
    outer = [without_names(v) for v in captured]
    return Closure(outer, [*inner.values()], _rebuilt(outs, nodes, {**dummy_of, **captured}))


def substitute(
    outs: Sequence[Variable], replace: Mapping[Variable, Variable], since: int
) -> list[Any]:
    """Rebuild ``outs`` with some variables, none older than ``since``, replaced."""
    return _rebuilt(outs, young_nodes(outs, since), replace)


def _rebuilt(
    outs: Sequence[Variable], nodes: Sequence[Apply], replace: Mapping[Any, Any]
) -> list[Any]:
    replacements: dict[Variable, Any] = dict(replace)
    for node in nodes:
        if any(v in replacements for v in node.inputs):
            rebuilt = applied_to(node, [replacements.get(v, v) for v in node.inputs])
            for output, v in zip(node.outputs, rebuilt.outputs, strict=True):
                replacements.setdefault(output, v)
    return [replacements.get(v, v) for v in outs]


def young_nodes(
    outs: Iterable[Variable], since: int, roots: Collection[Variable] = ()
) -> list[Apply]:
    """The nodes younger than ``since`` that ``outs`` depend on, up to ``roots``, inputs first."""
    order: list[Apply] = []
    visited: set[Apply] = set()
    stack = [(v.owner, False) for v in outs if v not in roots]
    while stack:
        node, inputs_done = stack.pop()
        if node is None or (not inputs_done and node in visited):
            continue
        if inputs_done:
            order.append(node)
            continue
        visited.add(node)
        if age(node.outputs[0]) > since:
            stack.append((node, True))
            stack += [(v.owner, False) for v in node.inputs if v not in roots]
    return order


def refuse_hidden_draws(outs: Iterable[Variable], since: int, label: str) -> None:
    """Raise if a step draws from a generator that no step updates, so that all would make one draw.

    Such generators are those of ``RandomStream``, shared variables with a ``default_update`` between two
    calls, and the one that a random variable without ``rng=`` creates, which is as young as the step.
    """
    for node in young_nodes(outs, since):
        for v in node.inputs:
            if not isinstance(v.type, RandomType) or v.owner is not None:
                continue
            if getattr(v, "default_update", None) is not None:
                origin = (
                    "a shared generator with a default update. Such a generator (RandomStream makes "
                    "them) is updated between two calls of a function, not between two steps of a loop"
                )
            elif isinstance(v, SharedVariable) and age(v) > since:
                origin = (
                    "a generator that the step creates, because it passes no rng=. Nothing updates it "
                    "between two steps of a loop"
                )
            else:
                continue
            raise StatefulFunctionError(
                f"The step of {label}, in {describe(node.outputs[-1])}, draws from {origin}, so "
                "every step would make the same draw. Carry the generator:\n"
                "\n"
                "    rng = pytensor.shared(np.random.default_rng(1))\n"
                "\n"
                "    def step(rng, x):\n"
                "        rng, eps = pt.random.normal(rng=rng, return_next_rng=True)\n"
                "        return rng, x + eps\n"
                "\n"
                "    rng_after, ys = scan(step, rng, xs)"
            )


def refuse_captures(outer: Sequence[Variable], label: str) -> None:
    """Raise if a step with ``strict=True`` captures variables."""
    if outer:
        lines = "\n".join(f"  - {describe(v)}" for v in outer)
        raise LoopaxError(
            f"The step of {label} has strict=True, but it uses variables that are not passed to it:\n"
            f"{lines}\n"
            "Pass them through the carry or through xs, or leave out strict=True: a step captures "
            "variables automatically."
        )
