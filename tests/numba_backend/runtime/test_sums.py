"""Sums, products and extremes in any order of their terms: their values, and those of filled arrays."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph

from loopax.numba_backend.callable.program import compile_program
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


def test_extremes():
    """Of all lengths around the width of vector code; nan wherever it is."""
    x, y, m = pt.dvector("x"), pt.fvector("y"), pt.dmatrix("m")
    outputs = [x.max(), x.min(), y.max(), y.min(), m.max(axis=0), m.min(axis=1), pt.logsumexp(x)]
    matrix = RNG.normal(size=(3, 5))
    cases = [
        (RNG.normal(size=n), RNG.normal(size=n).astype("f4"), matrix) for n in (1, 2, 7, 33, 1000)
    ]
    odd = RNG.normal(size=20)
    odd[[3, 11]] = np.inf, -np.inf
    cases.append((odd, odd.astype("f4"), np.where(matrix > 1, np.nan, matrix)))
    for k in (0, 13, 19):
        nan = odd.copy()
        nan[k] = np.nan
        cases.append((nan, nan.astype("f4"), np.full((3, 5), -np.inf)))
    assert_agrees([x, y, m], outputs, *cases, rtol=2e-6)


def test_the_largest_is_found_by_vector_code():
    x = pt.dvector("x")
    program = compile_program(FunctionGraph([x], [x.max()]))
    assert program(np.arange(9.0)) == [8.0]
    (code,) = program.variants.find(()).inspect_llvm().values()
    assert "llvm.maximum.v" in code or "vector.reduce.fmaximum" in code
