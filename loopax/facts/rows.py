"""One row of an expression of whole arrays: ``2 * trace * other`` -> ``2 * row * other_row``.

A node works row by row where the leading axis of its result runs along the leading axes of its inputs, so
that a step of a loop can do for its row what the node does for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply, Variable

from loopax.facts.record import facts_of


def by_rows(node: Apply) -> list[int]:
    """The inputs from whose row ``t`` the output's row ``t`` follows; all others are read whole."""
    axes = facts_of(node.op).axes(node) if len(node.outputs) == 1 else None
    return [] if axes is None else [k for k, own in enumerate(axes) if own and own[0] == 0]


def row_wise_inputs(node: Apply) -> list[int]:
    """`by_rows` where row ``t`` of the output follows from that of inputs, and lengths: see `row_of`.

    Empty where it does not. An input of one row, known to be one, stands for all rows.
    """
    own, facts = by_rows(node), facts_of(node.op)
    if not own or facts.behind(node, -1) is None:
        return []
    others = [v for k, v in enumerate(node.inputs) if k not in own]
    return own if all(any(v is n for n in facts.lengths(node)) for v in others) else []


def stands_for_all_rows(v: Variable) -> bool:
    """Whether ``v``, an input of a row-wise node, has one row that is used for every one."""
    return bool(v.type.shape[0] == 1)


def row_of(node: Apply, row: Callable[[Variable], Any], whole: Callable[[Variable], Any]) -> Any:
    """The output of ``node`` at one row: ``row`` gives that of an input, ``whole`` a length."""
    own = by_rows(node)
    inputs = [row(v) if k in own else whole(v) for k, v in enumerate(node.inputs)]
    return facts_of(node.op).behind(node, -1)(*inputs)
