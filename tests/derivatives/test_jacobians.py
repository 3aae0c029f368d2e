"""`loopax.jacobian` and `hessian`, dense and sparse: of functions, and of what `jaxify` returns."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorConstant

from loopax import LoopTypeError, StatefulFunctionError, hessian, jacobian, jaxify, scan, vmap
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.assorted_loops import PLAIN

X = np.linspace(0.2, 1.1, 5)
M = np.arange(6.0).reshape(2, 3) / 5
x = pt.dvector("x")
NATIVE = InterpretedFunction.backend_name


def rolled(v, a):
    final, ys = scan(lambda c, r: (pt.sin(c * r) + a, {"y": c * r}), pt.constant(0.3), v)
    return {"final": final, "rows": ys["y"]}


def by_hand(v, a):
    final, ys = jax.lax.scan(lambda c, r: (jnp.sin(c * r) + a, {"y": c * r}), 0.3, v)
    return {"final": final, "rows": ys["y"]}


def cost(v, a):
    found = rolled(v, a)
    return found["final"] ** 2 + (found["rows"] * a).sum()


def hand_cost(v, a):
    found = by_hand(v, a)
    return found["final"] ** 2 + (found["rows"] * a).sum()


def run(tree):
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda v: hasattr(v, "owner"))
    return jax.tree.unflatten(structure, pytensor.function([], leaves, mode=PLAIN)())


def dense(m):
    return np.asarray(m.todense()) if hasattr(m, "todense") else np.asarray(m)


def agrees(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (np.shape(f), np.asarray(f).dtype) == (np.shape(e), np.asarray(e).dtype)
        np.testing.assert_allclose(f, e, rtol=1e-10, atol=1e-13)


# -- dense -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1, -2)])
def test_the_jacobian_is_that_of_jax(argnums):
    agrees(run(jacobian(rolled, argnums)(X, 0.7)), jax.jacobian(by_hand, argnums)(X, 0.7))


@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_the_hessian_is_that_of_jax(argnums):
    agrees(run(hessian(cost, argnums)(X, 0.7)), jax.hessian(hand_cost, argnums)(X, 0.7))


@pytest.mark.parametrize("static", [True, False], ids=["lengths known", "open"])
@pytest.mark.parametrize("wide", [True, False])
def test_matrices_of_matrices(static, wide):
    """By columns where there are fewer, by rows where there are fewer or nobody knows."""

    def f(m):
        return pt.exp(m[:, :2] @ m) if wide else pt.sin(m).sum(axis=0) * m[0]

    def hand(m):
        return jnp.exp(m[:, :2] @ m) if wide else jnp.sin(m).sum(axis=0) * m[0]

    at = pt.tensor("at", shape=M.shape if static else (None, None), dtype="float64")
    found = pytensor.function([at], jacobian(f)(at), mode=PLAIN)(M)
    agrees(found, np.asarray(jax.jacobian(hand)(M)))


@pytest.mark.slow
def test_a_hessian_by_a_matrix_and_of_a_batch():
    def f(m):
        return (pt.exp(m[0] * m[1]) + m[0] ** 3).sum()

    def hand(m):
        return (jnp.exp(m[0] * m[1]) + m[0] ** 3).sum()

    agrees(run(hessian(f)(M)), np.asarray(jax.hessian(hand)(M)))
    many = np.stack([M, M + 0.1])
    agrees(run(vmap(hessian(f))(many)), np.asarray(jax.vmap(jax.hessian(hand))(many)))


def test_what_does_not_depend_is_zero():
    by_a, by_b = run(jacobian(lambda a, b: pt.exp(a), (0, 1))(X, X[:2]))
    agrees(by_a, np.diag(np.exp(X)))
    agrees(by_b, np.zeros((5, 2)))
    agrees(run(hessian(lambda a: 2 * a.sum())(X)), np.zeros((5, 5)))


def test_an_op_of_a_user():
    """Whose structure nobody knows: all may depend on all."""
    at = pt.tensor("at", shape=(3,), dtype="float64")
    for sparse in (False, True):
        found = pytensor.function([at], jacobian(_Square(), sparse=sparse)(at), mode=PLAIN)(X[:3])
        agrees(dense(found), np.diag(2 * X[:3]))


class _Square(Op):
    """An op of which there is a ``perform`` and a pullback."""

    __props__ = ()
    __name__ = "square"

    def make_node(self, v):
        return Apply(self, [v], [v.type()])

    def perform(self, node, inputs, storage):
        storage[0][0] = inputs[0] ** 2

    def pullback(self, inputs, outputs, cotangents):
        return [2 * inputs[0] * cotangents[0]]


# -- sparse ------------------------------------------------------------------------------------------


def passes(variable):
    """How many products the program computes at once: the rows of its seeds, one for each colour."""
    constants = [v.data for v in ancestors([variable]) if isinstance(v, TensorConstant)]
    seeds = [c for c in constants if c.ndim == 2 and c.size and set(np.unique(c)) <= {0.0, 1.0}]
    (found,) = [c for c in seeds if c.dtype.kind == "f" and np.all(c.sum(axis=0) == 1)]
    return len(found)


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
    found = hessian(walk, sparse=True)(at)
    assert passes(found) == 2 * half_width + 1
    made, whole = pytensor.function([at], [found, hessian(walk)(at)], mode=PLAIN)(values)
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
        found = jacobian(f, sparse=True)(at)
        assert passes(found) == 2
        made, whole = pytensor.function([at], [found, jacobian(f)(at)], mode=PLAIN)(values)
        np.testing.assert_allclose(made.toarray(), whole, rtol=1e-12)
        assert made.nnz == np.count_nonzero(whole)


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
        found = sparse(values)
        np.testing.assert_allclose(dense(found), expected, rtol=1e-10)
        assert (found.nse if backend == "jax" else found.nnz) == 2 * (len(values) - 1)
        np.testing.assert_allclose(whole(values), expected, rtol=1e-10)
    if backend == "jax":
        np.testing.assert_allclose(dense(jax.jit(sparse)(X)), jax.jacobian(hand)(X), rtol=1e-10)
    else:
        assert isinstance(found, scipy.sparse.csr_matrix)
    h = jaxify(lambda v: f(v).sum(), backend=backend)
    expected = jax.hessian(lambda v: hand(v).sum())(X)
    np.testing.assert_allclose(dense(hessian(h, sparse=True)(X)), expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(hessian(h)(X), expected, rtol=1e-10, atol=1e-14)


def test_what_is_known_as_a_number_says_more():
    """Indices among the arguments: given as numbers they say where each element goes."""
    rows = np.array([1, 1, 4])
    found = run(jacobian(lambda v, k: v[k] ** 2, sparse=True)(X, rows))
    assert found.nnz == 3
    np.testing.assert_allclose(found.toarray(), np.diag(2 * X)[rows], rtol=1e-12)
    k = pt.tensor("k", shape=(3,), dtype="int64")
    open_ = jacobian(lambda v, k: v[k] ** 2, sparse=True)(X, k)
    found = pytensor.function([k], open_, mode=PLAIN)(rows)
    assert found.nnz == 15
    np.testing.assert_allclose(found.toarray(), np.diag(2 * X)[rows], rtol=1e-12)


def test_single_precision():
    narrow = pt.tensor("narrow", shape=(4,), dtype="float32")
    for found in (
        jacobian(lambda v: v[1:] ** 2)(narrow),
        jacobian(lambda v: v[1:] ** 2, sparse=True)(narrow),
    ):
        assert found.type.dtype == "float32"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: jacobian(lambda v: v > 0)(X),
            "jacobian of result, which is .*bool.*only tensors of floats",
        ),
        (lambda: jacobian(lambda v: v)(np.arange(3)), r"jacobian with respect to args\[0\]"),
        (lambda: hessian(lambda v: v)(X), "one float scalar"),
        (lambda: jacobian(lambda v: v, 1)(X), "argnums has 1"),
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


def test_what_is_no_function_or_has_state_is_said():
    with pytest.raises(TypeError, match=re.escape("loopax.hessian takes a function")):
        hessian(x)
    n = pytensor.shared(np.float64(1.0), name="n")
    f = jaxify([x], x * n, updates={n: n + 1}, backend="numba")
    with pytest.raises(StatefulFunctionError, match="updates the shared variables n"):
        jacobian(f)
    with pytest.raises(TypeError, match="has no PyTensor program"):
        jacobian(vmap(jaxify([x], x)), sparse=True)(X[None])
    assert "sparse" in inspect.signature(jacobian).parameters
