"""A maximum that only scales is a constant to derivatives.

    m = max(x);  m + log(sum(exp(x - m)))  ->  the same of disconnected_grad(m)

Condition: by the rules of `shift_degrees`, the dependence on ``m`` cancels in all its readers, so that the
derivative with respect to ``m`` is zero for every ``m``, in every order. A maximum is tried first, and if
it does not qualify, the ``switch`` that replaces it where it is infinite.

Reason: the derivative of a maximum compares all elements with it, an extra sweep over the data, for terms
that cancel up to their rounding errors.

In the literature: the log-sum-exp trick, where ``jax.nn.logsumexp`` stops the gradient in the same way.
"""

from __future__ import annotations

from typing import Any, cast

import pytensor.scalar as ps
from pytensor.gradient import DisconnectedGrad, disconnected_grad
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Max

from loopax.facts.axes import raises_of_nothing
from loopax.ir.ops.greatest import greatest
from loopax.lowering.canonical.shift_degrees import cancels


def scaling_maxima(graph: FunctionGraph) -> None:
    """Rewrite the maxima of ``graph``, in place; its bodies are left to the caller."""
    tried: set[Variable] = set()  # maxima that do not scale, and values selected from them
    for node in graph.toposort():
        if not _may_scale(node, tried):
            continue
        m = node.outputs[0]
        if not cancels(graph, m):
            tried.add(m)
            continue
        readers = [(n, k) for n, k in graph.clients[m] if not isinstance(n.op, DisconnectedGrad)]
        # An empty operand has nothing to scale, as in PyTensor's own softmax.
        op, x = node.op, cast(Any, node.inputs[0])
        is_maximum = isinstance(op, Max) and raises_of_nothing(op)
        scale = greatest(x, op.axis, keepdims=False) if is_maximum else m
        constant = disconnected_grad(scale)
        for reader, k in readers:
            graph.change_node_input(
                reader, k, constant, reason="scaling_maxima", import_missing=True
            )


def _may_scale(node: Apply, tried: set[Variable]) -> bool:
    v: Any = node.outputs[0]
    if getattr(v.type, "dtype", "") not in ("float32", "float64"):
        return False
    scalar_op = getattr(node.op, "scalar_op", None)
    if isinstance(scalar_op, ps.ScalarMaximum | ps.ScalarMinimum):
        return True
    if not any(u in tried for u in node.inputs):
        return False
    if isinstance(node.op, DimShuffle):
        tried.add(v)
    return isinstance(scalar_op, ps.Switch)
