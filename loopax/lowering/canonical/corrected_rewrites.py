"""PyTensor's rewrites that drop an op's error, or fail for one dtype, corrected.

    -x      ->  -1 * x      not where x is unsigned: its dtype has no -1
    -x * y * z  ->  -1 * x * y * z           nor there
    -max(-x)  ->  min(x)    nor there: -0 is 0, and -1 the largest of all
    1 / x   ->  x ** -1.0   not in float16: the result would be float32
    x // 1  ->  x           not of floats, which it rounds down
    x**a * x**b, exp(a) * exp(b), x / exp(a)  ->  one power     not where an exponent is an integer
    -expand_dims(x + y), 1 / expand_dims(x * y)     as they are, if no terms or factors cancel
    log1p(-sigmoid(x))  ->  -softplus(x)     also of a product with -1, as PyTensor writes the minus
    (1 + a/x) * x  ->  x + a     not where something else reads the sum
    sum(x, axis=1)[0]  ->  sum(x[0])     not where the sum has a dtype of its own
    sum(sum(x, axis=1))  ->  sum(x)      nor where the inner one has
    what follows from constants  ->  a constant     not where it is large: see `bounded_folding`

Reason: for the first three PyTensor leaves the graph unchanged, which is right, and prints a traceback,
which frightens whoever wrote ``-x``; in these dtypes no other rewrite waits for the form on the right. The
fourth gives another value. So does the fifth: PyTensor adds exponents in their own dtype, where 100 + 100
is -56 in int8, the dtype of a constant 100, and True + True is True. In the sixth line PyTensor's
canonizer moves the new axis out, `local_dimshuffle_lift` moves it in again, and so on forever. (PyTensor
3.0.7 and 3.3.8 alike.) In the eighth, where ``1 + a/x`` is nearly 0, the sum and ``x + a`` have different
rounding errors, which do not cancel in a derivative that reads both: the gradient of a skewed Student's t
was -10 instead of -4e-6 at a deviation of 1e6. In the two lines on sums PyTensor drops ``dtype`` and
``acc_dtype``.

These rewrites are registered in PyTensor's databases with a tag that only `stabilize` asks for;
`corrected_matrices` has the rewrites of linear algebra, `corrected_values` those that are wrong for some
values.
"""

from __future__ import annotations

from typing import Any

import pytensor.scalar as ps
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.basic import Exp, Pow
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.math import add, int_div, log1p, mul, neg, reciprocal, softplus, sub, true_div
from pytensor.tensor.rewriting.math import (
    AlgebraicCanonizer,
    local_add_canonizer,
    local_div_by_one,
    local_div_exp_to_mul_exp,
    local_greedy_distributor,
    local_mul_canonizer,
    local_mul_exp_to_exp_add,
    local_mul_pow_to_pow_add,
    local_mul_specialize,
    local_neg_to_mul,
    local_reciprocal_canon,
    local_reduce_chain,
)
from pytensor.tensor.rewriting.subtensor_lift import local_subtensor_of_reduce
from pytensor.tensor.rewriting.uncanonicalize import local_max_to_min
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import discrete_dtypes, uint_dtypes

from loopax.facts.axes import unshuffled
from loopax.facts.elementwise import is_elementwise, scalar_op_of
from loopax.lowering.canonical.bounded_folding import fold_small_constants
from loopax.lowering.canonical.corrected_matrices import REPLACED as OF_MATRICES
from loopax.lowering.canonical.corrected_values import REPLACED as OF_VALUES

CORRECTED = "loopax_corrected"


