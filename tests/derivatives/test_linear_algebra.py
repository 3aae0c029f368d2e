"""Gradients through linear algebra, by every route: PyTensor's transpiled, JAX's, and ours."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg.summary import SLogDet

import loopax
from loopax import jaxify
from loopax.ir.derivatives.traversal import pull_back, push_forward
from tests.every_op.record import PLAIN
from tests.support.both_backends import NATIVE

M = pt.dmatrix("m")
ROUTES = {
    "pytensor.grad in JAX": lambda y: jaxify([M], pytensor.grad(y, M), loops="xla"),
    "pytensor.grad in Numba": lambda y: jaxify([M], pytensor.grad(y, M), backend="numba"),
    "jax.grad": lambda y: jax.grad(jaxify([M], y, loops="xla")),
    "jax.grad of native code": lambda y: jax.grad(jaxify([M], y, loops="native")),
    "loopax.grad in Numba": lambda y: loopax.grad(jaxify([M], y, backend="numba")),
}


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_eigenvalues_that_are_equal(route):
    """Nobody reads the eigenvectors, of which there are many."""
    total = (pt.linalg.eigh(M)[0] ** 2).sum()
    slope = ROUTES[route](total)(np.diag([1.0, 2.0, 2.0]))
    np.testing.assert_allclose(slope, np.diag([2.0, 4.0, 4.0]), atol=1e-12)


@pytest.mark.parametrize("n_matrices", [1, 2])
def test_second_derivatives_of_eigenvectors(n_matrices):
    """Nothing is divided by 0, as nothing is moved by rewrites here."""
    matrices = [M, pt.dmatrix("b")][:n_matrices]
    w, v = pt.linalg.eigh(*matrices)
    y = (np.arange(9.0).reshape(3, 3) * v**2).sum() + (w**3).sum()
    a = np.array([[2.0, 0.3, -0.4], [0.5, 1.0, 0.8], [0.2, -0.7, 3.0]])
    values = [a, a @ a.T + np.eye(3)][:n_matrices]
    along = [np.sin(1.0 + np.arange(9.0)).reshape(3, 3), np.cos(np.arange(9.0)).reshape(3, 3)]
    along = along[:n_matrices]
    gradients = pull_back(matrices, [y], [pt.ones(())])
    slope = sum((g * d).sum() for g, d in zip(gradients, along, strict=True))
    backward = pull_back(matrices, [slope], [pt.ones(())])
    forward = push_forward(matrices, gradients, list(map(pt.constant, along)))
    run = pytensor.function(matrices, [y, slope, *gradients, *backward, *forward], mode=PLAIN)
    step = 1e-6
    up, down = (
        run(*(x + sign * step * d for x, d in zip(values, along, strict=True))) for sign in (1, -1)
    )
    central = [(u - d) / (2 * step) for u, d in zip(up, down, strict=True)]
    _, at, *rest = run(*values)
    np.testing.assert_allclose(at, central[0], rtol=1e-6)
    n = n_matrices
    for products in (rest[n : 2 * n], rest[2 * n :]):
        np.testing.assert_allclose(products, central[2 : 2 + n], rtol=1e-5, atol=1e-6)


def test_a_gradient_of_equal_eigenvalues_alone():
    (gradient,) = pull_back([M], [(pt.linalg.eigh(M)[0] ** 2).sum()], [pt.ones(())])
    (slope,) = pytensor.function([M], [gradient], mode=PLAIN)(np.diag([1.0, 2.0, 2.0]))
    np.testing.assert_allclose(slope, np.diag([2.0, 4.0, 4.0]), atol=1e-12)


@pytest.mark.parametrize(
    "options", [{"backend": NATIVE}, pytest.param({"loops": "native"}, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("shape", [(3, 3), (3, 2), (2, 3)])
def test_full_matrices_of_singular_vectors(shape, options):
    """PyTensor's default: the gradient is the thin one's, and NaN of columns that nothing determines."""
    weights = pt.constant(np.cos(np.arange(9.0)).reshape(3, 3))

    def totals(full):
        u, s, vt = pt.linalg.svd(M, full_matrices=full)
        n = s.shape[0]
        of_u = (pt.sqr(u[:, :n]) * weights[: u.shape[0], :n]).sum()
        of_v = (pt.sqr(vt[:n]) * weights[:n, : vt.shape[1]]).sum()
        return [s.prod(), of_u + of_v + s.sum()]

    a = np.sin(1.0 + np.arange(np.prod(shape))).reshape(shape)
    for full, thin in zip(totals(True), totals(False), strict=True):
        actual, expected = (loopax.grad(jaxify([M], y, **options))(a) for y in (full, thin))
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)
    u = pt.linalg.svd(M)[0]
    slope = loopax.grad(jaxify([M], (u**3).sum(), **options))(a)
    assert np.isnan(slope).all() == (shape == (3, 2))
    assert np.isfinite(slope).all() == (shape != (3, 2))


def test_second_derivatives_of_singular_values_of_a_singular_matrix():
    """The sum of their fourth powers is a polynomial in the elements, without another form at 0."""
    powers = (pt.linalg.svd(M, compute_uv=False) ** 4).sum()
    polynomial = pt.sqr(M @ M.T).sum()
    along = np.sin(1.0 + np.arange(9.0)).reshape(3, 3)
    products = []
    for y in (powers, polynomial):
        (gradient,) = pull_back([M], [y], [pt.ones(())])
        products += pull_back([M], [(gradient * along).sum()], [pt.ones(())])
    a = np.diag([2.0, 1.0, 0.0])
    f = pytensor.function([M], products, mode=PLAIN)
    actual, expected = f(a)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    with np.errstate(all="ignore"):  # equal ones: PyTensor has finite numbers, from gaps of 1e-8
        actual, _ = f(np.eye(3))
    assert not np.isfinite(actual).any()


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", ["cho_solve", "solve_triangular", "unit diagonal"])
def test_a_triangle_that_is_not_read_may_be_nan(name, lower):
    b = np.array([1.0, -0.5, 2.0])
    solve = {
        "cho_solve": lambda m: pt.linalg.cho_solve((m, lower), b),
        "solve_triangular": lambda m: pt.linalg.solve_triangular(m, b, lower=lower),
        "unit diagonal": lambda m: pt.linalg.solve_triangular(
            m, b, lower=lower, unit_diagonal=True
        ),
    }[name]
    is_read = np.tri(3, k=-1 if name == "unit diagonal" else 0, dtype=bool)
    is_read = is_read if lower else is_read.T
    at = np.where(is_read, [[2.0, 0.3, -0.4], [0.5, 1.0, 0.8], [0.2, -0.7, 3.0]], np.nan)
    y = (solve(M) ** 2).sum()
    (gradient,) = pull_back([M], [y], [pt.ones(())])
    run = pytensor.function([M], [y, gradient], mode=PLAIN)
    _, slope = run(at)
    step = 1e-6
    moves = [np.where((np.arange(9).reshape(3, 3) == k) & is_read, step, 0) for k in range(9)]
    differences = [(run(at + d)[0] - run(at - d)[0]) / (2 * step) for d in moves]
    np.testing.assert_allclose(np.ravel(slope), differences, rtol=1e-6, atol=1e-8)


def test_a_log_determinant_that_pytensor_has_written():
    y = SLogDet()(M)[1]
    at = np.array([[2.0, 0.3, -0.4], [0.5, 1.0, 0.8], [0.2, -0.7, 3.0]])
    (gradient,) = pull_back([M], [y], [pt.ones(())])
    (product,) = push_forward([M], [gradient], [pt.constant(np.eye(3))])
    slope, second = pytensor.function([M], [gradient, product], mode=PLAIN)(at)
    inverse = np.linalg.inv(at).T
    np.testing.assert_allclose(slope, inverse)
    np.testing.assert_allclose(second, -inverse @ inverse)


def _iterated(norm):
    def step(u, m):
        w = m @ (m.T @ u)
        return w / norm(w)

    return pytensor.scan(
        step, outputs_info=pt.ones(4), non_sequences=[M], n_steps=3, return_updates=False
    )[-1].sum()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "norm", [pt.linalg.norm, lambda w: pt.sqrt((w**2).sum())], ids=["norm", "written out"]
)
def test_power_iteration(norm, route):
    """A norm is that of a column in the step, whose second length is 1 by how it is made."""
    at, step = np.random.default_rng(0).normal(size=(4, 3)), 1e-6
    total = _iterated(norm)
    slope = ROUTES[route](total)(at)
    f = jaxify([M], total, backend="numba")
    moved = step * np.eye(at.size).reshape(at.size, *at.shape)
    differences = [(f(at + d) - f(at - d)) / (2 * step) for d in moved]
    np.testing.assert_allclose(np.ravel(slope), differences, atol=1e-8)
