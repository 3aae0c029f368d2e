"""Sums as terms with factors, and exponents ``c * (y - m)``, where ``m`` is the maximum of ``y``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.gradient import DisconnectedGrad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import general_toposort
from pytensor.tensor.elemwise import CAReduce, DimShuffle

from loopax.facts.axes import unshuffled
from loopax.facts.elementwise import scalar_op_of
from loopax.facts.families import normalized

Terms = dict[Any, float]


def own_maxima(x: Variable) -> Iterator[set[int]]:
    """The axes of each maximum for which ``x`` is ``c * (y - max(y))``, with a positive number ``c``."""
    terms = terms_of(x)
    for term, factor in terms.items():
        extreme = maximum_of(term)
        if extreme is None or extreme[1] * factor >= 0:
            continue
        node = extreme[0]
        if isinstance(node.op, CAReduce):
            others = {v: c for v, c in terms.items() if v is not term}
            if _agree(others, terms_of(node.inputs[0]), -factor):
                yield _along(node.op.axis, node.inputs[0])


def has_own_maximum(x: Variable, axis: Sequence[int]) -> bool:
    """Whether ``x`` is ``c * (y - max(y))`` with a positive number ``c``, the maximum along ``axis``."""
    return _along(axis, x) in own_maxima(x)


def have_own_maximum(xs: Sequence[Variable]) -> bool:
    """Whether each of ``xs`` is ``c * (y - m)`` with ``m`` the maximum of all ``y``."""
    each = [terms_of(x) for x in xs]
    for term, factor in each[0].items():
        extreme = maximum_of(term)
        if extreme is None or extreme[1] * factor >= 0 or isinstance(extreme[0].op, CAReduce):
            continue
        if any(not np.isclose(t.get(term, 0.0), factor) for t in each):
            continue
        leaves = [terms_of(v) for v in _leaves(extreme[0])]
        others = [{v: c for v, c in t.items() if v is not term} for t in each]
        if all(any(_agree(t, y, -factor) for y in leaves) for t in others) and all(
            any(_agree(t, y, -factor) for t in others) for y in leaves
        ):
            return True
    return False


def _agree(terms: Terms, others: Terms, factor: float) -> bool:
    """Whether ``terms`` equal ``others`` times ``factor``."""
    return terms.keys() == others.keys() and all(
        np.isclose(c, factor * others[v], rtol=1e-5, atol=0.0) for v, c in terms.items()
    )


def _leaves(node: Apply) -> Iterator[Any]:
    """The operands of nested maxima or minima."""
    for v in node.inputs:
        if v.owner is not None and type(scalar_op_of(v.owner.op)) is type(scalar_op_of(node.op)):
            yield from _leaves(v.owner)
        else:
            yield v


def maximum_of(v: Variable) -> tuple[Apply, int] | None:
    """The node of a maximum and 1, or of a minimum and -1, with or without a guard for infinities."""
    while (node := v.owner) is not None:
        op = getattr(node.op, "scalar_op", None)  # also the scalar op of a reduction
        match op or node.op:
            case ps.ScalarMaximum() | ps.ScalarMinimum():
                sign = 1 if isinstance(op, ps.ScalarMaximum) else -1
                # As in `jax.nn.logsumexp`, whose maximum has an initial value.
                others = [u for u in node.inputs if number_in(u) != -sign * np.inf]
                if len(others) != 1 or len(node.inputs) == 1:
                    return node, sign
                v = others[0]
            case ps.Switch():  # a guard that replaces an infinity by a number
                v = next((u for u in node.inputs[1:] if number_in(u) is None), node.inputs[0])
            case ps.Cast() | DimShuffle() | DisconnectedGrad():
                v = node.inputs[0]
            case _:
                return None
    return None


def _along(axis: Sequence[int] | None, x: Variable) -> set[int]:
    return set(normalized(axis, x.type.ndim))


def terms_of(x: Variable) -> Terms:
    """Flatten ``x`` to a sum: each term with its factor.

    However deep: a limit would cut ``y - m`` off at another place than ``y`` itself, and the two would
    never agree.
    """
    factors: dict[Any, float] = {x: 1.0}
    terms: Terms = {}
    for v in reversed(general_toposort([x], lambda v: [u for u, _ in _summands(v)])):
        summands = _summands(v)
        if not summands:
            terms[v] = factors[v]
        for u, c in summands:
            factors[u] = factors.get(u, 0.0) + factors[v] * c
    return terms


def _summands(v: Variable) -> list[tuple[Any, float]]:
    """The values whose sum ``v`` is, each with its factor; none where ``v`` is no sum."""
    node = v.owner
    op = None if node is None else scalar_op_of(node.op)
    if isinstance(op, ps.Add | ps.Sub):
        signs = [-1.0 if k and isinstance(op, ps.Sub) else 1.0 for k in range(len(node.inputs))]
        return list(zip(node.inputs, signs, strict=True))
    if isinstance(op, ps.Neg):
        return [(node.inputs[0], -1.0)]
    if isinstance(op, ps.Mul | ps.TrueDiv):
        scaled = [u for u in node.inputs if number_in(u) is None]
        c = float(np.prod([n for u in node.inputs if (n := number_in(u)) is not None]))
        first = len(scaled) == 1 and (isinstance(op, ps.Mul) or scaled[0] is node.inputs[0])
        if first and np.isfinite(c) and c != 0.0:
            return [(scaled[0], c if isinstance(op, ps.Mul) else 1 / c)]
    return []


def number_in(v: Variable) -> float | None:
    """The one value of a constant; None of anything else."""
    v = unshuffled(v)
    if not isinstance(v, Constant) or np.size(v.data) != 1 or not np.isrealobj(v.data):
        return None
    return float(np.ravel(v.data)[0])
