"""Ops on one row -> the same on all rows at once, along a leading axis.

    x[t] @ w  ->  x @ w          x[t].sum(0)  ->  x.sum(1)          x[t][2:]  ->  x[:, 2:]

A rule says whether there is such a form, for given inputs that are rows and others that are the same for
all rows, and how to make it. Only plain ops come out, those that a backend has a fast form of, and only
from ops that cannot raise for the values in a row: what raises for one row must do so at its step. The
rules are in `loopax.lowering.fission.row_wise_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.subtensor import indices_from_subtensor

from loopax.facts import Errors, Structure, facts_of
from loopax.facts.axes import shuffled
from loopax.ir.effects import errors


class RowWise(NamedTuple):
    """How a node is computed for all rows: ``make(inputs, n)``, ``n`` being the number of rows.

    ``varies`` tells whether the outputs differ from row to row, and so have a leading axis.
    """

    make: Callable[[list[Any], Any], list[Any]]
    varies: bool = True


def row_wise(node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    """How ``node`` is computed for all rows, given inputs that are rows where ``varies``; None: it is not.

    ``known`` is whether arrays have lengths that a backend knows; a product of stacks of matrices
    needs them.
    """
    if not any(varies):
        # It is computed though the loop takes no step: only shapes that never fit may raise then.
        return None if errors(node) & ~Errors.SHAPE else as_it_is(node, varies=False)
    return row_wise_rule(node.op, node, varies, known)


@singledispatch
def row_wise_rule(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    """How ``node`` is computed for all rows, where an input varies.

    Without a rule it is the op behind one more leading axis, as its record says. `row_wise_rules` has rules
    for ops whose record is not enough.
    """
    facts = facts_of(op)
    behind = facts.behind(node, 1)
    if behind is None:
        return None
    if facts.structure is Structure.ELEMENTWISE:
        return RowWise(lambda inputs, n: _outputs(behind, _aligned(inputs, varies)))
    if len(node.inputs) > 1 or errors(node) & (Errors.INDEX | Errors.VALUE):
        return None
    return RowWise(lambda inputs, n: _outputs(behind, inputs))


def _aligned(inputs: Sequence[Any], varies: Sequence[bool]) -> list[Any]:
    return [x if f else one_row(x) for x, f in zip(inputs, varies, strict=True)]


def _outputs(apply: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    result = apply(*inputs)
    return list(result) if isinstance(result, list | tuple) else [result]


def as_it_is(node: Apply, varies: bool = True) -> RowWise:
    return RowWise(lambda inputs, n: list(node.op.make_node(*inputs).outputs), varies)


# -- indices and shapes -----------------------------------------------------------------------------


def index_of(node: Apply, skipped: int = 1) -> list[Any] | None:
    """The index of ``node``, in Python numbers; None where it is not a constant."""
    op: Any = node.op
    entries: list[Any] = node.inputs[skipped:]
    if not all(isinstance(v, Constant) for v in entries):
        return None
    numbers: list[Any] = [int(v.data) for v in entries]
    return list(indices_from_subtensor(numbers, op.idx_list))


# -- rows --------------------------------------------------------------------------------------------


def one_row(x: Any) -> Any:
    if isinstance(x, Constant):
        return pt.constant(x.data[None], dtype=x.type.dtype)
    return shuffled(x, ["x", *range(x.type.ndim)])


def deepened(x: Any, varies: bool, core: Any, ndim: int) -> Any:
    """``x`` with axes behind that of the rows, so that its rows broadcast to rank ``ndim``."""
    if not varies:
        return x
    axes = range(1, core.type.ndim + 1)
    return shuffled(x, [0, *["x"] * (ndim - core.type.ndim), *axes])
