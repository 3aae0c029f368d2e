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

from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum, log
from pytensor.tensor.special import LogSoftmax, Softmax

from loopax.facts.elementwise import scalar_op_of
from loopax.facts.families import normalized
from loopax.ir.ops.greatest import greatest
from loopax.lowering.analysis.shifted_terms import has_own_maximum, have_own_maximum, maximum_of

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
    if have_own_maximum(xs):
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
    return [op(unshifted)] if maximum_of(x.owner.inputs[1]) else None


# Name in PyTensor's databases -> the rewrite that replaces it. The rewrite of an addition replaces none.
REPLACED = {"local_log_sum_exp": log_sum_exp, "local_log_add_exp": log_add_exp}


def register_shifted_exponents() -> None:
    """Add these rewrites to PyTensor's databases, once."""
    stabilize: Any = optdb["stabilize"]
    rewrites = {f"loopax_{name}": rewrite for name, rewrite in REPLACED.items()}
    for name, rewrite in {**rewrites, "loopax_softmax_of_shifted": softmax_of_shifted}.items():
        if name not in stabilize:
            stabilize.register(name, rewrite, SHIFTED, use_db_name_as_tag=False)
