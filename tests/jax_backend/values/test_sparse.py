"""Sparse matrices in JAX, against PyTensor's own ops, which call SciPy: entries, and not values alone."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
import scipy.sparse
from jax.experimental.sparse import BCOO
from pytensor import gradient
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.sparse import rewriting
from pytensor.sparse.linalg import block_diag
from pytensor.sparse.rewriting import MulSDCSC, MulSDCSR, MulSVCSR
from pytensor.sparse.sharedvar import SparseTensorSharedVariable
from pytensor.sparse.type import SparseTensorType

import loopax
from loopax import jaxify
from loopax.base.errors import DynamicShapeError, LoopTypeError
from loopax.base.upstream.pytensor import AddSparseDenseC
from loopax.jax_backend.staging.context import Context
from loopax.jax_backend.staging.evaluate import run
from loopax.jax_backend.staging.registry import converted_ops
from loopax.jax_backend.values.sparse import OrderedBCOO, as_bcoo, bcoo_to_scipy
from tests.programs.record import scan
from tests.support.compare import FAST_COMPILE
from tests.support.marking import slow_where

pytestmark = pytest.mark.one_stack

MADE = {"csr": scipy.sparse.csr_matrix, "csc": scipy.sparse.csc_matrix}


def matrix(format: str, seed: int = 0, shape: Any = (4, 3), dtype: str = "float64") -> Any:
    """A row and a column without entries, duplicates, an explicit zero, unsorted indices."""
    rng = np.random.default_rng(seed)
    m, n = shape
    dense = rng.integers(1, 5, shape) * (rng.uniform(size=shape) < 0.5)
    dense[:, -1:] *= 0
    dense[1:2] *= 0
    x = MADE[format](dense.astype(dtype) / (2 if dtype.startswith("float") else 1))
    if not x.nnz:
        return x
    major = np.repeat(np.arange(len(x.indptr) - 1), np.diff(x.indptr))
    major = np.concatenate([major, major[:1], [0]])
    minor = np.concatenate([x.indices, x.indices[:1], [0]])
    data = np.concatenate([x.data, [2], [0]]).astype(dtype)
    order = np.argsort(major + rng.uniform(size=len(major)) * 0.9)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=len(x.indptr) - 1))])
    return MADE[format]((data[order], minor[order], pointers.astype(np.int32)), shape=shape)


def clean(format: str, seed: int = 1, shape: Any = (4, 3), dtype: str = "float64") -> Any:
    x = matrix(format, seed, shape, dtype)
    x.sum_duplicates()
    x.eliminate_zeros()
    return x


def in_jax(inputs: Any, outputs: Any, values: Any, compiled: bool = True) -> list[Any]:
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    given = [
        as_bcoo(x, v.type) if isinstance(v.type, SparseTensorType) else x
        for v, x in zip(inputs, values, strict=True)
    ]

    def f(*xs: Any) -> Any:
        outs = run(Context(on_missing="raise"), graph, xs, range(len(xs)))
        return [jax.tree.map(jnp.asarray, x) for x in outs]

    return list(jax.jit(f)(*given)) if compiled else jax.eval_shape(f, *given)


def same(actual: Any, expected: Any, v: Any) -> None:
    """The same values; for a sparse matrix the same entries, where duplicates have been added up."""
    if isinstance(v.type, SparseTensorType):
        assert isinstance(actual, OrderedBCOO) and actual.format == v.type.format
        actual = bcoo_to_scipy(actual, v.type.format)
        expected = expected.copy().asformat(v.type.format)
        for x in (actual, expected):
            x.sum_duplicates()
        assert actual.shape == expected.shape
        np.testing.assert_array_equal(actual.indptr, expected.indptr)
        np.testing.assert_array_equal(actual.indices, expected.indices)
        actual, expected = actual.data, expected.data
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert actual.dtype == v.type.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-12)


def agrees(inputs: Any, outputs: Any, values: Any) -> None:
    for triple in both(inputs, {"": outputs}, values)[""]:
        same(*triple)


def both(inputs: Any, cases: Any, values: Any, compared: Any = None) -> dict[str, list[Any]]:
    """For each case, what JAX finds, what PyTensor finds, and the variable. One program for all.

    Cases that are not among ``compared`` are traced, and not compiled.
    """
    lists = {k: list(o) if isinstance(o, list | tuple) else [o] for k, o in cases.items()}
    if compared is not None:
        others = [v for k, o in lists.items() if k not in compared for v in o]
        in_jax(inputs, others, values, compiled=False)
        lists = {k: o for k, o in lists.items() if k in compared}
    outputs = [v for o in lists.values() for v in o]
    actual = in_jax(inputs, outputs, values)
    triples = iter(
        [(x, in_pytensor(inputs, v, values), v) for x, v in zip(actual, outputs, strict=True)]
    )
    return {k: [next(triples) for _ in o] for k, o in lists.items()}


def in_pytensor(inputs: Any, output: Any, values: Any) -> Any:
    """By itself, on copies: SciPy adds duplicates up in place, which spoils what is a view."""
    run = pytensor.function(inputs, output, mode=FAST_COMPILE, on_unused_input="ignore")
    return run(*[x.copy() for x in values])


def sparse(format: str, name: str, dtype: str = "float64") -> Any:
    return ps.matrix(format, name=name, dtype=dtype)


ROW, COL = np.array([1.0, -2.0, 0.5]), np.array([3.0, 0.0, 1.0, -1.0])
DENSE = np.arange(12.0).reshape(4, 3) - 4.0

# One sparse matrix (4, 3), and perhaps a dense one of its shape, a row and a column of it.
UNARY = {
    "properties": lambda x, d, r, c: list(ps.csm_properties(x)),
    "dense": lambda x, d, r, c: ps.dense_from_sparse(x),
    "transpose": lambda x, d, r, c: x.T,
    "negative": lambda x, d, r, c: -x,
    "cast": lambda x, d, r, c: ps.cast(x, "float32"),
    "cast to integers": lambda x, d, r, c: ps.cast(x, "int64"),
    "sum": lambda x, d, r, c: [ps.sp_sum(x, axis=a) for a in (None, 0, 1)],
    "exp": lambda x, d, r, c: ps.structured_exp(x),
    "sigmoid": lambda x, d, r, c: ps.structured_sigmoid(x),
    "power": lambda x, d, r, c: ps.structured_pow(x, 2.0),
    "minimum": lambda x, d, r, c: ps.structured_minimum(x, 1.0),
    "zeros": lambda x, d, r, c: x.zeros_like(),
    "ones": lambda x, d, r, c: ps.sp_ones_like(x),
    "sorted": lambda x, d, r, c: ps.csm_properties(ps.ensure_sorted_indices(x))[:3],
    "without zeros": lambda x, d, r, c: ps.remove0(x),
    "exp without zeros": lambda x, d, r, c: ps.structured_exp(ps.clean(x)),
    "column scale": lambda x, d, r, c: ps.col_scale(x, r),
    "row scale": lambda x, d, r, c: ps.row_scale(x, c),
    "plus dense": lambda x, d, r, c: x + d,
    "times dense": lambda x, d, r, c: x * d,
    "times scalar": lambda x, d, r, c: x * r[0],
    "times row": lambda x, d, r, c: ps.mul_s_v(x, r),
    "plus row": lambda x, d, r, c: ps.structured_add_s_v(x, r),
    "equal": lambda x, d, r, c: [ps.eq(x, d), ps.neq(x, d), ps.lt(x, d), ps.ge(x, d)],
    "compared": lambda x, d, r, c: [ps.gt(x, d), ps.le(x, d)],
    "diagonal": lambda x, d, r, c: ps.diag(x[:3]),
    "slice": lambda x, d, r, c: x[1:, ::2],
    "slice back": lambda x, d, r, c: x[::-1, 2:0:-1],
    "no rows": lambda x, d, r, c: x[4:],
    "element": lambda x, d, r, c: [
        ps.basic.get_item_scalar(x, [k, pt.cast(c[1], "int64")]) for k in (0, -1)
    ],
    "rows": lambda x, d, r, c: x[[2, 0, 2, -1]],
    "rows of traced index": lambda x, d, r, c: ps.basic.get_item_list(x, pt.cast(c, "int8")),
    "elements": lambda x, d, r, c: x[[2, 0, 0, -1], [1, 0, 0, 1]],
    "elements of traced index": lambda x, d, r, c: ps.basic.get_item_2lists(
        x, pt.cast(c, "int64"), [0, 1, 1, 0]
    ),
    "dot": lambda x, d, r, c: [ps.dot(x, d.T), ps.dot(d, x.T), ps.dot(x, r), ps.dot(c, x)],
    "dot of two": lambda x, d, r, c: ps.dot(x, x.T),
    "structured dot": lambda x, d, r, c: [ps.structured_dot(x, d.T), ps.structured_dot(d, x.T)],
    "sparse structured dot": lambda x, d, r, c: ps.structured_dot(x, x.T),
    "true dot": lambda x, d, r, c: [ps.true_dot(x, x.T), ps.true_dot(x, d.T)],
    "usmm": lambda x, d, r, c: ps.usmm(pt.as_tensor([[2.0]]), x, d.T, pt.dot(d, d.T)),
    "sampling dot": lambda x, d, r, c: ps.sampling_dot(d, pt.eye(3), x),
    "blocks": lambda x, d, r, c: [block_diag(x, d, x.T, format=f) for f in MADE],
    "csm": lambda x, d, r, c: ps.CSR(r, [0, 2, 1], [0, 2, 2, 3], (3, 3)),
    "csm of traced parts": lambda x, d, r, c: ps.CSC(
        r, pt.cast(r > 0, "int64"), pt.cast(pt.stack([0, r[0] * 2, 3]), "int64"), (2, 2)
    ),
    "square diagonal": lambda x, d, r, c: ps.square_diagonal(c),
    "from a list of rows": lambda x, d, r, c: ps.construct_sparse_from_list(
        pt.zeros((6, 3)), d, np.array([5, 0, 2, 1])
    ),
    "made sparse": lambda x, d, r, c: [
        ps.csr_from_dense(d),
        ps.csc_from_dense(d),
        ps.structured_exp(ps.csr_from_dense(d)),
        ps.structured_exp(ps.csc_from_dense(d).T),
    ],
    "shape": lambda x, d, r, c: [x.shape[0] + d, x.T.shape],
}


def cases_of(drawn: Any) -> frozenset[str]:
    return frozenset(parameters["case"] for parameters in drawn)


@cache
def unary(format: str, compared: frozenset[str]) -> dict[str, list[Any]]:
    x, d, r, c = sparse(format, "x"), pt.dmatrix("d"), pt.dvector("r"), pt.dvector("c")
    cases = {case: f(x, d, r, c) for case, f in UNARY.items()}
    return both([x, d, r, c], cases, [matrix(format), DENSE, ROW, COL], compared)


@pytest.mark.sampled(19)
@pytest.mark.parametrize("format", slow_where("csc".__eq__, MADE))
@pytest.mark.parametrize("case", UNARY)
def test_ops_of_one_matrix(case: str, format: str, drawn: Any) -> None:
    for triple in unary(format, cases_of(drawn))[case]:
        same(*triple)


BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "subtract itself": lambda x, y: [x - x, ps.structured_exp(x - x)],
    "add entries": lambda x, y: ps.add_s_s_data(x, x * 2.0),
    "multiply": lambda x, y: x * y,
    "exp of product": lambda x, y: ps.structured_exp(x * y),
    "compare": lambda x, y: [ps.eq(x, y), ps.neq(x, y), ps.lt(x, y), ps.gt(x, y)],
    "compare more": lambda x, y: [ps.le(x, y), ps.ge(x, y)],
    "hstack": lambda x, y: [ps.hstack([x, y], format=f) for f in MADE],
    "vstack": lambda x, y: [ps.vstack([x, y, x], format=f) for f in MADE],
}


@cache
def binary(format: str, compared: frozenset[str]) -> dict[str, list[Any]]:
    x, y = sparse(format, "x"), sparse(format, "y")
    cases = {case: f(x, y) for case, f in BINARY.items()}
    return both([x, y], cases, [matrix(format), matrix(format, 5)], compared)


# SciPy's, about what PyTensor's `perform` does.
@pytest.mark.sampled(8)
@pytest.mark.filterwarnings("ignore:Comparing two sparse matrices")
@pytest.mark.parametrize("format", ["csr", pytest.param("csc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", BINARY)
def test_ops_of_two_matrices(case: str, format: str, drawn: Any) -> None:
    for triple in binary(format, cases_of(drawn))[case]:
        same(*triple)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 2)])
@pytest.mark.parametrize("format", MADE)
def test_matrices_without_entries(format: str, shape: Any) -> None:
    x, d = sparse(format, "x"), pt.dmatrix("d")
    outputs = [
        *ps.csm_properties(x),
        ps.dot(x, d.T),
        ps.dense_from_sparse(x * x),
        ps.structured_exp(x + x),
        x.T,
        ps.sp_sum(x, axis=0),
        ps.vstack([x, x], format=format),
        x[:, ::-1],
        ps.structured_exp(ps.csr_from_dense(d)),
        ps.structured_dot(x, ps.csr_from_dense(d.T)),
    ]
    agrees([x, d], outputs, [MADE[format](shape), np.zeros(shape)])


@pytest.mark.parametrize(
    "dtype", slow_where("uint8".__ne__, ["float32", "int32", "uint8", "complex128"])
)
def test_dtypes(dtype: str) -> None:
    x, y = sparse("csr", "x", dtype), sparse("csc", "y", "float32")
    outputs = [x + x, x * x, ps.dense_from_sparse(x), ps.structured_add(x, 1), ps.dot(x, x.T), x.T]
    outputs += [x * y, x + y, ps.sp_sum(x), ps.structured_dot(x, y.T), -x, ps.vstack([x, y])]
    agrees([x, y], outputs, [matrix("csr", 2, dtype=dtype), matrix("csc", 3, dtype="float32")])


# What to differentiate, with respect to x (of the format of the test), y and d.
COSTS = {
    "dense": lambda x, y, d: (ps.dense_from_sparse(x) * d).sum(),
    "structured dot": lambda x, y, d: (ps.structured_dot(x, d.T) ** 2).sum(),
    "dot": lambda x, y, d: (ps.dot(x, d.T) ** 2).sum() + ps.dot(d.T, x).sum() ** 2,
    "exp": lambda x, y, d: (ps.structured_dot(ps.structured_exp(x), d.T) ** 2).sum(),
    "log of made sparse": lambda x, y, d: ps.structured_dot(
        ps.structured_log(ps.csr_from_dense(d * d)), d.T
    ).sum(),
    "sum": lambda x, y, d: (ps.sp_sum(x * x, axis=0) ** 2).sum() + ps.sp_sum(x, sparse_grad=True),
    "sums": lambda x, y, d: (ps.sp_sum(x, axis=1, sparse_grad=True) * d[:, 0]).sum(),
    "add": lambda x, y, d: (ps.dense_from_sparse(x + y) ** 2).sum(),
    "add dense": lambda x, y, d: ((x + d) ** 2).sum(),
    "multiply": lambda x, y, d: (ps.dense_from_sparse(x * y) * d).sum(),
    "multiply dense": lambda x, y, d: ps.sp_sum((x * d) * y),
    "row": lambda x, y, d: (ps.dense_from_sparse(ps.mul_s_v(x, d[0])) ** 2).sum(),
    "plus row": lambda x, y, d: ps.sp_sum(ps.structured_add_s_v(x, d[0]) * y),
    "scale": lambda x, y, d: (
        ps.dense_from_sparse(ps.col_scale(ps.row_scale(x, d[:, 0]), d[0]))
    ).sum(),
    "transpose": lambda x, y, d: (ps.structured_dot(x.T, d) ** 2).sum(),
    "cast": lambda x, y, d: ps.sp_sum(ps.cast(x * x, "float32")),
    "rows": lambda x, y, d: (ps.dense_from_sparse(x[[2, 0]]) ** 2).sum(),
    "elements": lambda x, y, d: (x[[2, 0], [1, 0]] ** 2).sum(),
    "true dot": lambda x, y, d: ps.sp_sum(ps.true_dot(x, d.T)),
    "sampling dot": lambda x, y, d: (
        ps.dense_from_sparse(ps.sampling_dot(d, pt.eye(3) + d[:3], gradient.disconnected_grad(y)))
        ** 2
    ).sum(),
    "data": lambda x, y, d: (ps.csm_data(x) ** 3).sum(),
    "rebuilt": lambda x, y, d: ps.structured_dot(
        ps.CSM(x.format)(ps.csm_data(x) ** 2, *ps.csm_properties(x)[1:]), d.T
    ).sum(),
    "clean": lambda x, y, d: ps.sp_sum(ps.clean(x) * y),
    "diagonal": lambda x, y, d: (ps.diag(ps.structured_dot(x.T, y)) ** 2).sum(),
}


@cache
def differentiated(format: str, compared: frozenset[str]) -> Any:
    x, y, d = sparse(format, "x"), sparse(format, "y"), pt.dmatrix("d")
    values = [clean(format, 1), clean(format, 6), DENSE]
    costs = {case: f(x, y, d) for case, f in COSTS.items()}
    cases: dict[str, Any] = {}
    for case, cost in costs.items():
        actual = pytensor.grad(
            cost, [x, y, d], disconnected_inputs="ignore", return_disconnected="none"
        )
        cases[case] = [cost, *[g for g in actual if g is not None]]
    actual = both([x, y, d], cases, values, compared)

    return actual, list(costs.values()), [x, y, d], values


# SciPy's, about what PyTensor's GetItemListGrad does.
@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:Changing the sparsity structure")
@pytest.mark.parametrize("format", ["csr", pytest.param("csc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", COSTS)
def test_gradients_of_pytensor(case: str, format: str, drawn: Any) -> None:
    for triple in differentiated(format, cases_of(drawn))[0][case]:
        same(*triple)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Changing the sparsity structure")
@pytest.mark.parametrize("format", ["csr", "csc"])
def test_gradients_of_jax(format: str) -> None:
    """With respect to the dense matrix, of all costs at once, each with a weight of its own."""
    actual, costs, inputs, values = differentiated(format, frozenset(COSTS))
    weights = np.sqrt(np.arange(2.0, 2.0 + len(costs)))
    expected = np.zeros_like(DENSE)
    for w, triples in zip(weights, actual.values(), strict=True):
        dense = [b for _, b, v in triples[1:] if not isinstance(v.type, SparseTensorType)]
        expected += w * dense[-1] if dense else 0.0

    def weighted(d: Any) -> Any:
        outs = in_jax(inputs, costs, [*values[:2], d])
        return sum(w * c for w, c in zip(weights, outs, strict=True))

    gradient_of_all = jax.jit(jax.grad(weighted))(jnp.asarray(DENSE))
    np.testing.assert_allclose(gradient_of_all, expected, rtol=1e-6)


# The front door.


@cache
def exp_of_data() -> Any:
    a, x = ps.csr_matrix("a"), pt.dmatrix("x")
    return jaxify([a, x], [ps.structured_dot(ps.structured_exp(a), x), ps.csm_data(a) * 2.0, a.T])


def test_an_input_an_output_and_a_shared_variable() -> None:
    a, x = matrix("csr"), DENSE.T
    product, data, transposed = exp_of_data()(a, x)
    np.testing.assert_allclose(data, a.data * 2)
    entries = a.copy()
    entries.data = np.exp(a.data)
    np.testing.assert_allclose(product, entries @ x)
    assert isinstance(transposed, BCOO)
    np.testing.assert_allclose(transposed.todense(), a.toarray().T)

    w = pytensor.shared(clean("csc"), name="w")
    assert isinstance(w, SparseTensorSharedVariable)
    d = pt.dmatrix("d")
    f = jaxify([d], ps.dot(w, d))
    np.testing.assert_allclose(f(DENSE.T), clean("csc").toarray() @ DENSE.T)
    w.set_value(clean("csc", 6))
    np.testing.assert_allclose(f(DENSE.T), clean("csc", 6).toarray() @ DENSE.T)


def hessian_and_gradient(f: Any) -> Any:
    return jax.jacfwd(lambda x: (jax.grad(f)(x),) * 2, has_aux=True)


def test_derivatives_with_respect_to_the_data_of_an_input() -> None:
    """Entries in any order: those of the BCOO are sorted, and derivatives find their way back."""
    a, x = clean("csr"), jnp.asarray(DENSE.T)
    indices = np.stack(a.tocoo().coords, axis=-1)
    order = np.random.default_rng(0).permutation(a.nnz)

    def loss(data: Any) -> Any:
        return jnp.sum(exp_of_data()(BCOO((data, indices[order]), shape=a.shape), x)[0] ** 2)

    def dense(data: Any) -> Any:
        made = jnp.zeros(a.shape).at[tuple(indices[order].T)].add(jnp.exp(data))
        return jnp.sum((made @ x) ** 2)

    data = jnp.asarray(a.data[order])
    # Inside of jax.jit the indices would be traced, and the entries of the BCOO not be known.
    actual = hessian_and_gradient(loss)(data)
    for one, other in zip(actual, jax.jit(hessian_and_gradient(dense))(data), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_vmap_over_a_dense_input_and_over_data() -> None:
    a, x = clean("csr"), np.stack([DENSE.T, DENSE.T + 1, DENSE.T * 2])
    actual = jax.vmap(lambda d: exp_of_data()(a, d)[0])(x)
    expected = np.stack([exp_of_data()(a, d)[0] for d in x])
    np.testing.assert_allclose(actual, expected)
    indices = np.stack(a.tocoo().coords, axis=-1)
    rows = np.stack([a.data, a.data * 2])
    actual = jax.vmap(lambda v: exp_of_data()(BCOO((v, indices), shape=a.shape), x[0])[0])(rows)
    np.testing.assert_allclose(actual[0], expected[0])
    assert not np.allclose(actual[1], expected[0])


def test_indices_that_are_traced_are_sorted_in_the_program() -> None:
    a = clean("csr")
    data = np.concatenate([a.data, np.zeros(3)])
    indices = np.concatenate([np.stack(a.tocoo().coords, axis=-1), np.tile(a.shape, (3, 1))])
    shuffled = BCOO((jnp.asarray(data[::-1]), jnp.asarray(indices[::-1])), shape=a.shape)
    b, x = ps.csr_matrix("b"), pt.dmatrix("x")
    f = jaxify([b, x], ps.structured_dot(ps.structured_exp(b), x))
    entries = a.copy()
    entries.data = np.exp(a.data)
    np.testing.assert_allclose(jax.jit(f)(shuffled, DENSE.T), entries @ DENSE.T)


def test_hidden_zeros_have_derivatives_and_no_entries() -> None:
    x, y = ps.csr_matrix("x"), pt.dmatrix("y")
    difference = x + ps.csr_from_dense(y) * -1.0
    f = jaxify([x, y], [ps.sp_sum(difference), ps.sp_sum(ps.structured_exp(difference))])
    a = clean("csr")
    total, pull, of_entries = jax.vjp(lambda d: f(a, d), a.toarray(), has_aux=True)
    assert total == of_entries == 0.0
    np.testing.assert_array_equal(pull(jnp.ones(()))[0], -np.ones(a.shape))


def test_loops_with_a_matrix_as_a_constant_and_as_a_state() -> None:
    a, x = ps.csr_matrix("a"), pt.dvector("x")
    constant = ps.as_sparse_variable(clean("csr", 1, (3, 3)))

    def step(v: Any, m: Any) -> Any:
        return pt.tanh(ps.structured_dot(m, v[:, None])[:, 0])

    legacy = scan(step, outputs_info=[x], non_sequences=[a], n_steps=3)
    ours, _ = loopax.scan(lambda v, _: (step(v, a) + step(v, constant), None), x, None, length=3)
    (state, _), _ = loopax.scan(
        lambda c, _: ((c[0] * 0.5, c[1] + 1.0), None), (a, pt.constant(0.0)), None, length=3
    )
    f = jaxify([a, x], [legacy[-1], ours, ps.dense_from_sparse(state)])
    value, start = clean("csr", 6, (3, 3)), np.array([0.1, -0.2, 0.3])
    m, c = value.toarray(), clean("csr", 1, (3, 3)).toarray()
    v = w = start
    for _ in range(3):
        v, w = np.tanh(m @ v), np.tanh(m @ w) + np.tanh(c @ w)
    actual = f(value, start)
    np.testing.assert_allclose(actual[0], v)
    np.testing.assert_allclose(actual[1], w)
    np.testing.assert_allclose(actual[2], m / 8)
    jax.grad(lambda s: f(value, s)[1].sum())(start)


def test_a_state_that_gains_entries_is_refused() -> None:
    a = ps.csr_matrix("a")
    state, _ = loopax.scan(lambda c, _: (c + a, None), a, None, length=2)
    f = jaxify([a], ps.dense_from_sparse(state))
    with pytest.raises(DynamicShapeError, match="A sparse matrix that is a state of a loop has"):
        f(clean("csr"))


def test_a_choice_between_matrices() -> None:
    a, p = ps.csr_matrix("a"), pt.dscalar("p")
    chosen = loopax.cond(p > 0, lambda m: m * 2.0, lambda m: -m, a)
    f = jaxify([a, p], ps.dense_from_sparse(chosen))
    np.testing.assert_allclose(f(clean("csr"), 1.0), clean("csr").toarray() * 2)
    np.testing.assert_allclose(f(clean("csr"), -1.0), -clean("csr").toarray())


@pytest.mark.parametrize(
    "make",
    [
        lambda d: ps.csm_data(ps.csr_from_dense(d)),
        lambda d: pt.exp(ps.csm_data(ps.csr_from_dense(d))).sum(),
        lambda d: ps.csm_data(ps.csr_from_dense(d)).shape[0] + d,
        lambda d: ps.csm_indices(ps.csr_from_dense(d))[0] + d,
    ],
)
def test_arrays_whose_length_is_the_number_of_nonzeros_are_refused(make: Any) -> None:
    d = pt.dmatrix("d")
    f = jaxify([d], make(d))
    with pytest.raises(DynamicShapeError, match="whose number is known only when the program"):
        f(DENSE)


def test_values_that_do_not_fit_are_refused() -> None:
    kind = SparseTensorType("csr", "float32", shape=(None, 3))
    a = clean("csr", dtype="float32")
    with pytest.raises(
        LoopTypeError, match=r"must be a sparse csr matrix of float32, .*Pass scipy"
    ):
        as_bcoo(DENSE, kind)
    with pytest.raises(LoopTypeError, match=r"csr_matrix of float64.* x.astype\('float32'\)"):
        as_bcoo(a.astype("float64"), kind)
    with pytest.raises(LoopTypeError, match=r"csr_matrix of float32, shape \(3, 4\)"):
        as_bcoo(a.T.tocsr(), kind)
    with pytest.raises(LoopTypeError, match="batched or dense dimensions"):
        none = jnp.zeros((4, 0), "float32"), jnp.zeros((4, 0, 1), int)
        as_bcoo(BCOO(none, shape=(4, 3)), kind)
    broken = a.copy()
    broken.indices[0] = 7
    with pytest.raises(
        LoopTypeError, match="has entries at the indices 0 to 7 of an axis of length 3"
    ):
        as_bcoo(broken, kind)
    as_bcoo(a.astype("int8"), kind)
    as_bcoo(scipy.sparse.csr_array(a), kind)
    as_bcoo(scipy.sparse.coo_matrix(a), kind)


def test_values_are_copied_and_come_back() -> None:
    for format in MADE:
        a, kind = matrix(format), SparseTensorType(format, "float64")
        x = as_bcoo(a, kind)
        before = a.toarray()
        a.data[:] = 0
        back = bcoo_to_scipy(x, format)
        np.testing.assert_array_equal(back.toarray(), before)
        np.testing.assert_array_equal(back.indices, a.indices)
        np.testing.assert_array_equal(back.indptr, a.indptr)
        other = bcoo_to_scipy(x, "bsr")
        assert other.format == "bsr"
        np.testing.assert_array_equal(other.toarray(), before)


def test_indices_out_of_range() -> None:
    x, k = ps.csr_matrix("x"), pt.lvector("k")
    with pytest.raises(IndexError, match="Index 9 is out of range for an axis of length 4"):
        in_jax([x], [ps.basic.get_item_list(x, [0, 9])], [clean("csr")])
    rows, elements = ps.basic.get_item_list(x, k), ps.basic.get_item_2lists(x, k, k * 0)
    actual = in_jax(
        [x, k], [ps.dense_from_sparse(rows), elements], [clean("csr"), np.array([0, 9])]
    )
    expected = clean("csr").toarray()[0]
    np.testing.assert_array_equal(actual[0][0], expected)
    assert np.isnan(actual[0][1]).any()
    np.testing.assert_array_equal(actual[1], [expected[0], np.nan])


def test_every_op_of_pytensor_has_a_rule() -> None:
    modules = (ps.basic, ps.math, ps.linalg, rewriting)
    actual = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
    ops = {c for c in actual if issubclass(c, Op) and c.__module__.startswith("pytensor.sparse")}
    abstract = {c for c in ops if any(issubclass(other, c) for other in ops - {c})}
    assert [c.__name__ for c in ops - abstract if c not in converted_ops()] == []


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_have_it")
def test_ops_of_the_c_mode() -> None:
    """PyTensor's C mode puts other ops in the place of these, and a compiled function has them."""
    mode = Mode(linker="cvm", optimizer="fast_run")
    both, d, r = [sparse(format, format) for format in MADE], pt.dmatrix("d"), pt.dvector("r")
    outputs = [ps.csr_from_dense(d) + d]
    for x in both:
        made = [x * d, ps.mul_s_v(x, r), ps.structured_add_s_v(x, r)]
        outputs += [x + d, *map(ps.dense_from_sparse, made)]
    f = pytensor.function([*both, d, r], outputs, mode=mode)
    seen = {type(n.op) for n in f.maker.fgraph.toposort()}
    values = [*map(clean, MADE), DENSE, ROW]
    for a, b in zip(jaxify(f)(*values), f(*values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    assert seen >= {MulSDCSC, MulSDCSR, MulSVCSR, AddSparseDenseC}


def test_ops_of_the_c_mode_that_take_arrays() -> None:
    x, d = {f: sparse(f, f) for f in MADE}, pt.dmatrix("d")
    csr, csc = (ps.csm_properties(x[f]) for f in MADE)
    outputs = [
        rewriting.StructuredDotCSR()(*csr[:3], d.T),
        rewriting.StructuredDotCSC()(*csc[:3], csc[3][0], d.T),
        rewriting.UsmmCscDense(False)(
            pt.constant([[2.0]]), *csc[:3], csc[3][0], d.T, pt.dot(d, d.T)
        ),
        rewriting.SamplingDotCSR()(d, pt.eye(3), *csr[:3], csr[3][1])[0],
    ]
    a, b = clean("csr"), clean("csc")
    actual = in_jax([*x.values(), d], outputs, [a, b, DENSE])
    entries = a.tocoo()
    expected = [a @ DENSE.T, b @ DENSE.T, 2 * (b @ DENSE.T) + DENSE @ DENSE.T]
    expected.append(entries.data * DENSE[entries.row, entries.col])
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other)
