"""Affine and zero values: folds over the inputs in which ops are linear."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort

from loopax.facts.record import Groups, facts_of


def is_affine(wrt: Sequence[Variable], outputs: Sequence[Variable]) -> bool:
    """Whether each of ``outputs`` is surely an affine function of ``wrt``, roots, taken together.

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


def zero_groups_of(node: Apply) -> Groups:
    """Sets of the inputs of ``node``: where those of one set are zero everywhere, so are the outputs."""
    facts = facts_of(node.op)
    return (facts.zero or facts.linear)(node)


def is_product(node: Apply | None) -> bool:
    """Whether ``node``, which may be None, is linear in each of several inputs, and so zero if one is."""
    return node is not None and len(facts_of(node.op).linear(node)) > 1
