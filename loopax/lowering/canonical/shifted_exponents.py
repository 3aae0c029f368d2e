"""The log-sum-exp trick, applied only where no maximum has been subtracted yet; replaces PyTensor's
rewrites.

    log(sum(exp(x)))                  ->  m + log(sum(exp(x - m)))
    log(exp(x) + exp(y))              ->  m + log(exp(x - m) + exp(y - m))
    softmax(x - max(x))               ->  softmax(x), and log_softmax: both subtract it themselves

Condition of the first two: the exponents are not of this form already, of ``c * (y - m)`` with a positive
number ``c`` and the maximum ``m`` of ``y``. PyTensor's rewrites do not check: in the output of
``pt.logsumexp``, where the greatest exponent is 0, they subtract a maximum once more. Besides, the form
that PyTensor 3.0 writes has a derivative of nan where a branch that is not taken overflows (at 1000).

They are registered in PyTensor's databases with a tag that only `stabilize` asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.gradient import DisconnectedGrad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import general_toposort
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.math import Sum, log
from pytensor.tensor.special import LogSoftmax, Softmax

from loopax.facts.axes import unshuffled
from loopax.facts.elementwise import scalar_op_of
from loopax.facts.families import normalized
from loopax.ir.ops.greatest import greatest

SHIFTED = "loopax_shifted"


@node_rewriter([log])
def log_sum_exp(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``log(sum(exp(x))) -> m + log(sum(exp(x - m)))``."""
    total, layouts = node.inputs[0].owner, []
    while total is not None and isinstance(total.op, DimShuffle):
        layouts.append(total.op)
        total = total.inputs[0].owner
    if total is None or not isinstance(total.op, Sum):
        return None
    power = total.inputs[0].owner
    if power is None or not isinstance(scalar_op_of(power.op), ps.Exp):
        return None
    x: Any = power.inputs[0]
    axes = normalized(total.op.axis, x.type.ndim)
    if has_own_maximum(x, axes):
        return None
    m = _finite(greatest(x, axes))
    shifted = pt.log(pt.sum(pt.exp(x - m), axis=axes)) + pt.squeeze(m, axis=axes)
    for layout in reversed(layouts):
        shifted = layout(shifted)
    return [shifted]


@node_rewriter([log])
def log_add_exp(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``log(exp(x) + exp(y)) -> m + log(exp(x - m) + exp(y - m))``."""
    total = node.inputs[0].owner
    if total is None or not isinstance(scalar_op_of(total.op), ps.Add):
        return None
    powers = [v.owner for v in total.inputs]
    if not all(p is not None and isinstance(scalar_op_of(p.op), ps.Exp) for p in powers):
        return None
    xs: list[Any] = [p.inputs[0] for p in powers if p is not None]
    if _have_own_maximum(xs):
        return None
    m = _finite(reduce(pt.maximum, xs))
    return [pt.log(pt.add(*(pt.exp(x - m) for x in xs))) + m]


def _finite(m: Variable) -> Any:
    """The number to subtract: ``m``, or 0 where ``m`` is infinite and the difference would be nan."""
    return pt.switch(pt.isinf(m), np.zeros((), m.type.dtype), m)


@node_rewriter([Softmax, LogSoftmax])
def softmax_of_shifted(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``softmax(x - m) -> softmax(x)``, since softmax subtracts ``m`` itself."""
    op: Any = node.op
    x: Any = node.inputs[0]
    if x.owner is None or not isinstance(scalar_op_of(x.owner.op), ps.Sub):
        return None
    unshifted = x.owner.inputs[0]
    if unshifted.type != x.type or not has_own_maximum(x, op.axis):
        return None
    return [op(unshifted)] if _maximum_of(x.owner.inputs[1]) else None


# Name in PyTensor's databases -> the rewrite that replaces it. The rewrite of an addition replaces none.
REPLACED = {"local_log_sum_exp": log_sum_exp, "local_log_add_exp": log_add_exp}


def register_shifted_exponents() -> None:
    """Add these rewrites to PyTensor's databases, once."""
    stabilize: Any = optdb["stabilize"]
    rewrites = {f"loopax_{name}": rewrite for name, rewrite in REPLACED.items()}
    for name, rewrite in {**rewrites, "loopax_softmax_of_shifted": softmax_of_shifted}.items():
        if name not in stabilize:
            stabilize.register(name, rewrite, SHIFTED, use_db_name_as_tag=False)


# -- what is of the form c * (y - m) -----------------------------------------------------------------

_Terms = dict[Any, float]


def has_own_maximum(x: Variable, axis: Sequence[int]) -> bool:
    """Whether ``x`` is ``c * (y - max(y))`` with a positive number ``c``, the maximum along ``axis``."""
    terms = _terms(x)
    for term, factor in terms.items():
        extreme = _maximum_of(term)
        if extreme is None or extreme[1] * factor >= 0:
            continue
        node = extreme[0]
        if isinstance(node.op, CAReduce) and _along(node.op.axis, node.inputs[0]) == _along(
            axis, x
        ):
            others = {v: c for v, c in terms.items() if v is not term}
            if _agree(others, _terms(node.inputs[0]), -factor):
                return True
    return False


def _have_own_maximum(xs: Sequence[Variable]) -> bool:
    """Whether each of ``xs`` is ``c * (y - m)`` with ``m`` the maximum of all ``y``."""
    each = [_terms(x) for x in xs]
    for term, factor in each[0].items():
        extreme = _maximum_of(term)
        if extreme is None or extreme[1] * factor >= 0 or isinstance(extreme[0].op, CAReduce):
            continue
        if any(not np.isclose(t.get(term, 0.0), factor) for t in each):
            continue
        leaves = [_terms(v) for v in _leaves(extreme[0])]
        others = [{v: c for v, c in t.items() if v is not term} for t in each]
        if all(any(_agree(t, y, -factor) for y in leaves) for t in others) and all(
            any(_agree(t, y, -factor) for t in others) for y in leaves
        ):
            return True
    return False


def _agree(terms: _Terms, others: _Terms, factor: float) -> bool:
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


def _maximum_of(v: Variable) -> tuple[Apply, int] | None:
    """The node of a maximum and 1, or of a minimum and -1, with or without a guard for infinities."""
    while (node := v.owner) is not None:
        op = getattr(node.op, "scalar_op", None)  # also the scalar op of a reduction
        match op or node.op:
            case ps.ScalarMaximum():
                return node, 1
            case ps.ScalarMinimum():
                return node, -1
            case ps.Switch():  # a guard that replaces an infinity by a number
                v = next((u for u in node.inputs[1:] if number_in(u) is None), node.inputs[0])
            case ps.Cast() | DimShuffle() | DisconnectedGrad():
                v = node.inputs[0]
            case _:
                return None
    return None


def _along(axis: Sequence[int] | None, x: Variable) -> set[int]:
    return set(normalized(axis, x.type.ndim))


def _terms(x: Variable) -> _Terms:
    """Flatten ``x`` to a sum: each term with its factor.

    However deep: a limit would cut ``y - m`` off at another place than ``y`` itself, and the two would
    never agree.
    """
    factors: dict[Any, float] = {x: 1.0}
    terms: _Terms = {}
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
