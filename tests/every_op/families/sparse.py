"""Sparse matrices of given places, whose entries are an input."""

from typing import Any

import numpy as np
import pytensor.sparse as ps
import pytensor.tensor as pt
from pytensor.sparse import basic
from pytensor.sparse import math as sparse_math
from pytensor.sparse.linalg import block_diag

from tests.every_op.record import OTHER, SQUARE, A, V, given

TITLE = "Sparse matrices"
SLOW = {("*", "Numba"), ("*", "loopax.grad")}  # Numba compiles SciPy's functions
REASONS: list[str] = []
BASES = {
    **dict.fromkeys(
        ["Stack", "__ComparisonOpSD", "__ComparisonOpSS"]
        + ["__ComparisonOpSparseDense", "__ComparisonOpSparseSparse"],
        "a base class",
    )
}
DATA, MORE = given([0.5, -1.5, 2.0, 1.2], "data"), given([1.0, 4.0, -3.0], "more")
ROWS, POINTERS = np.array([0, 2, 1, 2], "int32"), np.array([0, 2, 3, 4], "int32")
FEWER, ENDS = np.array([1, 0, 2], "int32"), np.array([0, 1, 2, 3], "int32")
SIZE = np.array([3, 3], "int32")


def x() -> Any:
    return ps.CSC(DATA, ROWS, POINTERS, SIZE)


def y() -> Any:
    return ps.CSC(MORE, FEWER, ENDS, SIZE)


def by_rows() -> Any:
    return ps.CSR(DATA, ROWS, POINTERS, SIZE)


def dense(*matrices: Any) -> Any:
    return [ps.dense_from_sparse(m) for m in matrices]


def structured_gradient(matrix: Any) -> Any:
    """What PyTensor's pullback of a structured product gives."""
    cost = (ps.structured_dot(matrix, SQUARE) * OTHER).sum()
    return pt.grad(cost, DATA)


def of_a_part(part: Any) -> Any:
    """The gradient with respect to a whole matrix, of a part of it."""
    matrix = x()
    return dense(pt.grad((part(matrix) ** 2).sum(), matrix))


COMPARED = {
    "Equal": sparse_math.eq,
    "NotEqual": sparse_math.neq,
    "LessThan": sparse_math.lt,
    "GreaterThan": sparse_math.gt,
    "LessEqual": sparse_math.le,
    "GreaterEqual": sparse_math.ge,
}


def _compared(compare: Any, other: Any) -> Any:
    def build() -> Any:
        actual = compare(x(), other())
        return dense(actual) if isinstance(actual.type, ps.SparseTensorType) else actual

    return build


EXAMPLES: dict[str, Any] = {
    "CSM": lambda: dense(x(), by_rows()),
    "CSMProperties": lambda: list(ps.csm_properties(x() * 2.0)),
    "CSMGrad": lambda: pt.grad(sum(d.sum() for d in dense(x() * y())), DATA),
    "Cast": lambda: dense(ps.cast(x(), "float32"))[0].astype("int64"),
    "ColScaleCSC": lambda: dense(ps.col_scale(x(), V)),
    "RowScaleCSC": lambda: dense(ps.row_scale(x(), V)),
    "ConstructSparseFromList": lambda: dense(
        ps.construct_sparse_from_list(pt.zeros((5, 3)), SQUARE, np.array([4, 0, 2]))
    ),
    "DenseFromSparse": lambda: dense(x()),
    "SparseFromDense": lambda: [ps.sp_sum(ps.csc_from_dense(SQUARE), axis=0)],
    "Diag": lambda: ps.diag(x()),
    "EnsureSortedIndices": lambda: dense(ps.ensure_sorted_indices(x())),
    "Remove0": lambda: dense(ps.remove0(x())),
    "GetItem2d": lambda: dense(x()[1:, ::2]),
    "GetItemScalar": lambda: basic.get_item_scalar(x(), [1, -1]),
    "GetItemList": lambda: dense(x()[[2, 0]]),
    "GetItemListGrad": lambda: of_a_part(lambda m: ps.dense_from_sparse(m[[2, 0]])),
    "GetItem2Lists": lambda: x()[[2, 0], [1, 0]],
    "GetItem2ListsGrad": lambda: of_a_part(lambda m: m[[2, 0], [1, 0]]),
    "HStack": lambda: dense(ps.hstack([x(), y()])),
    "VStack": lambda: dense(ps.vstack([x(), y()])),
    "Transpose": lambda: dense(x().T),
    "SparseBlockDiagonal": lambda: dense(block_diag(x(), y(), format="csc")),
    **dict.fromkeys(["AddSS", "AddSparseSparse"], lambda: dense(x() + y())),
    **dict.fromkeys(["AddSD", "AddSparseDense"], lambda: x() + SQUARE),
    **dict.fromkeys(
        ["AddSSData", "AddSparseSparseData"],
        lambda: dense(sparse_math.add_s_s_data(x(), x() * 2.0)),
    ),
    **dict.fromkeys(["SparseSparseMultiply", "MultiplySparseSparse"], lambda: dense(x() * y())),
    **dict.fromkeys(["SparseDenseMultiply", "MultiplySparseDense"], lambda: dense(x() * SQUARE)),
    **dict.fromkeys(
        ["SparseDenseVectorMultiply", "MultiplySparseDenseVector"],
        lambda: dense(sparse_math.mul_s_v(x(), V)),
    ),
    **dict.fromkeys(
        ["StructuredAddSV", "StructuredAddSparseDenseVector"],
        lambda: dense(sparse_math.structured_add_s_v(x(), V)),
    ),
    "Dot": lambda: [ps.dot(x(), SQUARE), ps.dot(V, x())],
    "TrueDot": lambda: dense(ps.true_dot(x(), y())),
    "StructuredDot": lambda: ps.structured_dot(x(), SQUARE),
    "StructuredDotGradCSC": lambda: structured_gradient(x()),
    "StructuredDotGradCSR": lambda: structured_gradient(by_rows()),
    "SamplingDot": lambda: dense(ps.sampling_dot(SQUARE, OTHER, x() * 0.0 + x())),
    "SpSum": lambda: [ps.sp_sum(x(), axis=a, sparse_grad=True) for a in (None, 0, 1)],
    "Usmm": lambda: ps.usmm(A.dimshuffle("x", "x"), x(), SQUARE, OTHER),
}
for _name, _compare in COMPARED.items():
    for _short, _long, _other in (("SS", "SparseSparse", y), ("SD", "SparseDense", lambda: SQUARE)):
        EXAMPLES[_name + _short] = EXAMPLES[_name + _long] = _compared(_compare, _other)
