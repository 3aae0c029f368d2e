"""Absolute values and roots leave even powers, so that their kinks are not in a derivative.

    abs(x) ** 2, abs(x) * abs(x)  ->  x ** 2, x * x
    abs(x) * sign(x)              ->  x
    sqrt(x) ** 4                  ->  x ** 2, and nan for negative x

Condition: ``x`` is real. Values stay, except the rounding of a root and the sign of a zero, and derivatives
change: PyTensor derives ``abs(x) ** 2`` to ``2 * abs(x) * sign(x)``, and that to ``2 * sign(x) ** 2``,
which is 0 at 0 where the second derivative of ``x ** 2`` is 2. The norm of a vector is written so, and a
prior of correlation matrices in PyMC starts at 0. The derivative of a squared root is ``0 * inf`` at 0.
PyTensor rewrites a squared root too, but not before derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import mul, sqr
from pytensor.tensor.math import pow as power

from loopax.facts.elementwise import scalar_op_of
from loopax.lowering.analysis.shifted_terms import number_in

EVEN_POWERS = "loopax_even_powers"


@node_rewriter([sqr, power])
def even_power(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``abs(x) ** 2 -> x ** 2`` and ``sqrt(x) ** 2 -> x``, and other even powers."""
    exponent = 2.0 if node.op == sqr else number_in(node.inputs[1])
    if not exponent or exponent % 2:
        return None
    base: Any = node.inputs[0]
    new: Any = None
    if (x := _argument(base, ps.Abs)) is not None:
        new = node.op(x, *node.inputs[1:])
    elif (x := _argument(base, ps.Sqrt)) is not None:
        squared = pt.switch(pt.ge(x, 0), x, np.asarray(np.nan, base.type.dtype))
        new = squared if exponent == 2 else squared ** np.asarray(exponent / 2, base.type.dtype)
    return [new] if new is not None and new.type == node.outputs[0].type else None


@node_rewriter([mul])
def product_of_absolute_values(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``abs(x) * abs(x) -> x * x`` and ``abs(x) * sign(x) -> x``."""
    factors: list[Any] = list(node.inputs)
    for k, factor in enumerate(factors):
        x = _argument(factor, ps.Abs)
        if x is None:
            continue
        for j, other in enumerate(factors):
            is_sign = _argument(other, ps.Sign) is x
            if is_sign or (other is factor and j > k):
                factors[j] = factors[k] = x  # in their places: another order may round differently
                if is_sign:
                    del factors[j]
                product = pt.mul(*factors) if len(factors) > 1 else x
                return [product] if product.type == node.outputs[0].type else None
    return None


def _argument(v: Variable, function: type) -> Variable | None:
    """The real ``x`` of ``v = function(x)``; None for anything else."""
    node = v.owner
    if node is None or not isinstance(scalar_op_of(node.op), function):
        return None
    x: Any = node.inputs[0]
    return x if x.type == v.type and not x.type.dtype.startswith("complex") else None


def register_even_powers() -> None:
    """Add these rewrites to PyTensor's databases, once."""
    stabilize: Any = optdb["stabilize"]
    for rewrite in (even_power, product_of_absolute_values):
        name = f"loopax_{rewrite.fn.__name__}"
        if name not in stabilize:
            stabilize.register(name, rewrite, EVEN_POWERS, use_db_name_as_tag=False)
