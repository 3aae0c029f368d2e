"""Ops that PyTensor's own rewrites put into a program that it compiles."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.aliasing import add_supervisor_to_fgraph
from pytensor.compile.io import In
from pytensor.compile.mode import get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import blas

from tests.every_op.families import sparse as s
from tests.every_op.families.draws import along_with, rng
from tests.every_op.record import OTHER, SQUARE, A, B, Example, K, M, U, V, positive_definite

TITLE = "Ops of compiled programs"
SLOW: set[tuple[str, str]] = set()
REASONS: list[str] = []
BASES = dict.fromkeys(
    ["BaseBLAS", "GemmRelated", "RNGConsumerOp", "AbstractRNGConstructor", "RandomVariable"],
    "a base class",
)
BASES["IndexedElemwise"] = "of PyTensor 3.0, where no mode uses it"
BASES["JAXShapeTuple"] = "a size in PyTensor's JAX mode, which nothing but that mode can compute"


def compiled(outputs: Any, mode: str = "NUMBA") -> Example:
    """``outputs`` as PyTensor's mode has rewritten them; what they mean is what they were."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    inputs = [v for v in graph_inputs(outputs) if hasattr(v.tag, "value")]
    fgraph = FunctionGraph(inputs, outputs, clone=True)
    expected = clone_replace(outputs, dict(zip(inputs, fgraph.inputs, strict=True)))
    add_supervisor_to_fgraph(fgraph, [In(v) for v in fgraph.inputs])
    get_mode(mode).optimizer.rewrite(fgraph)
    return Example(fgraph.outputs, expected=expected)


def of_c(outputs: Any, expected: Any) -> Any:
    return Example(outputs, expected=expected)


def sparse_product(kind: str) -> Any:
    from pytensor.sparse import rewriting

    data, *places, size = (s.DATA, *map(pt.constant, (s.ROWS, s.POINTERS, s.SIZE)))
    matrix = s.x() if "CSC" in kind or "Csc" in kind else s.by_rows()
    if kind == "StructuredDotCSC":
        return of_c(
            rewriting.StructuredDotCSC()(data, *places, size[0], SQUARE), s.ps.dot(matrix, SQUARE)
        )
    if kind == "StructuredDotCSR":
        return of_c(rewriting.StructuredDotCSR()(data, *places, SQUARE), s.ps.dot(matrix, SQUARE))
    if kind == "UsmmCscDense":
        alpha = A.dimshuffle("x", "x")
        return of_c(
            rewriting.UsmmCscDense(False)(alpha, data, *places, size[0], SQUARE, OTHER),
            alpha * s.ps.dot(matrix, SQUARE) + OTHER,
        )
    if kind == "MulSDCSC":
        return of_c(rewriting.MulSDCSC()(data, *places, SQUARE), s.ps.csm_data(matrix * SQUARE))
    if kind == "MulSDCSR":
        return of_c(rewriting.MulSDCSR()(data, *places, SQUARE), s.ps.csm_data(matrix * SQUARE))
    if kind == "MulSVCSR":
        return of_c(
            rewriting.MulSVCSR()(data, *places, V), s.dense(matrix)[0][ENTRIES] * V[ENTRIES[1]]
        )
    if kind == "StructuredAddSVCSR":
        op = (
            getattr(rewriting, "StructuredAddSparseDenseVectorCSR", None)
            or rewriting.StructuredAddSVCSR
        )
        return of_c(op()(data, *places, V), data + V[ENTRIES[1]])
    if kind == "SamplingDotCSR":
        actual = rewriting.SamplingDotCSR()(SQUARE, OTHER, data, *places, size[1])[0]
        return of_c(actual, data * (SQUARE @ OTHER.T)[ENTRIES])
    if kind == "AddSparseDenseC":
        op = getattr(rewriting, "AddSparseDenseC", None) or rewriting.AddSD_ccode
        return of_c(op("csr")(matrix, SQUARE), s.dense(matrix)[0] + SQUARE)
    assert kind == "CSMGradC"
    return of_c(rewriting.CSMGradC()(data, *places, size, data * 2, *places, size), data * 2)


