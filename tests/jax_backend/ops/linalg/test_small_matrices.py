"""Linear algebra of up to three rows is written out: LAPACK's values, derivatives of any order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytensor.tensor.linalg import cho_solve, cholesky, det, inv, slogdet, solve, solve_triangular

from loopax import jaxify, scan
from loopax.jax_backend.ops.linalg import small_matrices
from tests.support.compare import primitives

A, B = pt.dmatrix("a"), pt.dmatrix("b")
SIZES = pytest.mark.parametrize("n", [1, 2, 3])
LAPACK = {
    "lu",
    "cholesky",
    "triangular_solve",
    "eigh",
    "custom_linear_solve",
    "lu_pivots_to_permutation",
}
RNG = np.random.default_rng(0)
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False) | st.sampled_from(
    [0.0, 1.0, 1e-8, 1e8, -1e-150]
)


def definite(n):
    root = RNG.normal(size=(n, n))
    return root @ root.T + np.eye(n)


def written_out(f, *values):
    return not primitives(jax.make_jaxpr(f)(*values)).keys() & LAPACK


PROGRAMS = {
    "inverse": ([A], inv(A), lambda a, b: np.linalg.inv(a)),
    "determinant": ([A], det(A), lambda a, b: np.linalg.det(a)),
    "logarithm": ([A], slogdet(A)[1], lambda a, b: np.linalg.slogdet(a)[1]),
    "sign": ([A], slogdet(A)[0], lambda a, b: np.linalg.slogdet(a)[0]),
    "factor": ([A], cholesky(A), lambda a, b: np.linalg.cholesky(a)),
    "upper factor": ([A], cholesky(A, lower=False), lambda a, b: np.linalg.cholesky(a).T),
    "solve": ([A, B], solve(A, B), np.linalg.solve),
    "vector": ([A, B], solve(A, B[:, 0], b_ndim=1), lambda a, b: np.linalg.solve(a, b[:, 0])),
    "symmetric": ([A, B], solve(A, B, assume_a="sym"), np.linalg.solve),
    "definite": ([A, B], solve(A, B, assume_a="pos"), np.linalg.solve),
    "by a factor": ([A, B], cho_solve((cholesky(A), True), B), np.linalg.solve),
    "lower": (
        [A, B],
        solve_triangular(A, B, lower=True),
        lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True),
    ),
    "upper": ([A, B], solve_triangular(A, B), scipy.linalg.solve_triangular),
    "unit": (
        [A, B],
        solve_triangular(A, B, lower=True, unit_diagonal=True),
        lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True, unit_diagonal=True),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 6), (3, 1)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives(name, n, m):
    inputs, out, expected = PROGRAMS[name]
    values = [definite(n), RNG.normal(size=(n, m))]
    given_values = values[: len(inputs)]
    f = jaxify(inputs, out)
    np.testing.assert_allclose(f(*given_values), expected(*values), rtol=1e-11, atol=1e-13)
    if name == "sign":
        return
    weights = np.cos(np.arange(np.size(f(*given_values)))).reshape(np.shape(f(*given_values)))
    at = tuple(range(len(inputs)))
    slope = jax.grad(lambda *xs: (f(*xs) * weights).sum(), argnums=at)
    curve = jax.grad(lambda *xs: sum((g * (g + 1)).sum() for g in slope(*xs)), argnums=at)
    for function in (f, slope, curve):
        assert written_out(function, *given_values)
    by_pytensor = pytensor.grad((out * weights).sum(), inputs)
    actual = jaxify(inputs, by_pytensor)(*given_values)
    if n == 2:
        jax.test_util.check_grads(f, given_values, order=2, modes=["rev"], rtol=1e-4, atol=1e-4)
    for k, (ours, theirs) in enumerate(zip(slope(*given_values), actual, strict=True)):
        if (
            name in ("symmetric", "definite", "by a factor") and k == 0
        ):  # one reads a triangle, the other both
            ours, theirs = ours + ours.T, theirs + theirs.T
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
    batch = jax.vmap(f)(*[np.stack([x, 2 * x]) for x in given_values])
    again = [2 * x for x in given_values]
    np.testing.assert_allclose(batch[1], f(*again), rtol=1e-11, atol=1e-13)


@pytest.mark.slow
@given(arrays(float, (3, 3), elements=NUMBERS), st.integers(1, 3))
@settings(max_examples=80, derandomize=True)
def test_any_matrix_as_lapack_has_it(a, n):
    """As accurate for what is ill-conditioned; what is singular gives no number, as it does there."""
    a = a[:n, :n]
    b = jnp.arange(1.0, 2 * n + 1).reshape(n, 2)
    with np.errstate(all="ignore"):
        condition = np.linalg.cond(a)
    a = jnp.asarray(a)
    for ours, theirs in (
        (small_matrices.inverse(a), jnp.linalg.inv(a)),
        (small_matrices.solution(a, b), jnp.linalg.solve(a, b)),
    ):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if not np.isfinite(theirs).all() or condition > 1e14:
            assert np.isfinite(theirs).all() or not np.isfinite(ours).all()
            continue
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, atol=1e-14 * condition * scale, rtol=0)
    actual = small_matrices.log_determinant(a)
    for ours, theirs in zip(actual, jnp.linalg.slogdet(a), strict=True):
        if condition < 1e14:
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("a", [np.zeros((2, 2)), np.ones((3, 3)), np.diag([1.0, 0.0, 2.0])])
def test_singular_matrices(a):
    assert not np.isfinite(jaxify([A], inv(A))(a)).all()
    assert not np.isfinite(jaxify([A, B], solve(A, B))(a, np.ones((len(a), 1)))).all()
    f = jaxify([A], [det(A), *slogdet(A)])
    np.testing.assert_array_equal(f(a), [0.0, 0.0, -np.inf])
    by_minors = jax.grad(jaxify([A], det(A)))(a)  # finite where the inverse is not
    np.testing.assert_allclose(by_minors, _cofactors(a), atol=1e-15)


def _cofactors(a):
    n = len(a)
    minors = [
        [np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)] for i in range(n)
    ]
    return np.array(minors) * (-1.0) ** np.add.outer(np.arange(n), np.arange(n))


@pytest.mark.sampled(2)
@SIZES
def test_what_is_not_definite_has_no_factor(n):
    f = jaxify([A], cholesky(A))
    a = definite(n)
    a[-1, -1] = -1.0
    assert np.isnan(f(a)).all()
    assert np.isnan(jax.grad(lambda a: np.log(np.diag(np.eye(n))).sum() + f(a).sum())(a)).any()
    assert np.isnan(f(np.full((n, n), np.nan))).all()
    upper = a.copy()
    upper[-1, -1], upper[0, 1:] = 5.0, np.nan  # the other triangle is not read
    assert n == 1 or not np.isnan(f(upper)).any()


@pytest.mark.slow
def test_batches_and_loops():
    t = pt.dtensor3("t")
    values = np.stack([definite(3) for _ in range(5)])
    f = jaxify([t], [inv(t), cholesky(t)])
    assert written_out(f, values)
    np.testing.assert_allclose(f(values)[0], np.linalg.inv(values), rtol=1e-11)
    np.testing.assert_allclose(f(values)[1], np.linalg.cholesky(values), rtol=1e-11)

    def step(p, r):
        p = inv(p + r) + cholesky(p @ p.T)
        return p, p[0, 0]

    rows, x = pt.dvector("rows"), A
    final, ys = scan(step, x + pt.eye(2), rows)
    g = jaxify([x, rows], [final.sum() + ys.sum(), *pytensor.grad(ys.sum(), [x, rows])])
    at = definite(2), np.linspace(0.0, 1.0, 4)
    assert written_out(g, *at)
    by_jax = jax.grad(jaxify([x, rows], ys.sum()), argnums=(0, 1))(*at)
    for ours, theirs in zip(g(*at)[1:], by_jax, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize(
    ("variable", "value"),
    [(pt.dmatrix("x"), definite(4)), (pt.zmatrix("x"), definite(2).astype(complex))],
    ids=["larger", "complex"],
)
def test_others_go_to_lapack(variable, value):
    f = jaxify([variable], inv(variable))
    assert not written_out(f, value)
    np.testing.assert_allclose(f(value), np.linalg.inv(value), rtol=1e-11)


def test_integers_are_floats_of_64_bits():
    x = pt.imatrix("x")
    value = np.array([[2, 1], [1, 3]], dtype="int32")
    for k in (2, 4):
        many = np.kron(np.eye(k // 2, dtype="int32"), value)
        np.testing.assert_allclose(jaxify([x], inv(x))(many), np.linalg.inv(many), rtol=1e-13)


def test_the_determinant_of_an_empty_matrix():
    m = pt.dmatrix("m")
    f = jaxify([m], pt.linalg.det(m), loops="xla")
    empty = np.zeros((0, 0))
    np.testing.assert_array_equal(f(empty), 1.0)
    assert jax.grad(f)(empty).shape == (0, 0)
    assert jax.hessian(f)(empty).shape == (0, 0, 0, 0)


def test_the_determinant_of_numbers_whose_sum_overflows():
    large = np.array([[1e308, 0.0], [1e308, 1e-10]])
    np.testing.assert_allclose(jaxify([A], det(A))(large), 1e298, rtol=1e-12)
