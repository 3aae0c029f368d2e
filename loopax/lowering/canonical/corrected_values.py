"""PyTensor's elementwise rewrites and reductions, restricted to the values for which they are right.

    x == x, x <= x, x >= x  ->  True     of integers and bools: NaN is not equal to itself
    x != x  ->  False                    of integers and bools
    abs(cast(x))  ->  cast(x), if x >= 0     not where the cast may wrap around
    any(alloc(x, n)), max(alloc(x, n)), ...  ->  any(x), max(x), ...     not where ``n`` may be 0
    sum(alloc(x, n))  ->  x * n          nor there, if ``x`` may be NaN or infinite
    x ** 3.0  ->  x * x**2               not of an infinite power: it fails there, and prints a traceback

Left out: ``sign(1 / x) -> sign(x)``, which is 0 at 0 and 1 at infinity, where the sign of the quotient is 1
and 0; ``sign(maximum(x, 2)) -> 1`` and the like, at NaN; ``arccosh(cosh(x)) -> x``, below 0; and
``cosh(arccosh(x)) -> x`` and ``tanh(arctanh(x)) -> x``, outside of the functions' domains.

Reason: ``pt.eq(x, x)`` is how a model tells which observations are missing. The int8 of 200 is -56, and
``any`` of no flags is False. (3.0.7 has some of these rewrites, 3.3.8 all of them.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import Alloc, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.math import abs as pt_abs
from pytensor.tensor.math import pow as pt_pow
from pytensor.tensor.rewriting import math as rewrites_of_math
from pytensor.tensor.rewriting.basic import local_useless_elemwise
from pytensor.tensor.rewriting.math import (
    local_pow_to_nested_squaring,
    local_useless_elemwise_comparison,
)
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import discrete_dtypes

from loopax.facts.axes import unshuffled
from loopax.facts.elementwise import is_elementwise

local_useless_abs = getattr(rewrites_of_math, "local_useless_abs", None)  # not in 3.0
# In 3.0 it is for sums and products alone, under another name.
_IS_OLD = not hasattr(rewrites_of_math, "local_careduce_of_alloc")
_OF_COPIES = "local_opt_alloc" if _IS_OLD else "local_careduce_of_alloc"
_REDUCTIONS = (Sum, Prod) if _IS_OLD else (CAReduce,)
_MOVES = (DimShuffle, MakeVector, ScalarFromTensor, Subtensor, TensorFromScalar)


@node_rewriter([Elemwise])
def fold_comparison(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``x == x -> True`` and ``x != x -> False`` of whole numbers, and drop neutral operands."""
    return None if _tells_nan(node) else local_useless_elemwise.transform(fgraph, node)


@node_rewriter([Elemwise])
def fold_order(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``x <= x -> True`` of whole numbers, and comparisons of shapes with 0."""
    return None if _tells_nan(node) else local_useless_elemwise_comparison.transform(fgraph, node)


def _tells_nan(node: Apply) -> bool:
    """Whether ``node`` compares a float with itself, which tells whether it is NaN."""
    if not is_elementwise(node, ps.EQ, ps.NEQ, ps.LE, ps.GE):
        return False
    x, y = node.inputs
    return x is y and not _is_whole(x)


@node_rewriter([pt_abs])
def drop_abs(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``abs(x) -> x`` where ``x`` is not negative, and no cast has wrapped around."""
    if local_useless_abs is None or _may_wrap_around(node.inputs[0]):
        return None
    return local_useless_abs.transform(fgraph, node)


def _may_wrap_around(x: Variable) -> bool:
    """Whether ``x`` is a value of a cast to integers that may not hold it, moved or compared since."""

    def operands(v: Variable) -> Sequence[Variable]:
        node = v.owner
        is_kept = is_elementwise(node, ps.Cast, ps.ScalarMaximum, ps.ScalarMinimum)
        is_kept = is_kept or (node is not None and isinstance(node.op, _MOVES))
        return node.inputs if is_kept else ()

    return any(
        is_elementwise(v.owner, ps.Cast)
        and _is_whole(v)
        and not np.can_cast(v.owner.inputs[0].type.dtype, v.type.dtype)
        for v in walk([x], operands)
    )


@node_rewriter(_REDUCTIONS)
def reduce_copies(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``any(alloc(x, n)) -> any(x)``, and other reductions of copies, unless there may be none."""
    (copies,) = node.inputs
    if copies.owner is None or not isinstance(copies.owner.op, Alloc):
        return None
    value, lengths = copies.owner.inputs[0], copies.type.shape
    axes = range(len(lengths)) if node.op.axis is None else node.op.axis
    has_copies = all(lengths[k] is not None and lengths[k] > 0 for k in axes)
    is_known = isinstance(value, Constant) and bool(np.isfinite(value.data).all())
    is_finite = is_known or _is_whole(value)
    # A product of none is ``x**0``, which is 1 for NaN too.
    is_right = has_copies or isinstance(node.op, Prod) or (isinstance(node.op, Sum) and is_finite)
    return getattr(rewrites_of_math, _OF_COPIES).transform(fgraph, node) if is_right else None


def _is_whole(x: Any) -> bool:
    return x.type.dtype in discrete_dtypes


@node_rewriter([pt_pow])
def power_to_squares(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``x ** 3.0 -> x * x**2``, and other constant powers of any size that is finite."""
    exponent = unshuffled(node.inputs[1])
    if isinstance(exponent, Constant) and not np.isfinite(exponent.data).all():
        return None
    return local_pow_to_nested_squaring.transform(fgraph, node)


LEFT_OUT = (
    *("local_sign_div", "local_useless_sign"),
    *("useless_Arccosh_of_Cosh", "useless_Cosh_of_Arccosh", "useless_Tanh_of_Arctanh"),
)
# Name in PyTensor's databases -> the rewrite that replaces it, and the databases that contain it.
REPLACED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "local_useless_elemwise": (fold_comparison, ("canonicalize", "specialize")),
    "local_useless_elemwise_comparison": (fold_order, ("canonicalize", "stabilize", "specialize")),
    "local_useless_abs": (drop_abs, ("canonicalize", "stabilize", "specialize")),
    _OF_COPIES: (reduce_copies, ("specialize",)),
    "local_pow_to_nested_squaring": (power_to_squares, ("specialize",)),
}
