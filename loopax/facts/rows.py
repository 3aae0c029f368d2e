"""One row of an expression of whole arrays: ``2 * trace * other`` -> ``2 * row * other_row``.

A node works row by row if the leading axis of its result runs along the leading axes of its inputs, so that
a step of a loop can compute for its row what the node computes for all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply, Variable

from loopax.facts.record import facts_of


def by_rows(node: Apply) -> list[int]:
    """The inputs whose row ``t`` determines the output's row ``t``; all others are read whole."""
    axes = facts_of(node.op).axes(node) if len(node.outputs) == 1 else None
    return [] if axes is None else [k for k, own in enumerate(axes) if own and own[0] == 0]


def row_wise_inputs(node: Apply) -> list[int]:
    """The inputs `by_rows`, if these and lengths alone determine row ``t`` of the output: see `row_of`.

    Empty if they do not. An input that is known to have a single row stands for all rows.
    """
    own, facts = by_rows(node), facts_of(node.op)
    if not own or facts.behind(node, -1) is None:
        return []
    others = [v for k, v in enumerate(node.inputs) if k not in own]
    return own if all(any(v is n for n in facts.lengths(node)) for v in others) else []


def stands_for_all_rows(v: Variable) -> bool:
    """Whether ``v``, an input of a row-wise node, has a single row that is used for all rows."""
    return bool(v.type.shape[0] == 1)


def row_of(node: Apply, row: Callable[[Variable], Any], whole: Callable[[Variable], Any]) -> Any:
    """The output of ``node`` for one row; ``row`` maps an input to its row, ``whole`` maps a length."""
    own = by_rows(node)
    inputs = [row(v) if k in own else whole(v) for k, v in enumerate(node.inputs)]
    return facts_of(node.op).behind(node, -1)(*inputs)
