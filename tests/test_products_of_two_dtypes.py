"""Products of arrays of two dtypes in the precision of the result: JAX has float32 for an int64."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE

PRODUCTS = {
    "matrix and vector": lambda a, b: a @ b[0],
    "vector and matrix": lambda a, b: a[0] @ b.T,
    "vectors": lambda a, b: pt.dot(a[0], b[0]),
    "matrices": lambda a, b: a @ b.T,
    "batches": lambda a, b: pt.stack([a, 2 * a]) @ b.T,
    "tensordot": lambda a, b: pt.tensordot(a, b, axes=2),
    "outer": lambda a, b: pt.outer(a[0], b[0]),
    "convolution": lambda a, b: pt.signal.convolve1d(a[0], b[1]),
}
# The double of a bool is an int8, and PyTensor refuses a convolution of bools.
CASES = [(name, ("bool", "bool")) for name in PRODUCTS if name not in ("batches", "convolution")]
CASES += [
    (name, pair) for name in PRODUCTS for pair in [("float32", "int64"), ("int32", "float32")]
]


@pytest.mark.parametrize("options", [{"backend": NATIVE}, {"loops": "xla"}], ids=["native", "xla"])
@pytest.mark.parametrize("shape", [(None, None), (2, 3)], ids=["unknown", "known"])
@pytest.mark.parametrize(("name", "dtypes"), CASES)
def test_a_product(name, dtypes, shape, options):
    a, b = (pt.tensor(dtype=dtype, shape=shape) for dtype in dtypes)
    out = PRODUCTS[name](a, b)
    values = [
        (np.array([[0.86, -1.35, 3.09], [0.0, 7.15, -2.01]]) * (1 + k)).astype(dtype)
        for k, dtype in enumerate(dtypes)
    ]
    expected = pytensor.function([a, b], out, mode=FAST_COMPILE)(*values)
    found = np.asarray(jaxify([a, b], out, **options)(*values))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-13 if found.dtype == "float64" else 1e-6)
