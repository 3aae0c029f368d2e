"""`loopax.jacobian` and `hessian` with ``sparse=True``: of functions, and of what `jaxify` returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorConstant

from loopax import LoopTypeError, hessian, jacobian, jaxify, scan, vmap
from tests.derivatives.test_jacobians import NATIVE, Square, X, run, x
from tests.support.assorted_loops import PLAIN


def dense(m):
    return np.asarray(m.todense()) if hasattr(m, "todense") else np.asarray(m)


def test_an_op_of_a_user():
    """Whose structure nobody knows: all may depend on all."""
    at = pt.tensor("at", shape=(3,), dtype="float64")
    actual = pytensor.function([at], jacobian(Square(), sparse=True)(at), mode=PLAIN)(X[:3])
    np.testing.assert_allclose(dense(actual), np.diag(2 * X[:3]), rtol=1e-10)


def passes(variable):
    """How many products the program computes at once: the rows of its seeds, one for each colour."""
    constants = [v.data for v in ancestors([variable]) if isinstance(v, TensorConstant)]
    seeds = [c for c in constants if c.ndim == 2 and c.size and set(np.unique(c)) <= {0.0, 1.0}]
    (actual,) = [c for c in seeds if c.dtype.kind == "f" and np.all(c.sum(axis=0) == 1)]
    return len(actual)


def by_slices(v):
    return ((v[1:] - v[:-1]) ** 2).sum() + pt.exp(v).sum()


def by_diff(v):
    return (pt.diff(v) ** 2).sum() + (pt.cos(v) * np.arange(1.0, 201.0)).sum()


def by_loop(v):
    def day(c, r):
        before, total = c
        return (r, total + (r - before) ** 2 + pt.exp(r)), None

    (_, total), _ = scan(day, (pt.constant(0.0), pt.constant(0.0)), v)
    return total


def by_legacy_scan(v):
    totals = pytensor.scan(
        lambda r, before, total: total + (r - before) ** 2 + pt.exp(r),
        sequences=[{"input": v, "taps": [0, -1]}],
        outputs_info=[np.float64(0)],
        return_updates=False,
    )
    return totals[-1]


def second_differences(v):
    return (pt.diff(v, 2) ** 2).sum() + pt.exp(v).sum()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("walk", "half_width"),
    [
        (by_slices, 1),
        (by_diff, 1),
        (by_loop, 1),
        pytest.param(by_legacy_scan, 1, marks=pytest.mark.slow),
        (second_differences, 2),
    ],
)
def test_a_banded_hessian_takes_as_many_passes_as_its_band_is_wide(walk, half_width):
    n = 200
    at = pt.tensor("at", shape=(n,), dtype="float64")
    values = np.random.default_rng(0).normal(size=n)
    actual = hessian(walk, sparse=True)(at)
    assert passes(actual) == 2 * half_width + 1
    made, whole = pytensor.function([at], [actual, hessian(walk)(at)], mode=PLAIN)(values)
    assert made.nnz == n * (2 * half_width + 1) - half_width * (half_width + 1)
    np.testing.assert_allclose(made.toarray(), whole, rtol=1e-10, atol=1e-12)


def test_a_sparse_jacobian_by_columns_and_by_rows():
    def band(v):
        return pt.sin(v[1:]) * v[:-1]

    def last_row(v):  # one row is full: by columns all of them, by rows two
        return pt.concatenate([v**2, [pt.prod(v)]])

    values = np.random.default_rng(1).uniform(0.9, 1.1, 40)
    for f in (band, last_row):
        at = pt.tensor("at", shape=(40,), dtype="float64")
        actual = jacobian(f, sparse=True)(at)
        assert passes(actual) == 2
        made, whole = pytensor.function([at], [actual, jacobian(f)(at)], mode=PLAIN)(values)
        np.testing.assert_allclose(made.toarray(), whole, rtol=1e-12)
        assert made.nnz == np.count_nonzero(whole)


@pytest.mark.slow
def test_blocks_of_several_arguments_are_coloured_together():
    """A walk with its scale: a column for the scale, three for the walk."""

    def walk(v, scale):
        return (pt.diff(v) ** 2).sum() * pt.exp(scale) + (v**4).sum()

    def hand(v, scale):
        return (jnp.diff(v) ** 2).sum() * jnp.exp(scale) + (v**4).sum()

    values = np.random.default_rng(1).normal(size=9), np.float64(0.3)
    (vv, vs), (sv, ss) = run(hessian(walk, (0, 1), sparse=True)(*values))
    expected = jax.hessian(hand, (0, 1))(*values)
    np.testing.assert_allclose(vv.toarray(), expected[0][0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(vs.toarray()[:, 0], expected[0][1], rtol=1e-10)
    np.testing.assert_allclose(sv.toarray()[0], expected[1][0], rtol=1e-10)
    np.testing.assert_allclose(ss.toarray(), expected[1][1], rtol=1e-10)
    assert vv.nnz == 9 + 16


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", NATIVE])
@pytest.mark.parametrize("traced", [True, False], ids=["traced", "graph"])
def test_of_what_jaxify_returns(backend, traced):
    """Of the lengths of each call; dense as well."""
    scale = pytensor.shared(np.float64(2.0), name="scale")

    def f(v):
        return pt.exp(v[1:] * v[:-1]) * scale

    def hand(v):
        return jnp.exp(v[1:] * v[:-1]) * 2.0

    g = jaxify(f, backend=backend) if traced else jaxify([x], f(x), backend=backend, name="f")
    sparse, whole = jacobian(g, sparse=True), jacobian(g)
    assert sparse.__name__ == "f"
    for values in (X, X[:3]):
        expected = jax.jacobian(hand)(values)
        actual = sparse(values)
        np.testing.assert_allclose(dense(actual), expected, rtol=1e-10)
        assert (actual.nse if backend == "jax" else actual.nnz) == 2 * (len(values) - 1)
        np.testing.assert_allclose(whole(values), expected, rtol=1e-10)
    if backend == "jax":
        np.testing.assert_allclose(dense(jax.jit(sparse)(X)), jax.jacobian(hand)(X), rtol=1e-10)
    else:
        assert isinstance(actual, scipy.sparse.csr_matrix)
    h = jaxify(lambda v: f(v).sum(), backend=backend)
    expected = jax.hessian(lambda v: hand(v).sum())(X)
    np.testing.assert_allclose(dense(hessian(h, sparse=True)(X)), expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(hessian(h)(X), expected, rtol=1e-10, atol=1e-14)


def test_what_is_known_as_a_number_says_more():
    """Indices among the arguments: given as numbers they say where each element goes."""
    rows = np.array([1, 1, 4])
    actual = run(jacobian(lambda v, k: v[k] ** 2, sparse=True)(X, rows))
    assert actual.nnz == 3
    np.testing.assert_allclose(actual.toarray(), np.diag(2 * X)[rows], rtol=1e-12)
    k = pt.tensor("k", shape=(3,), dtype="int64")
    open_ = jacobian(lambda v, k: v[k] ** 2, sparse=True)(X, k)
    actual = pytensor.function([k], open_, mode=PLAIN)(rows)
    assert actual.nnz == 15
    np.testing.assert_allclose(actual.toarray(), np.diag(2 * X)[rows], rtol=1e-12)


def test_single_precision():
    narrow = pt.tensor("narrow", shape=(4,), dtype="float32")
    assert jacobian(lambda v: v[1:] ** 2, sparse=True)(narrow).type.dtype == "float32"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: hessian(lambda v: (v**2).sum(), sparse=True)(x),
            r"lengths of args\[0\].*pt\.tensor",
        ),
        (
            lambda: jacobian(lambda v: v[: pt.lscalar("n")], sparse=True)(X),
            "lengths of its result.*specify_shape",
        ),
    ],
)
def test_what_is_wrong_is_said(call, match):
    with pytest.raises(LoopTypeError, match=match):
        call()


def test_what_has_no_program_is_said():
    with pytest.raises(TypeError, match="has no PyTensor program"):
        jacobian(vmap(jaxify([x], x)), sparse=True)(X[None])


@pytest.mark.parametrize("backend", ["jax", NATIVE])
def test_results_and_arguments_without_an_element(backend):
    differences = jaxify(lambda v: v[1:] ** 2 - v[:-1], backend=backend)
    assert jacobian(differences, sparse=True)(np.ones(1)).shape == (0, 1)
    doubled = jaxify(lambda v: 2 * v, backend=backend)
    assert jacobian(doubled, sparse=True)(np.zeros(0)).shape == (0, 0)
