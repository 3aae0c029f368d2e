"""Shapes of linear algebra and of vectors drawn: every mode, tall and wide, and what does not fit."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg import qr

from loopax import jaxify
from tests.compare import FAST_COMPILE

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


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_mean_of_another_length_than_the_covariance(backend):
    mean, cov = pt.dvector("mean"), pt.dmatrix("cov")
    generator = pytensor.shared(np.random.default_rng(0))
    _, draw = generator.multivariate_normal(mean, cov)
    f = jaxify([mean, cov], draw, backend=backend)
    with pytest.raises(ValueError, match="a mean of length 1|lengths of two axes differ"):
        f(np.ones(1), np.eye(3))
