"""Loops that count their steps up to a bound, as those of `loopax.lowering.scan_to_loop` do.

    count, ... = Loop(count + 1, ..., going on while count + 1 < bound and ...), from count = 0, bound > 0

With the number of steps in its head, a loop needs no check of what is read at the count, or at
``bound - 1 - count``, where a sequence has that many rows. (HMM with 4 states: 1.30 to 1.06 of
hand-written, since a step that may raise is scheduled worse.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.elemwise import Elemwise


@dataclass(frozen=True)
class Counter:
    """How a loop counts its steps.

    ``state`` is the position of the count among the states, ``bound`` that of the bound among all that the
    loop is given but its flag, ``others`` are what must hold inside for a next step as well, and
    ``indices`` what is at least 0 and less than the bound at each step.
    """

    state: int
    bound: int
    others: list[Any]
    indices: list[Any]

    @classmethod
    def of(cls, node: Apply) -> Counter | None:
        """The counter of the `Loop` that ``node`` is, None where it has none."""
        op: Any = node.op
        body = op.fgraph
        *following, flag = body.outputs
        terms = _all_of(flag)
        for term in terms:
            if not _is(term, ps.LT):
                continue
            count, bound = term.owner.inputs
            if bound not in body.inputs[op.n_states :] or count not in following:
                continue
            state, at = following.index(count), body.inputs.index(bound)
            if _counts(op, node, state) and _starts(node, at):
                others = [t for t in terms if t is not term]
                return cls(state, at, others, _indices(body, body.inputs[state], bound))
        return None


def _is(v: Any, scalar_op: type) -> bool:
    op: Any = v.owner and v.owner.op
    return isinstance(op, Elemwise) and type(op.scalar_op) is scalar_op


def _all_of(flag: Any) -> list[Any]:
    """What holds if and only if ``flag`` does, all of it."""
    if not _is(flag, ps.AND):
        return [flag]
    return [t for v in flag.owner.inputs for t in _all_of(v)]


def _number(v: Any) -> int | None:
    return int(v.data) if isinstance(v, Constant) and np.ndim(v.data) == 0 else None


def _counts(op: Any, node: Apply, state: int) -> bool:
    """Whether a state is 0 at first and one more behind each step."""
    v, out = op.fgraph.inputs[state], op.fgraph.outputs[state]
    if v.type.dtype != "int64" or v.type.ndim or _number(node.inputs[1 + state]) != 0:
        return False
    if not _is(out, ps.Add) or len(out.owner.inputs) != 2:
        return False
    one = [x for x in out.owner.inputs if x is not v]
    return len(one) == 1 and _number(one[0]) == 1


def _starts(node: Apply, at: int) -> bool:
    """Whether the loop takes its first step where its bound is more than 0, and only there."""
    go, bound = node.inputs[0], node.inputs[1 + at]
    if bound.type.dtype != "int64" or bound.type.ndim:
        return False
    if isinstance(go, Constant) and isinstance(bound, Constant):
        return bool(go.data) == bool(bound.data > 0)
    if not _is(go, ps.GT) or _number(go.owner.inputs[1]) != 0:
        return False
    asked = go.owner.inputs[0]
    return asked is bound or (isinstance(asked, Constant) and asked.equals(bound))


def _indices(body: Any, count: Any, bound: Any) -> list[Any]:
    """The count, and what counts down from ``bound - 1`` to 0."""
    down = [
        node.outputs[0]
        for node in body.toposort()
        if _is(node.outputs[0], ps.Sub)
        and node.inputs[1] is count
        and _is(node.inputs[0], ps.Sub)
        and node.inputs[0].owner.inputs[0] is bound
        and _number(node.inputs[0].owner.inputs[1]) == 1
    ]
    return [count, *down]
