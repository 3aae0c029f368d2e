"""Implicit conversions of integers, written as casts.

    log(sigmoid(x))  ->  log(sigmoid(cast(x, "float32")))
    x ** 2           ->  cast(x, "int16") ** 2              of bytes without a sign, declared int16
    sum(x)           ->  sum(cast(x, "int64"))              of narrow integers; products and dots, too
    polygamma(n, x)  ->  polygamma(cast(n, "int64"), x)    of a short n: SciPy would compute in float32
    solve(a, b)      ->  solve(cast(a, "float64"), b)      linear algebra and convolutions of integers
    vstack([a, b])   ->  vstack([cast(a, "float64"), b])   of sparse matrices of several dtypes

Condition: an elementwise operation on numbers computes in the dtype that its result declares, and has an
integer or bool operand of another one; or a decomposition, a solve or a convolution has one; or a sum, a
product or a dot has an integer operand of another one. (A complex number made of its parts computes in
floats. A sum of bools counts them, in any order.) Constants of elementwise operations stay, whose values
the rewrites read, and so does an exponent of a float base, for which the backends have powers of their own.

Reason: PyTensor's rewrites hold for real numbers. They move operations over operands whatever the dtypes:
``log(sigmoid(x))`` becomes ``-softplus(-x)``, and minus a uint8 is a uint8; ``x ** 2`` becomes
``cast(sqr(x), "int16")``, which wraps first; ``sum(-x)`` becomes ``-sum(x)``, which is 2**64 too large. No
rewrite moves anything across a cast, so that behind one they see an operation of a single dtype, where they
are right: integers of one width are a ring. PyTensor's native conversions of linear algebra, convolutions
and stacks of sparse matrices want operands of one dtype (3.3.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import pytensor.scalar as ps
import pytensor.sparse
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.math import PolyGamma
from pytensor.sparse.basic import Stack
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.lu import PivotToPermutations
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.signal.conv import Convolve1d
from pytensor.tensor.type import complex_dtypes, discrete_dtypes, float_dtypes, integer_dtypes

from loopax.facts.elementwise import scalar_op_of
from loopax.ir.derivatives.inner_gradients import is_sparse
from loopax.ir.matrices import is_of_matrices
from loopax.ir.ops.inner_graph_op import core_of

# Not all operands of these are computed with in the dtype of the result: shapes, operands of comparisons,
# whole graphs, the order of a derivative (PyTensor refuses one that is not an integer).
_OTHERS = (
    ps.Cast,
    ps.Second,
    ps.Identity,
    ps.LogicalComparison,
    ps.FixedLogicalComparison,
    ps.ScalarInnerGraphOp,
    PolyGamma,
)


def make_casts_explicit(graph: FunctionGraph) -> None:
    """Rewrite ``graph`` in place, without its bodies."""
    for node in graph.toposort():
        if scalar_op_of(node.op) is None:
            core = core_of(node.op)
            if isinstance(core, Sum | Prod | Dot):
                _cast_narrow(graph, node)
            elif _computes_in_floats(core):
                _cast_operands(graph, node)
            elif isinstance(node.op, Stack):
                dtype = node.outputs[0].type.dtype
                _cast_inputs(graph, node, [v.type.dtype != dtype for v in node.inputs], dtype)
            continue
        if isinstance(node.op.scalar_op, PolyGamma):
            _widen_order(graph, node)
        if isinstance(node.op.scalar_op, _OTHERS):
            continue
        declared = node.outputs[0].type.dtype
        if len(node.outputs) > 1 or declared == "bool" or declared in complex_dtypes:
            continue
        wanted = [_is_converted(node, k, declared) for k in range(len(node.inputs))]
        _cast_inputs(graph, node, wanted, declared)


def _cast_inputs(graph: FunctionGraph, node: Apply, wanted: Sequence[bool], dtype: str) -> None:
    """Cast the ``wanted`` inputs of ``node``, unless the results would lose their declared dtypes."""
    if any(wanted):
        inputs = [_cast(v, dtype) if w else v for v, w in zip(node.inputs, wanted, strict=True)]
        if (line := getattr(node.outputs[0].tag, "trace", None)) is not None:
            for cast in compress(inputs, wanted):
                cast.tag.trace = line
        # Rebuilt by the op itself: with a cast operand it may infer another dtype than the declared one.
        new = node.op.make_node(*inputs).outputs
        if [v.type.dtype for v in new] == [v.type.dtype for v in node.outputs]:
            graph.replace_all(list(zip(node.outputs, new, strict=True)), import_missing=False)


def _cast(v: Variable, dtype: str) -> Any:
    if isinstance(v, Constant) and not is_sparse(v):
        return pt.constant(v.data.astype(dtype))
    return pytensor.sparse.cast(v, dtype) if is_sparse(v) else pt.cast(v, dtype)


def _computes_in_floats(op: Op) -> bool:
    """Whether ``op`` computes with all of its operands as numbers; pivots, for example, are indices."""
    takes_pivots = isinstance(op, PivotToPermutations) or "Tridiagonal" in type(op).__name__
    return isinstance(op, Convolve1d) or (is_of_matrices(op) and not takes_pivots)


def _cast_operands(graph: FunctionGraph, node: Apply) -> None:
    declared = [v.type.dtype for v in node.outputs if v.type.dtype not in discrete_dtypes]
    batch = node.op.batch_ndim(node) if isinstance(node.op, Blockwise) else 0
    if not declared:
        return
    # A 0-d input is the flag for a full convolution. Numba cannot compile PyTensor's convolution of two
    # different float dtypes, because it swaps the operands by their lengths.
    others = discrete_dtypes if declared[0] in complex_dtypes else (*discrete_dtypes, *float_dtypes)
    wanted = [
        v.type.ndim > batch and v.type.dtype in others and v.type.dtype != declared[0]
        for v in node.inputs
    ]
    _cast_inputs(graph, node, wanted, declared[0])


def _cast_narrow(graph: FunctionGraph, node: Apply) -> None:
    """Cast integers to the dtype in which they are added or multiplied."""
    dtype = getattr(core_of(node.op), "acc_dtype", None) or node.outputs[0].type.dtype
    wanted = [v.type.dtype in integer_dtypes and v.type.dtype != dtype for v in node.inputs]
    _cast_inputs(graph, node, wanted, dtype)


def _widen_order(graph: FunctionGraph, node: Apply) -> None:
    """Cast the order of a polygamma to int64: in float32 the zeta of a large order underflows to 0.

    A derivative has the next order, which may overflow a narrow integer dtype.
    """
    n, _ = node.inputs
    _cast_inputs(graph, node, [n.type.dtype not in ("int64", "uint64"), False], "int64")


def _is_converted(node: Apply, k: int, declared: str) -> bool:
    v = node.inputs[k]
    if isinstance(v, Constant) or v.type.dtype == declared or v.type.dtype not in discrete_dtypes:
        return False
    if isinstance(node.op.scalar_op, ps.Switch) and k == 0:
        return False
    is_exponent = isinstance(node.op.scalar_op, ps.Pow) and k == 1
    return not (is_exponent and node.inputs[0].type.dtype not in discrete_dtypes)
