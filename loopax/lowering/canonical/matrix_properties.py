"""PyTensor's inference of a matrix's properties, restricted to the cases where it is right.

Its rewrites of linear algebra ask whether a matrix is diagonal, triangular or symmetric, and its answers
are wrong for these (3.0.7 and 3.3.8):

    set_subtensor(zeros((n, n, n))[i, :, i], v)   diagonal in axes 0 and 2, and not in the last two
    block_diag(a, b), kron(a, b)                  of matrices that are not square: their diagonals are
                                                  not on the diagonal of the whole
    a @ a.conj().T                                of complex numbers: Hermitian, and not symmetric

Thus it takes the eigenvalues, determinants and products of such a matrix from its main diagonal alone, and
solves a Hermitian system as a symmetric one.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.linalg.constructors import BlockDiagonal
from pytensor.tensor.linalg.products import KroneckerProduct
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from loopax.base.upstream.pytensor import AssumptionFeature, FactState
from loopax.ir.ops.inner_graph_op import core_of

# They imply that a matrix is square.
_OF_SQUARES = {"positive_definite", "orthogonal", "permutation"}


def infer_sound_properties(graph: FunctionGraph) -> None:
    """Let PyTensor's rewrites of ``graph`` rely on properties that hold, unless another inference does."""
    if not hasattr(graph, "assumption_feature"):
        graph.attach_feature(_SoundProperties())


class _SoundProperties(AssumptionFeature):
    """PyTensor's inference; its ``cache``, through which each answer goes, takes none that is wrong."""

    __slots__ = ()

    def on_attach(self, fgraph: Any) -> None:
        super().on_attach(fgraph)
        self.cache = _SoundAnswers()

    def clone(self) -> _SoundProperties:
        return _SoundProperties()


class _SoundAnswers(dict[tuple[Variable, Any], Any]):
    def __setitem__(self, question: tuple[Variable, Any], answer: Any) -> None:
        if answer is FactState.TRUE and not _is_sound(*question):
            answer = FactState.UNKNOWN
        super().__setitem__(question, answer)


def _is_sound(v: Variable, key: Any) -> bool:
    """Whether PyTensor is right if it says that ``v`` has the property ``key``."""
    if key.name == "symmetric" and v.type.dtype.startswith("complex"):
        return False
    node = v.owner
    op = None if node is None else core_of(node.op)
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return v.type.ndim <= 2 or _is_of_matrices(op, v.type.ndim)
    if isinstance(op, BlockDiagonal | KroneckerProduct):
        return key.name in _OF_SQUARES or all(map(is_square, node.inputs))
    return True


def _is_of_matrices(op: Any, ndim: int) -> bool:
    """Whether a write into ``ndim`` axes is the same for all matrices, which the last two axes hold."""
    entries = op.idx_list
    return len(entries) == ndim and all(entry == slice(None) for entry in entries[:-2])


def is_square(v: Variable) -> bool:
    """Whether ``v`` is known to be a square matrix, or a batch of them."""
    n_rows, n_columns = v.type.shape[-2:]
    return n_rows is not None and n_rows == n_columns
