"""PyTensor's rewrites of matrices, as far as they are right.

    solve(a, b, assume_a="pos", lower)  ->  cho_solve((cholesky(a, lower), lower), b)
    solve(tril(a), b)  ->  solve_triangular(tril(a), b)     not where the solve is of a symmetric matrix, of
                                                            which a is one triangle
    solve(x @ x.T, b)  ->  solve(..., assume_a="pos")       not where only another use says "pos"
    det(block_diag(a, b))  ->  det(a) * det(b)              not of a batch
    diag(block_diag(a, b))  ->  join(diag(a), diag(b))      of the main diagonal, and only where a and b are
    diag(kron(a, b))  ->  outer(diag(a), diag(b))           known to be square

Reason: of the first PyTensor takes the lower triangle whatever ``lower`` is, and L L^T of a complex matrix
for L L^H; the second solves with one triangle of a matrix that is told to be symmetric. The third takes
``solve(a, c, assume_a="pos")`` for a promise about ``a`` in the whole graph (PyTensor 3.3.8): a general
system with ``a`` would then read one triangle, and its gradient would depend on when it is taken. The
fourth multiplies the determinants of a batch with each other, and the last two take any diagonal for the
main one, and blocks of any shape for square ones (PyTensor 3.0.7 and 3.3.8 alike).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.rewriting.unify import OpPattern
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.linalg.decomposition.cholesky import cholesky
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import cho_solve
from pytensor.tensor.linalg.summary import det
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.rewriting.linalg import products, solvers

from loopax.facts.axes import unshuffled


@node_rewriter([blockwise_of(OpPattern(Solve, assume_a="pos"))])
def psd_solve_to_cho_solve(fgraph: FunctionGraph, node: Apply) -> Any:
    """A system with a positive definite matrix by the factor of the triangle that it is read from."""
    op: Any = node.op
    a, b = node.inputs
    lower = op.core_op.lower
    return [cho_solve((cholesky(a, lower=lower), lower), b, b_ndim=op.core_op.b_ndim)]


@node_rewriter([blockwise_of(OpPattern(Solve, assume_a="gen"))])
def general_solve_to_structured(fgraph: FunctionGraph, node: Apply) -> Any:
    """A system by the structure of its matrix, as far as the matrix's own expression shows it."""
    rewrite = solvers.generic_solve_to_structured_form.transform
    replaced = rewrite(fgraph, node)
    if not replaced or not isinstance(replaced[0].owner.op.core_op, Solve):  # a triangular system
        return replaced
    (matrix, _) = node.inputs
    return rewrite(FunctionGraph(outputs=[matrix], clone=False), node)  # without other uses


@node_rewriter([det])
def det_of_blocks(fgraph: FunctionGraph, node: Apply) -> Any:
    """``det(block_diag(a, b)) -> det(a) * det(b)`` of one matrix."""
    is_batch = any(v.type.ndim > 2 for v in _parts(node))
    return None if is_batch else products.det_of_blockdiag.transform(fgraph, node)


@node_rewriter([ExtractDiag])
def diag_of_square_blocks(fgraph: FunctionGraph, node: Apply) -> Any:
    """``diag(block_diag(a, b)) -> join(diag(a), diag(b))`` of square matrices."""
    return products.diag_of_blockdiag.transform(fgraph, node) if _is_of_squares(node) else None


@node_rewriter([ExtractDiag])
def diag_of_square_factors(fgraph: FunctionGraph, node: Apply) -> Any:
    """``diag(kron(a, b)) -> outer(diag(a), diag(b))`` of square matrices."""
    return products.diag_of_kronecker.transform(fgraph, node) if _is_of_squares(node) else None


def _parts(node: Apply) -> Sequence[Variable]:
    """The operands of what makes the matrix that ``node`` reads."""
    (matrix,) = node.inputs
    source = unshuffled(matrix).owner
    return () if source is None else source.inputs


def _is_of_squares(node: Apply) -> bool:
    """Whether ``node`` reads the main diagonal of a matrix that consists of square ones."""
    op: Any = node.op
    shapes = [v.type.shape for v in _parts(node)]
    return op.offset == 0 and all(
        len(shape) == 2 and shape[0] == shape[1] and shape[0] is not None for shape in shapes
    )


# What each of them stands in the place of, by the name in PyTensor's databases, and in which of these.
REPLACED = {
    "psd_solve_to_chol_solve": (psd_solve_to_cho_solve, ("stabilize",)),
    "generic_solve_to_structured_form": (
        general_solve_to_structured,
        ("canonicalize", "stabilize"),
    ),
    "det_of_blockdiag": (det_of_blocks, ("canonicalize", "stabilize")),
    "diag_of_blockdiag": (diag_of_square_blocks, ("canonicalize", "stabilize")),
    "diag_of_kronecker": (diag_of_square_factors, ("canonicalize", "stabilize")),
}