@node_rewriter([neg])
def neg_to_mul(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``-x -> -1 * x`` for a signed dtype."""
    unsigned = node.inputs[0].type.dtype in uint_dtypes
    return None if unsigned else local_neg_to_mul.transform(fgraph, node)


@node_rewriter([mul])
def drop_neutral_factors(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``-x * y * z -> -1 * x * y * z`` in a signed dtype, and drop factors of 1."""
    unsigned = node.outputs[0].type.dtype in uint_dtypes
    negated = any(is_elementwise(v.owner, ps.Neg) for v in node.inputs)
    return None if unsigned and negated else local_mul_specialize.transform(fgraph, node)


@node_rewriter([neg])
def minimum_by_maximum(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``-max(-x) -> min(x)`` for a signed dtype."""
    unsigned = node.inputs[0].type.dtype in uint_dtypes
    return None if unsigned else local_max_to_min.transform(fgraph, node)


@node_rewriter([log1p])
def log1p_of_minus_sigmoid(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``log1p(-sigmoid(x)) -> -softplus(x)``, also if the minus has become a factor of -1."""
    (x,) = node.inputs
    if is_elementwise(x.owner, ps.Mul) and len(x.owner.inputs) == 2:
        factors = [v for v in x.owner.inputs if not _is_minus_one(v)]
        inner = factors[0] if len(factors) == 1 else None
    else:
        inner = x.owner.inputs[0] if is_elementwise(x.owner, ps.Neg) else None
    if inner is None or not is_elementwise(inner.owner, Sigmoid) or inner.type != x.type:
        return None
    return [-softplus(inner.owner.inputs[0])]


def _is_minus_one(v: Variable) -> bool:
    x = unshuffled(v)
    return isinstance(x, Constant) and x.data.size == 1 and x.data.item() == -1


@node_rewriter([reciprocal])
def reciprocal_to_power(fgraph: FunctionGraph, node: Apply) -> Any:
    """``1 / x -> x ** -1.0`` where that has the dtype of ``1 / x``."""
    half = node.outputs[0].type.dtype == "float16"
    return None if half else local_reciprocal_canon.transform(fgraph, node)


@node_rewriter([true_div, int_div])
def drop_division_by_one(fgraph: FunctionGraph, node: Apply) -> Any:
    """``x / 1 -> x``, and ``x // 1 -> x`` of whole numbers."""
    rounds = node.op == int_div and node.outputs[0].type.dtype not in discrete_dtypes
    return None if rounds else local_div_by_one.transform(fgraph, node)


@node_rewriter([mul, true_div])
def add_exponents(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``x**a * x**b -> x**(a + b)`` where no sum of exponents can overflow."""
    return None if _has_whole_exponent(node) else local_mul_pow_to_pow_add.transform(fgraph, node)


@node_rewriter([mul, true_div])
def add_arguments_of_exp(fgraph: FunctionGraph, node: Apply) -> Any:
    """``exp(a) * exp(b) -> exp(a + b)`` where no sum of arguments can overflow."""
    return None if _has_whole_exponent(node) else local_mul_exp_to_exp_add.transform(fgraph, node)


@node_rewriter([true_div])
def negate_argument_of_exp(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``x / exp(a) -> x * exp(-a)`` where the dtype of ``a`` is signed."""
    return None if _has_whole_exponent(node) else local_div_exp_to_mul_exp.transform(fgraph, node)


def _has_whole_exponent(node: Apply) -> bool:
    """Whether an operand is a power whose exponent is an integer or a bool."""
    powers = [
        v.owner
        for v in node.inputs
        if v.owner is not None and isinstance(scalar_op_of(v.owner.op), Pow | Exp)
    ]
    return any(power.inputs[-1].type.dtype in discrete_dtypes for power in powers)


@node_rewriter([add, sub, neg])
def gather_terms(fgraph: FunctionGraph, node: Apply) -> Any:
    """Apply `local_add_canonizer`, except to a negation with nothing to gather or to cancel."""
    is_done = node.op == neg and _is_gathered(local_add_canonizer, node)
    return None if is_done else local_add_canonizer.transform(fgraph, node)


@node_rewriter([mul, true_div, reciprocal])
def gather_factors(fgraph: FunctionGraph, node: Apply) -> Any:
    """Apply `local_mul_canonizer`, except to a reciprocal with nothing to gather or to cancel."""
    is_done = node.op == reciprocal and _is_gathered(local_mul_canonizer, node)
    return None if is_done else local_mul_canonizer.transform(fgraph, node)


@node_rewriter([mul, true_div, reciprocal])
def distribute_over_own_sums(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``(a / x + b) * x -> a + b * x`` where nothing else reads the sum."""
    factors, divisors = local_mul_canonizer.get_num_denum(node.outputs[0])
    is_shared = any(
        is_elementwise(v.owner, ps.Add, ps.Sub) and len(fgraph.clients[v]) > 1
        for v in (*factors, *divisors)
    )
    return None if is_shared else local_greedy_distributor.transform(fgraph, node)


@node_rewriter([Subtensor])
def index_before_reduction(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``sum(x, axis=1)[0] -> sum(x[0])`` where the sum has its default dtypes."""
    is_plain = _has_default_dtypes(node.inputs[0].owner)
    return local_subtensor_of_reduce.transform(fgraph, node) if is_plain else None


@node_rewriter([CAReduce])
def reduce_at_once(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``sum(sum(x, axis=1)) -> sum(x)`` where the inner sum has its default dtypes."""
    is_plain = _has_default_dtypes(node.inputs[0].owner)
    return local_reduce_chain.transform(fgraph, node) if is_plain else None


def _has_default_dtypes(reduction: Any) -> bool:
    """Whether ``reduction``, a node or None, is a reduction with the default dtypes for its operand."""
    op: Any = None if reduction is None else reduction.op
    if not isinstance(op, CAReduce) or type(op) is CAReduce:
        return False
    kind: Any = type(op)
    return bool(kind(axis=op.axis)(*reduction.inputs).owner.op == op)


def _is_gathered(canonizer: AlgebraicCanonizer, node: Apply) -> bool:
    """Whether the operand, behind new axes, is already one sum (or product) without cancelling terms.

    PyTensor compares the number of terms with the number of inputs of the `DimShuffle`, which is 1.
    """
    inner = node.inputs[0].owner
    if inner is None or not isinstance(inner.op, DimShuffle):
        return False
    inner = unshuffled(node.inputs[0]).owner
    (out,) = node.outputs
    terms, negated = canonizer.get_num_denum(out)
    are_kept = canonizer.simplify(list(terms), list(negated), out.type) == (terms, negated)
    return are_kept and (inner is None or len(inner.inputs) >= len(negated))


# Name in PyTensor's databases -> the rewrite that replaces it, and the databases that contain it.
REPLACED = {
    "local_add_canonizer": (gather_terms, ("canonicalize",)),
    "local_greedy_distributor": (distribute_over_own_sums, ("canonicalize", "stabilize")),
    "local_div_by_one": (drop_division_by_one, ("canonicalize",)),
    "local_mul_canonizer": (gather_factors, ("canonicalize",)),
    "local_mul_pow_to_pow_add": (add_exponents, ("specialize",)),
    "local_mul_exp_to_exp_add": (add_arguments_of_exp, ("specialize",)),
    "local_div_exp_to_mul_exp": (negate_argument_of_exp, ("specialize",)),
    "local_neg_to_mul": (neg_to_mul, ("canonicalize",)),
    "local_max_to_min": (minimum_by_maximum, ("uncanonicalize",)),
    "local_mul_specialize": (drop_neutral_factors, ("specialize",)),
    "log1p_neg_sigmoid": (log1p_of_minus_sigmoid, ("stabilize",)),
    "local_reciprocal_canon": (reciprocal_to_power, ("canonicalize",)),
    **OF_MATRICES,
    **OF_VALUES,
    "local_subtensor_of_reduce": (index_before_reduction, ("canonicalize", "specialize")),
    "local_reduce_chain": (reduce_at_once, ("canonicalize",)),
    "topo_constant_folding": (
        fold_small_constants,
        ("canonicalize", "uncanonicalize", "stabilize", "specialize"),
    ),
}
_LAST = {"topo_constant_folding"}  # run last in each round of a database


def register_corrected_rewrites() -> None:
    """Add these rewrites to PyTensor's databases, once."""
    for name, (rewrite, databases) in REPLACED.items():
        for database in databases:
            entries: Any = optdb[database]
            if (ours := f"loopax_{name}") not in entries:
                last = {"final_rewriter": True} if name in _LAST else {}
                entries.register(ours, rewrite, CORRECTED, use_db_name_as_tag=False, **last)
