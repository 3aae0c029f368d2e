"""Linear algebra of matrices and their batches: factorizations, and solves with triangular matrices.

If a matrix has no factor, or a triangular one a zero on its diagonal, some entries of XLA's result are
nonfinite; in native code all of them are nan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import inner_graph, refuse, rule
from loopax.ir.ops.lu_factor import lapack_lu_factor

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


@rule("cholesky")
def _cholesky(eqn: JaxprEqn, a: TensorVariable) -> Any:
    """The lower factor, from the lower triangle; nan if there is none."""
    _refuse_dtype(eqn, a)
    return pt.linalg.cholesky(a, lower=True, on_error="nan")


@rule("triangular_solve")
def _triangular_solve(eqn: JaxprEqn, a: TensorVariable, b: TensorVariable) -> Any:
    """Solve ``a x = b``, or ``x a = b``, which is the transposed system."""
    _refuse_dtype(eqn, a)
    lower, is_left = eqn.params["lower"], eqn.params["left_side"]
    if eqn.params["transpose_a"] == is_left:
        a, lower = _transposed(a), not lower
    x = pt.linalg.solve_triangular(
        a,
        b if is_left else _transposed(b),
        lower=lower,
        unit_diagonal=eqn.params["unit_diagonal"],
        b_ndim=2,
    )
    return x if is_left else _transposed(x)


@rule("lu")
def _lu(eqn: JaxprEqn, a: TensorVariable) -> Any:
    """Both factors in one matrix, the rows that were exchanged, and the permutation from the exchanges."""
    _refuse_dtype(eqn, a)
    rows, columns = a.type.shape[-2:]
    if rows != columns:
        raise refuse(eqn, "matrices that are not square")
    factored: Any = lapack_lu_factor(a)
    factors, pivots = factored
    return [factors, pivots.astype("int32"), _permutation(pivots)]


@rule("lu_pivots_to_permutation")
def _pivots_to_permutation(eqn: JaxprEqn, pivots: TensorVariable) -> Any:
    if eqn.params["permutation_size"] != pivots.type.shape[-1]:
        raise refuse(eqn, "matrices that are not square")
    return _permutation(pivots)


@rule("custom_linear_solve")
def _custom_linear_solve(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    """The solution; its derivatives have already been taken."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = inputs[first : first + lengths.solve]
    return inner_graph(jaxprs.solve, [*consts, *inputs[sum(lengths) :]])


def _permutation(pivots: TensorVariable) -> Any:
    order = pt.vectorize(lambda row: pt.linalg.pivot_to_permutation(row, inverse=True), "(n)->(n)")
    return order(pivots).astype("int32")


def _transposed(x: TensorVariable) -> Any:
    return x.dimshuffle([*range(x.type.ndim - 2), x.type.ndim - 1, x.type.ndim - 2])


def _refuse_dtype(eqn: JaxprEqn, a: TensorVariable) -> None:
    if a.type.dtype not in ("float32", "float64"):
        raise refuse(eqn, a.type.dtype)
