"""Convolutions of two vectors in native code, of every dtype, with lengths that are known or not."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.signal import convolve1d
from pytensor.tensor.signal.conv import _blockwise_convolve_1d

from loopax import jaxify

DTYPES = [
    ("float64", "float64"),
    ("float32", "float32"),
    ("float32", "float64"),
    ("int64", "int8"),
    ("int8", "int8"),
    ("bool", "int64"),
    ("complex128", "float64"),
]
LENGTHS = [(1, 1), (1, 5), (3, 4), (4, 3), (20, 3), (30, 30), (2, 50)]


def numbers(rng, n, dtype):
    x = 9 * rng.normal(size=n)
    return (x + 1j * x[::-1] if dtype.startswith("complex") else x).astype(dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("are_declared", [True, False])
@pytest.mark.parametrize("dtypes", DTYPES, ids="-".join)
def test_convolutions(dtypes, are_declared):
    rng = np.random.default_rng(0)
    for lengths in LENGTHS:
        values = [numbers(rng, n, dtype) for n, dtype in zip(lengths, dtypes, strict=True)]
        inputs = [
            pt.tensor(dtype=x.dtype, shape=x.shape if are_declared else (None,)) for x in values
        ]
        outputs = [convolve1d(*inputs, mode=mode) for mode in ("full", "valid")]
        for actual, mode in zip(
            jaxify(inputs, outputs, backend="numba")(*values), ("full", "valid"), strict=True
        ):
            expected = np.convolve(*values, mode)
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_a_mode_that_is_an_input(n):
    x, y, is_full = pt.vector(shape=(5,)), pt.dvector(), pt.bscalar()
    f = jaxify([x, y, is_full], _blockwise_convolve_1d(x, y, is_full > 0), backend="numba")
    values = np.arange(5.0), 1 + np.arange(float(n))
    for flag, mode in ((1, "full"), (0, "valid")):
        np.testing.assert_allclose(f(*values, np.int8(flag)), np.convolve(*values, mode))


@pytest.mark.parametrize("mode", ["full", "valid"])
@pytest.mark.parametrize("are_declared", [True, False])
@pytest.mark.parametrize("lengths", [(0, 2), (2, 0), (0, 0)])
def test_an_empty_vector_is_refused(lengths, are_declared, mode):
    x, y = (pt.vector(shape=(n if are_declared else None,)) for n in lengths)
    f = jaxify([x, y], convolve1d(x, y, mode=mode), backend="numba")
    with pytest.raises(ValueError, match=r"zero-size array(.|\n)*Convolve1d"):
        f(*map(np.ones, lengths))
