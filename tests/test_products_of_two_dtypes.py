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
PAIRS = {
    ("bool", "bool"): PRODUCTS.keys() - {"batches", "convolution"},
    ("float32", "int64"): PRODUCTS.keys(),
    ("int32", "float32"): PRODUCTS.keys(),
}


@pytest.mark.parametrize("options", [{"backend": NATIVE}, {"loops": "xla"}], ids=["native", "xla"])
@pytest.mark.parametrize("shape", [(None, None), (2, 3)], ids=["unknown", "known"])
@pytest.mark.parametrize("dtypes", PAIRS, ids=" and ".join)
def test_all_products_in_one_program(dtypes, shape, options):
    a, b = (pt.tensor(dtype=dtype, shape=shape) for dtype in dtypes)
    outputs = {name: PRODUCTS[name](a, b) for name in sorted(PAIRS[dtypes])}
    values = [
        (np.array([[0.86, -1.35, 3.09], [0.0, 7.15, -2.01]]) * (1 + k)).astype(dtype)
        for k, dtype in enumerate(dtypes)
    ]
    run = pytensor.function([a, b], [*outputs.values()], mode=FAST_COMPILE)
    results = jaxify([a, b], outputs, **options)(*values)
    for name, expected in zip(outputs, run(*values), strict=True):
        result = np.asarray(results[name])
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape), name
        rtol = 1e-13 if result.dtype == "float64" else 1e-6
        np.testing.assert_allclose(result, expected, rtol=rtol, err_msg=name)
