"""Affine and zero values: folds over the inputs in which ops are linear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort

from loopax.facts.elementwise import is_elementwise
from loopax.facts.record import Groups, facts_of


def is_affine(wrt: Sequence[Variable], outputs: Sequence[Variable]) -> bool:
    """Whether each of ``outputs`` is known to be affine in the roots ``wrt``, taken together.

    >>> import pytensor.tensor as pt
    >>> from loopax.facts.linearity import is_affine
    >>> x, a = pt.dvector("x"), pt.dvector("a")
    >>> is_affine([x], [(a**2 * x[::-1]).sum() + 1]), is_affine([x, a], [a * x])
    (True, False)
    """
    moving = set(wrt)
    for node in toposort(list(outputs), blockers=list(wrt)):
        at = {k for k, v in enumerate(node.inputs) if v in moving}
        if not at:
            continue
        if not any(at <= group for group in facts_of(node.op).linear(node)):
            return False
        moving.update(node.outputs)
    return True


# Their slopes are constant except at kinks.
_PIECEWISE_LINEAR = (ps.Abs, ps.Clip, ps.ScalarMaximum, ps.ScalarMinimum, ps.Sign)


def read_by_slopes(node: Apply, moving: Iterable[int]) -> set[int]:
    """The inputs that the derivatives of ``node`` with respect to the inputs ``moving`` depend on.

    >>> import pytensor.tensor as pt
    >>> x, y = pt.dvectors("x", "y")
    >>> read_by_slopes((x + y).owner, [0]), read_by_slopes((x * y).owner, [0])
    (set(), {1})
    """
    if is_elementwise(node, *_PIECEWISE_LINEAR):
        return set()
    every, groups = set(range(len(node.inputs))), facts_of(node.op).linear(node)
    return {
        j
        for k in moving
        for j in every - max((g for g in groups if k in g), key=len, default=frozenset())
    }


def zero_groups_of(node: Apply) -> Groups:
    """Sets of inputs of ``node``: if all inputs in one set are zero everywhere, so are the outputs."""
    facts = facts_of(node.op)
    return (facts.zero or facts.linear)(node)


def is_product(node: Apply | None) -> bool:
    """Whether ``node``, which may be None, is linear in each of several inputs: zero if one of them is."""
    return node is not None and len(facts_of(node.op).linear(node)) > 1
