"""LU of a matrix that is declared not to be square is refused, in every form, in steps and batches too."""

import numpy as np
import pytensor.tensor as pt
import pytest
import scipy.linalg

import loopax
from loopax import jaxify
from tests.support.both_backends import NATIVE

M = pt.dmatrix("m")
TALL = np.random.default_rng(0).normal(size=(4, 2))
FACTORS = {
    "lu": pt.linalg.lu,
    "rows exchanged": lambda a: pt.linalg.lu(a, permute_l=True),
    "indices": lambda a: pt.linalg.lu(a, p_indices=True),
    "factor": pt.linalg.lu_factor,
}


@pytest.mark.both_stacks
@pytest.mark.parametrize(
    "form", [{"backend": NATIVE}, {"loops": "native"}, {"loops": "xla"}], ids=str
)
@pytest.mark.parametrize("name", FACTORS)
def test_it_is_refused(name, form):
    for shape in (4, 2), (2, 4), (3, 4, 2):
        a = pt.tensor("declared", dtype="float64", shape=shape)
        with pytest.raises(ValueError, match=r"'declared'.*not square.*max\(m, n\)"):
            jaxify([a], FACTORS[name](a)[0], **form)

        def step(carry, _, a=a):
            return carry + FACTORS[name](a)[0].sum(), None

        with pytest.raises(ValueError, match="not square"):
            jaxify([a], loopax.scan(step, 1.0, None, length=2)[0], **form)


@pytest.mark.parametrize("value", [TALL, TALL.T.copy()], ids=["tall", "wide"])
def test_what_the_message_says_to_write(value):
    (m, n), k = M.shape, pt.maximum(*M.shape)
    p, lower, upper = pt.linalg.lu(pt.zeros((k, k))[:m, :n].set(M))
    least = pt.minimum(m, n)
    f = jaxify([M], [p[:m, :m], lower[:m, :least], upper[:least, :n]], backend=NATIVE)
    for actual, expected in zip(f(value), scipy.linalg.lu(value), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-14)
