"""A matrix that is not finite, or is singular, makes its own row of a batch nan, and no other row."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor import linalg

from loopax import jaxify
from tests.support.both_backends import NATIVE
from tests.support.forms import in_jax, without_numba
from tests.support.marking import slow_where

M, V = pt.dmatrix("m"), pt.dvector("v")
GOOD = 2 * np.eye(3) + 0.1
FACTORED = {
    "eigh": lambda m, v: linalg.eigh(m)[0],
    "svd": lambda m, v: linalg.svd(m, compute_uv=False),
    "det": lambda m, v: linalg.det(m),
    "slogdet": lambda m, v: linalg.slogdet(m)[1],
    "inv": lambda m, v: linalg.inv(m),
    "pinv": lambda m, v: linalg.pinv(m),
    "cholesky": lambda m, v: linalg.cholesky(m),
    "solve": lambda m, v: linalg.solve(m, v, b_ndim=1),
    "solve, positive": lambda m, v: linalg.solve(m, v, assume_a="pos", b_ndim=1),
    "solve, symmetric": lambda m, v: linalg.solve(m, v, assume_a="sym", b_ndim=1),
    "solve by lu": lambda m, v: linalg.lu_solve(linalg.lu_factor(m), v, b_ndim=1),
    "lu": lambda m, v: linalg.lu(m)[2],
    "qr": lambda m, v: linalg.qr(m)[1],
    "expm": lambda m, v: linalg.expm(m),
}
RESULTS = {name: write(M, V) for name, write in FACTORED.items()}
OF_SINGULAR = ["inv", "cholesky", "solve", "solve, symmetric", "solve, positive", "solve by lu"]
QUICK = "eigh", "slogdet", "solve"


def bad_matrices(n):
    """Symmetric matrices that are not finite on the diagonal, in a corner, or everywhere."""
    matrices = []
    for bad in (np.nan, np.inf, -np.inf):
        for i, j in {(0, 0), (n // 2, n // 2), (n - 1, n - 1), (n - 1, 0)}:
            matrix = 4 * np.eye(n) + 0.1
            matrix[i, j] = matrix[j, i] = bad
            matrices.append(matrix)
        matrices.append(np.full((n, n), bad))
    return matrices


def singular_matrices(n):
    return [np.diag(np.where(np.arange(n) == k, 0.0, 2.0)) for k in (0, n - 1)]


@pytest.mark.sampled(1)
@in_jax
@pytest.mark.parametrize("name", slow_where(lambda name: name not in QUICK, RESULTS))
def test_one_row_of_a_batch(name, form):
    f = jax.jit(jax.vmap(jaxify([M, V], RESULTS[name], **form), in_axes=(0, None)))
    (expected, *_) = f(np.stack([GOOD, GOOD]), np.ones(3))
    for bad in bad_matrices(3):
        before, row, after = f(np.stack([GOOD, bad, GOOD]), np.ones(3))
        np.testing.assert_allclose([before, after], [expected, expected])
        assert np.isnan(row).all(), (bad, row)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 40])
@without_numba
@pytest.mark.parametrize("name", slow_where(lambda name: name not in QUICK, RESULTS))
def test_each_place_of_what_is_not_finite(name, form, n):
    """The entry may be any that LAPACK reads; a pivot that is infinite gives finite numbers."""
    f = jaxify([M, V], RESULTS[name], **form)
    assert np.isfinite(f(4 * np.eye(n) + 0.1, np.ones(n))).all()
    for bad in bad_matrices(n):
        assert np.isnan(f(bad, np.ones(n))).all(), (n, bad)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("name", slow_where(lambda name: name != "solve", OF_SINGULAR))
def test_a_singular_matrix(name, n):
    f = jaxify([M, V], RESULTS[name], loops="xla")
    for singular in singular_matrices(n):
        assert np.isnan(f(singular, np.ones(n))).all(), singular


@pytest.mark.parametrize("n", [2, 4, 5])
@without_numba
@pytest.mark.parametrize("name", slow_where(lambda name: name not in QUICK, FACTORED))
def test_in_a_step(name, form, n):
    """Native steps write small matrices out, and have loops for larger ones."""
    A = pt.tensor("a", shape=(None, n, n))
    out = pytensor.scan(FACTORED[name], A, non_sequences=V, return_updates=False)
    f = jaxify([A, V], out, **form)
    bad = bad_matrices(n)
    raises = name == "inv" and "backend" in form  # as PyTensor
    if name in OF_SINGULAR and not raises:
        bad += singular_matrices(n)
    matrices = [x for matrix in bad for x in (4 * np.eye(n) + 0.1, matrix)]
    results = np.asarray(f(np.stack(matrices), np.ones(n)))
    assert np.isfinite(results[::2]).all()
    assert np.isnan(results[1::2]).all()
    if raises:
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            f(np.stack(singular_matrices(n)), np.ones(n))


OF_ONE_TRIANGLE = {
    "eigh": lambda lower: linalg.eigh(M, lower=lower)[0],
    "eigvalsh": lambda lower: linalg.eigvalsh(M, None, lower=lower),
    "cholesky": lambda lower: linalg.cholesky(M, lower=lower),
    "solve, positive": lambda lower: linalg.solve(M, V, assume_a="pos", lower=lower, b_ndim=1),
    "solve, symmetric": lambda lower: linalg.solve(M, V, assume_a="sym", lower=lower, b_ndim=1),
    "solve_triangular": lambda lower: linalg.solve_triangular(M, V, lower=lower, b_ndim=1),
    "cho_solve": lambda lower: linalg.cho_solve((M, lower), V, b_ndim=1),
}


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("name", OF_ONE_TRIANGLE)
def test_the_other_triangle_is_not_read(name, lower):
    out = OF_ONE_TRIANGLE[name](lower)
    native = jaxify([M, V], out, backend=NATIVE)
    xla = jaxify([M, V], out, loops="xla")
    is_read = np.tri(3, dtype=bool) if lower else np.tri(3, dtype=bool).T
    good = GOOD + np.diag([0.0, 1.0, 2.0])
    for f in (native, xla):
        np.testing.assert_allclose(
            f(np.where(is_read, good, np.nan), np.ones(3)),
            f(np.where(is_read, good, 9.0), np.ones(3)),
            rtol=1e-12,
        )
        of_nan = f(np.where(np.eye(3) > 0, np.nan, good), np.ones(3))
        assert np.isnan(of_nan).all()


@pytest.mark.parametrize("right_side", [[1.0, np.inf, 0.0], [np.nan, 1.0, 2.0]])
@pytest.mark.parametrize("name", ["solve_triangular", "cho_solve"])
def test_a_right_hand_side_that_is_not_finite(name, right_side):
    out = OF_ONE_TRIANGLE[name](True)
    native, xla = (jaxify([M, V], out, **o) for o in ({"backend": NATIVE}, {"loops": "xla"}))
    np.testing.assert_array_equal(native(GOOD, right_side), xla(GOOD, right_side))
    assert not np.isfinite(native(GOOD, right_side)).all()
