"""Sums and products whose terms may be taken in any order: their values, and those of filled arrays."""

import numpy as np
import pytensor.tensor as pt

from tests.numba_backend.agreement import assert_agrees

RNG = np.random.default_rng(3)


def test_values():
    """Of all lengths around the width of vector code; nan and infinities as in any other order."""
    x, y, s = pt.dvector("x"), pt.fvector("y"), pt.dscalar("s")
    outputs = [
        (x**2).sum(),
        (1 + x / 100).prod(),
        pt.dot(x, x[::-1]),
        y.sum(),
        y.sum(dtype="float64", acc_dtype="float64"),
        pt.second(x, s).sum(),  # of no elements it is 0, also where s is inf
        pt.second(x.dimshuffle(0, "x"), pt.stack([s, 2 * s])).sum(axis=0),
        pt.second(x, 3).sum(),
    ]
    cases = [
        (RNG.normal(size=n), RNG.normal(size=n).astype("f4"), s)
        for n, s in ((0, np.inf), (1, 0.3), (7, -np.inf), (33, np.nan), (1000, 0.1))
    ]
    odd = RNG.normal(size=20)
    odd[[3, 11]] = np.inf, -0.0
    cases += [(odd, odd.astype("f4"), 1.0), (np.where(odd > 9, np.nan, odd), odd.astype("f4"), 1.0)]
    assert_agrees([x, y, s], outputs, *cases, rtol=2e-6)
    assert_agrees([x, s], [outputs[0], outputs[2], outputs[5]], *[(c[0], c[2]) for c in cases])
