"""PyTensor's rewrites of matrices, restricted to the cases where they are right.

    solve(a, b, assume_a="pos", lower)  ->  cho_solve((cholesky(a, lower), lower), b)
    solve(tril(a), b)  ->  solve_triangular(tril(a), b)     not where the solve is of a symmetric matrix, of
                                                            which a is one triangle
    solve(inv(a), b)  ->  a @ b                             not where the solve reads one triangle
    solve(x @ x.T, b), inv(x @ x.T) @ b  ->  solve(..., assume_a="pos"),  eig(x @ x.T)  ->  eigh(x @ x.T)
                                                            not where only another use says "pos"
    cholesky(l @ l.T)  ->  l, with the sign that makes its diagonal positive; only of a square l
    pinv(pinv(a))  ->  a                                    not where one of them reads one triangle
    inv(d)  ->  1 / d  for a diagonal matrix                not for pinv(d)
    det(block_diag(a, b))  ->  det(a) * det(b)              these three where a and b are matrices that are
    diag(block_diag(a, b))  ->  join(diag(a), diag(b))      known to be square, and the last two for the
    diag(kron(a, b))  ->  outer(diag(a), diag(b))           main diagonal
    inv(block_diag(a, b))  ->  block_diag(inv(a), inv(b))   not where a or b is known not to be square; with
                                                            kron, and for cholesky, as well

Reason: without these conditions PyTensor's results are wrong (3.0.7 and 3.3.8 alike, except where one is
named). In the first it reads the lower triangle whatever ``lower`` is, and uses L L^T for a complex matrix
in place of L L^H; the second solves with one triangle of a matrix that is told to be symmetric. In the
fourth it takes ``solve(a, c, assume_a="pos")`` for a promise about ``a`` in the whole graph (3.3.8): a
general system with ``a`` would then read one triangle, and its gradient would depend on when it is taken.
The fifth gives ``l`` itself, whose logarithms are NaN where it is a Cholesky factor times a negative
number. It multiplies the determinants of a batch with each other, and takes any diagonal for the main one
and blocks of any shape for square ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.rewriting.unify import OpPattern
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky, cholesky
from pytensor.tensor.linalg.inverse import MatrixPinv
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import cho_solve
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.rewriting.linalg import decomposition, inverse, products, solvers

from loopax.base.upstream.pytensor import linalg_rewrite
from loopax.facts.axes import unshuffled
from loopax.ir.ops.inner_graph_op import core_of
from loopax.lowering.canonical.matrix_properties import infer_sound_properties, is_square

_EIG_TO_EIGH = linalg_rewrite("decomposition", "eig_to_eigh")
_SOLVE_TO_STRUCTURED = linalg_rewrite("solvers", "generic_solve_to_structured_form")


@node_rewriter([blockwise_of(OpPattern(Solve, assume_a="pos"))])
def psd_solve_to_cho_solve(fgraph: FunctionGraph, node: Apply) -> Any:
    """Solve a system with a positive definite matrix by the Cholesky factor of the triangle it reads."""
    op: Any = node.op
    a, b = node.inputs
    lower = op.core_op.lower
    return [cho_solve((cholesky(a, lower=lower), lower), b, b_ndim=op.core_op.b_ndim)]


@node_rewriter([blockwise_of(OpPattern(Solve, assume_a="gen"))])
def general_solve_to_structured(fgraph: FunctionGraph, node: Apply) -> Any:
    """Solve a system by the structure of its matrix, where the matrix's own expression shows it."""
    rewrite = _SOLVE_TO_STRUCTURED.transform
    replaced = rewrite(fgraph, node)
    if not replaced or not isinstance(replaced[0].owner.op.core_op, Solve):  # a triangular system
        return replaced
    return rewrite(_without_other_uses(node.inputs[0]), node)