# Where the entries of the sparse matrices by rows are.
ENTRIES = np.repeat(np.arange(3), np.diff(s.POINTERS)), s.ROWS


def fused() -> Any:
    return compiled(pt.set_subtensor(pt.zeros(4)[K], pt.exp(V[K]) * U))


EXAMPLES: dict[str, Any] = {
    "Gemv": lambda: blas.Gemv(inplace=False)(U[:2], A, M, V, B),
    "Gemm": lambda: blas.Gemm(inplace=False)(M, A, M, SQUARE, B),
    "Dot22": lambda: blas.Dot22()(M, SQUARE),
    "Dot22Scalar": lambda: blas.Dot22Scalar()(M, SQUARE, A),
    "Ger": lambda: blas.Ger(destructive=False)(M, A, U[:2], V),
    "BatchedDot": lambda: blas.BatchedDot()(pt.stack([M, M * 2]), pt.stack([SQUARE, OTHER])),
    "CGemv": lambda: of_c(
        blas_c().CGemv(inplace=False)(U[:2], A, M, V, B), B * U[:2] + A * (M @ V)
    ),
    "CGer": lambda: of_c(
        blas_c().CGer(destructive=False)(M, A, U[:2], V), M + A * pt.outer(U[:2], V)
    ),
    "BlockwiseWithCoreShape": lambda: compiled(
        pt.linalg.cholesky(pt.stack([positive_definite(), pt.eye(3)]))
    ),
    "RandomVariableWithCoreShape": lambda: drawn(),
    "FusedElemwise": fused,
    "ScalarCAReduce": lambda: compiled(pt.stack([V.sum() * 2.0, A])),
    "ScalarSubtensor": lambda: compiled(pt.exp(V[0]) * 2.0),
    "ScalarizedElemwise": lambda: compiled(pt.exp(V[0]) * 2.0 * U),
    "ScalarizedJoin": lambda: compiled(pt.join(0, V, pt.exp(U[0])[None])),
    "JAXOp": lambda: jax_function(),
    "DefaultGeneratorMakerOp": lambda: fresh_generator(),
    **{
        kind: (lambda kind=kind: sparse_product(kind))
        for kind in (
            *("StructuredDotCSC", "StructuredDotCSR", "UsmmCscDense", "MulSDCSC", "MulSDCSR"),
            *("MulSVCSR", "StructuredAddSVCSR", "SamplingDotCSR", "AddSparseDenseC", "CSMGradC"),
        )
    },
}
EXAMPLES["StructuredAddSparseDenseVectorCSR"] = EXAMPLES["StructuredAddSVCSR"]
EXAMPLES["AddSD_ccode"] = EXAMPLES["AddSparseDenseC"]


def blas_c() -> Any:
    try:
        from pytensor.tensor.blas import blas_c
    except ImportError:
        from pytensor.tensor import blas_c
    return blas_c


def jax_function() -> Any:
    import jax.numpy as jnp
    from pytensor import wrap_jax

    return Example(
        wrap_jax(lambda v: jnp.tanh(v) * 2.0)(pt.specify_shape(V, 3)), expected=pt.tanh(V) * 2.0
    )


def fresh_generator() -> Any:
    from pytensor.tensor.random.op import default_rng

    return along_with(pt.random.normal(V, 1.0, rng=default_rng(7), return_next_rng=True)[1], V)


def drawn() -> Any:
    """Draws of a mean that moves with them."""
    (actual,) = compiled(pt.random.normal(V, 1.0, rng=rng(), return_next_rng=True)[1]).outputs
    (mean,) = (v for v in graph_inputs([actual]) if v.name == V.name)
    return along_with(actual, mean)
