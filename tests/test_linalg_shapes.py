"""Shapes of linear algebra and of vectors drawn: every mode, tall and wide, and what does not fit."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.linalg import lu, qr

from loopax import jaxify
from tests.support.compare import FAST_COMPILE

UNREWRITTEN = Mode(linker="py", optimizer=None)
rng = np.random.default_rng(0)


QR_MODES = [(m, p) for m in ("full", "economic", "r", "raw") for p in (False, True)]


@pytest.mark.parametrize("backend", ["jax", pytest.param("numba", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
@pytest.mark.filterwarnings("ignore:.*QR.*:UserWarning")
def test_qr_of_tall_and_wide_matrices(backend, shape):
    a = pt.dmatrix("a")
    modes = QR_MODES if backend == "jax" else [("r", False), ("economic", False)]
    outputs = [qr(a, mode=mode, pivoting=pivoting) for mode, pivoting in modes]
    outputs = [v for o in outputs for v in (o if isinstance(o, list | tuple) else [o])]
    value = rng.normal(size=shape)
    expected = pytensor.function([a], outputs, mode=FAST_COMPILE)(value)
    for k, (f, e) in enumerate(
        zip(jaxify([a], outputs, backend=backend)(value), expected, strict=True)
    ):
        np.testing.assert_allclose(
            np.asarray(f), e, rtol=1e-9, atol=1e-12, strict=True, err_msg=f"{k}: {outputs[k].owner}"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "backend"), [((2, 1), "numba"), ((3, 2), "numba"), ((2, 1), "jax"), ((3, 2), "jax")]
)
@pytest.mark.filterwarnings("ignore:.*QR.*:UserWarning")
def test_the_triangle_of_a_tall_matrix_of_declared_shape(backend, shape):
    """As square-root filters take it; PyTensor's Numba conversion returns fewer rows than declared."""
    a = pt.tensor("a", dtype="float64", shape=shape)
    value = rng.normal(size=shape)
    expected = pytensor.function([a], qr(a, mode="r"), mode=FAST_COMPILE)(value)
    actual = jaxify([a], qr(a, mode="r"), backend=backend)(value)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-12, atol=1e-12, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_mean_of_another_length_than_the_covariance(backend):
    mean, cov = pt.dvector("mean"), pt.dmatrix("cov")
    generator = pytensor.shared(np.random.default_rng(0))
    after, draw = generator.multivariate_normal(mean, cov)
    f = jaxify([mean, cov], [draw, after], backend=backend)
    with pytest.raises(ValueError, match="a mean of length 1|lengths of two axes differ"):
        f(np.ones(1), np.eye(3))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "numba"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_lu_of_tall_and_wide_matrices(backend, batch):
    """PyTensor's JAX conversion refuses p_indices; its Numba one wrote outside of what is not square."""
    a = pt.tensor("a", dtype="float64", shape=(None,) * (len(batch) + 2))
    modes = [{}, {"permute_l": True}, {"p_indices": True}]
    outputs = [v for mode in modes for v in lu(a, **mode)]
    f = jaxify([a], outputs, backend=backend)
    compiled = pytensor.function([a], outputs, mode=UNREWRITTEN)
    for shape in [(4, 3), (3, 4), (3, 3), (1, 1)]:
        value = rng.normal(size=(*batch, *shape))
        for x, e, v in zip(f(value), compiled(value), outputs, strict=True):
            e = np.asarray(e, v.type.dtype)  # SciPy's order of one row is an int64
            np.testing.assert_allclose(np.asarray(x), e, rtol=1e-9, atol=1e-12, strict=True)


@pytest.mark.parametrize("form", [{"backend": "numba"}, {"loops": "xla"}], ids=["numba", "xla"])
def test_singular_vectors_have_the_signs_of_lapack(form):
    """PyTensor's NUMBA mode decomposes the transpose (3.3.8), whose vectors have other signs."""
    a = pt.dmatrix("a")
    f = jaxify([a], pt.linalg.svd(a, full_matrices=False), **form)
    for shape in [(3, 3), (5, 3), (3, 5), (1, 1)] * 5:
        value = rng.normal(size=shape)
        for x, expected in zip(f(value), np.linalg.svd(value, full_matrices=False), strict=True):
            np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-12)