@node_rewriter([blockwise_of(Cholesky)])
def cholesky_of_product(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``cholesky(l @ l.T) -> l``, with a positive diagonal; nan where that has a zero."""
    replaced = decomposition.cholesky_ldotlt.transform(fgraph, node)
    if not replaced or node.outputs[0].type.dtype not in ("float32", "float64"):
        return None
    (factor,) = replaced
    source = unshuffled(factor).owner
    if source is not None and isinstance(core_of(source.op), Cholesky):
        return replaced
    if not is_square(factor):
        return None
    diagonal = pt.diagonal(factor, axis1=-2, axis2=-1)
    signs = pt.switch(pt.eq(diagonal, 0), np.nan, pt.sign(diagonal)).astype(factor.type.dtype)
    is_lower = core_of(node.op).lower
    return [factor * (signs[..., None, :] if is_lower else signs[..., :, None])]


@node_rewriter(solvers.solve_of_inv_to_matmul.tracks())
def general_solve_of_inverse(fgraph: FunctionGraph, node: Apply) -> Any:
    """``solve(inv(a), b) -> a @ b`` where the system reads all of ``inv(a)``."""
    op = core_of(node.op)
    is_general = isinstance(op, Solve) and op.assume_a == "gen"
    # PyTensor 3.0 multiplies by a batch of vectors as if it were a matrix.
    is_plain = is_general and (op.b_ndim == 2 or node.inputs[1].type.ndim == 1)
    return solvers.solve_of_inv_to_matmul.transform(fgraph, node) if is_plain else None


@node_rewriter(inverse.inv_to_solve.tracks())
def product_with_inverse(fgraph: FunctionGraph, node: Apply) -> Any:
    """``inv(a) @ b -> solve(a, b)``, by the structure that the expression of ``a`` shows."""
    rewrite = inverse.inv_to_solve.transform
    return rewrite(fgraph, node) and rewrite(_without_other_uses(*node.inputs), node)


@node_rewriter(_EIG_TO_EIGH.tracks())
def eig_of_symmetric(fgraph: FunctionGraph, node: Apply) -> Any:
    """Rewrite ``eig(a) -> eigh(a)`` where the expression of ``a`` shows that it is symmetric."""
    rewrite = _EIG_TO_EIGH.transform
    return rewrite(fgraph, node) and rewrite(_without_other_uses(*node.inputs), node)


@node_rewriter(inverse.inv_of_inv.tracks())
def inverse_of_inverse(fgraph: FunctionGraph, node: Apply) -> Any:
    """``inv(inv(a)) -> a`` where both read all of their matrix."""
    source = unshuffled(node.inputs[0]).owner
    ops = [core_of(n.op) for n in (node, source) if n is not None]
    reads_triangle = any(getattr(op, "hermitian", False) for op in ops)
    return None if reads_triangle else inverse.inv_of_inv.transform(fgraph, node)


@node_rewriter(inverse.inv_of_diag_to_diag_reciprocal.tracks())
def inverse_of_diagonal(fgraph: FunctionGraph, node: Apply) -> Any:
    """``inv(d) -> 1 / d``; ``pinv(d)`` leaves zeros as they are."""
    is_pinv = isinstance(core_of(node.op), MatrixPinv)
    return None if is_pinv else inverse.inv_of_diag_to_diag_reciprocal.transform(fgraph, node)


@node_rewriter(inverse.lift_linalg_of_expanded_matrices.tracks())
def inverse_of_squares(fgraph: FunctionGraph, node: Apply) -> Any:
    """``inv(block_diag(a, b)) -> block_diag(inv(a), inv(b))``, of rectangles for ``pinv`` alone."""
    is_wrong = not isinstance(core_of(node.op), MatrixPinv) and _joins_rectangles(node)
    return None if is_wrong else inverse.lift_linalg_of_expanded_matrices.transform(fgraph, node)


@node_rewriter(products.det_of_blockdiag.tracks())
def det_of_squares(fgraph: FunctionGraph, node: Apply) -> Any:
    """``det(block_diag(a, b)) -> det(a) * det(b)`` of square matrices."""
    return products.det_of_blockdiag.transform(fgraph, node) if _joins_squares(node) else None


@node_rewriter(products.diag_of_blockdiag.tracks())
def diag_of_squares(fgraph: FunctionGraph, node: Apply) -> Any:
    """``diag(block_diag(a, b)) -> join(diag(a), diag(b))`` of square matrices."""
    return products.diag_of_blockdiag.transform(fgraph, node) if _is_main_diagonal(node) else None


@node_rewriter(products.diag_of_kronecker.tracks())
def diag_of_square_factors(fgraph: FunctionGraph, node: Apply) -> Any:
    """``diag(kron(a, b)) -> outer(diag(a), diag(b))`` of square matrices."""
    return products.diag_of_kronecker.transform(fgraph, node) if _is_main_diagonal(node) else None


def _without_other_uses(*operands: Variable) -> FunctionGraph:
    graph = FunctionGraph(outputs=list(operands), clone=False)
    infer_sound_properties(graph)
    return graph


def _joins_squares(node: Apply) -> bool:
    """Whether ``node`` reads a matrix that joins matrices known to be square."""
    return all(v.type.ndim == 2 and is_square(v) for v in _source_inputs(node))


def _joins_rectangles(node: Apply) -> bool:
    """Whether ``node`` reads a matrix that joins one which is known not to be square."""
    shapes = [v.type.shape[-2:] for v in _source_inputs(node) if v.type.ndim >= 2]
    return any(None not in shape and shape[0] != shape[1] for shape in shapes)


def _is_main_diagonal(node: Apply) -> bool:
    op: Any = node.op
    return op.offset == 0 and node.inputs[0].type.ndim == 2 and _joins_squares(node)


def _source_inputs(node: Apply) -> Sequence[Variable]:
    """The operands of the node that makes the matrix read by ``node``."""
    source = unshuffled(node.inputs[0]).owner
    return () if source is None else source.inputs


_BOTH = "canonicalize", "stabilize"
# Name in PyTensor's databases -> the rewrite that replaces it, and the databases that contain it.
REPLACED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "psd_solve_to_chol_solve": (psd_solve_to_cho_solve, ("stabilize",)),
    "generic_solve_to_structured_form": (general_solve_to_structured, _BOTH),
    "solve_of_inv_to_matmul": (general_solve_of_inverse, ("stabilize",)),
    "inv_to_solve": (product_with_inverse, ("stabilize",)),
    "eig_to_eigh": (eig_of_symmetric, _BOTH),
    "cholesky_ldotlt": (cholesky_of_product, _BOTH),
    "inv_of_inv": (inverse_of_inverse, _BOTH),
    "inv_of_diag_to_diag_reciprocal": (inverse_of_diagonal, _BOTH),
    "lift_linalg_of_expanded_matrices": (inverse_of_squares, ("specialize",)),
    "det_of_blockdiag": (det_of_squares, _BOTH),
    "diag_of_blockdiag": (diag_of_squares, _BOTH),
    "diag_of_kronecker": (diag_of_square_factors, _BOTH),
}
# For these rewrites there is no condition that is cheap to see and often true. PyTensor takes eigenvectors
# of a pair of matrices for orthogonal ones, solves with an orthogonal matrix whatever triangle the system
# reads, and takes the sign of a zero on a diagonal for a column of Q; and a promise is for the whole graph.
LEFT_OUT = (
    "inv_of_orthogonal_to_transpose",
    "orthogonal_solve_to_transpose_matmul",
    "qr_of_diag",
    "svd_of_structured",
    "svd_of_diag",
)
