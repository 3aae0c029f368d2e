"""A matrix that is not finite makes its own row of a batch nan, and leaves the others as they are.

With infinite elements a result may also be the limit, as NumPy has it: 1 / inf is 0.
"""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor import linalg

from loopax import jaxify
from tests.support.both_backends import NATIVE
from tests.support.marking import slow_where

M, V = pt.dmatrix("m"), pt.dvector("v")
GOOD = 2 * np.eye(3) + 0.1
RESULTS = {
    "eigh": linalg.eigh(M)[0],
    "svd": linalg.svd(M, compute_uv=False),
    "det": linalg.det(M),
    "slogdet": linalg.slogdet(M)[1],
    "inv": linalg.inv(M),
    "pinv": linalg.pinv(M),
    "cholesky": linalg.cholesky(M),
    "solve": linalg.solve(M, V, b_ndim=1),
    "solve, positive": linalg.solve(M, V, assume_a="pos", b_ndim=1),
    "lu": linalg.lu(M)[1],
    "cho_solve": linalg.cho_solve((M, True), V, b_ndim=1),
}
FORMS = {"native": {"loops": "native"}, "xla": {"loops": "xla"}}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", slow_where(lambda name: name not in ("eigh", "slogdet"), RESULTS))
def test_one_row_of_a_batch(name, form):
    f = jax.jit(jax.vmap(jaxify([M, V], RESULTS[name], **FORMS[form]), in_axes=(0, None)))
    (expected, limit, _) = f(
        np.stack([GOOD, np.where(np.eye(3) > 0, 1e300, GOOD), GOOD]), np.ones(3)
    )
    for bad in (np.nan, np.inf):
        matrices = np.stack([GOOD, np.where(np.eye(3) > 0, bad, GOOD), GOOD])
        before, row, after = f(matrices, np.ones(3))
        np.testing.assert_allclose([before, after], [expected, expected])
        is_limit = not np.isfinite(row).all() or np.allclose(row, limit)
        assert np.isnan(row).any() or (bad == np.inf and is_limit), (row, limit)


@pytest.mark.parametrize("name", ["eigh", "svd", "slogdet", "det"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_native_code(name, bad):
    """LAPACK leaves what it returns of nan unwritten, or raises."""
    actual = jaxify([M], RESULTS[name], backend=NATIVE)(np.full((3, 3), bad))
    assert np.isnan(actual).all()


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
        assert (np.isnan(of_nan) | (~is_read if of_nan.ndim == 2 else False)).all()


@pytest.mark.parametrize("right_side", [[1.0, np.inf, 0.0], [np.nan, 1.0, 2.0]])
@pytest.mark.parametrize("name", ["solve_triangular", "cho_solve"])
def test_a_right_hand_side_that_is_not_finite(name, right_side):
    out = OF_ONE_TRIANGLE[name](True)
    native, xla = (jaxify([M, V], out, **o) for o in ({"backend": NATIVE}, {"loops": "xla"}))
    np.testing.assert_array_equal(native(GOOD, right_side), xla(GOOD, right_side))
    assert not np.isfinite(native(GOOD, right_side)).all()
