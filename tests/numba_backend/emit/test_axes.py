"""Loops over arrays of several axes go through memory in its order: down the rows, or in one line."""

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from tests.numba_backend.agreement import assert_agrees
from tests.numba_backend.interpreted import lowered

RNG = np.random.default_rng(5)
M, T = pt.dmatrix("m"), pt.dtensor3("t")


def source(inputs, *outputs):
    from loopax.numba_backend.callable.program import compile_program

    return compile_program(lowered(inputs, list(outputs))).source


@pytest.mark.slow
def test_reductions_of_leading_axes():
    """No rows, one, and more; of every kind and type, what is read of them once or twice."""
    b, i, f = M > 0, (3 * M).astype("int8"), M.astype("float32")
    outputs = [M.sum(axis=0), pt.exp(M).sum(axis=0) * 2, M.mean(axis=0), M.var(axis=0)]
    outputs += [M.prod(axis=0), b.all(axis=0), b.any(axis=0), b.sum(axis=0), i.sum(axis=0)]
    outputs += [f.sum(axis=0), T.sum(axis=0), T.sum(axis=1), T.sum(axis=(0, 1)), T.sum(axis=(0, 2))]
    outputs += [M.sum(axis=0) + M.sum(axis=0)[::-1]]
    cases = [
        (RNG.normal(size=s), RNG.normal(size=t))
        for s, t in (((7, 40), (3, 5, 40)), ((1, 9), (1, 2, 3)), ((0, 70), (0, 4, 70)))
    ]
    assert_agrees([M, T], outputs, *cases, rtol=2e-6)
    extremes = [M.max(axis=0), M.min(axis=0), T.max(axis=(0, 1))]
    cases[0][0][2, 3] = np.nan
    assert_agrees([M, T], extremes, *cases[:2])


def test_one_sum_for_each_column():
    """The inner loop is over what lies side by side."""
    lines = source([M], pt.exp(M).sum(axis=0)).splitlines()
    lines = [line for line in lines if "safepoint(" not in line]
    k = next(k for k, line in enumerate(lines) if "exp(" in line)
    assert "range(n1)" in lines[k - 2] and "range(n0)" in lines[k - 3]
    few = pt.tensor("few", shape=(3, None), dtype="float64")
    assert "sums0" not in source([few], few.sum(axis=0))


def test_rows_of_a_few_elements_are_gone_through_in_one_line():
    m = pt.tensor("m", shape=(None, 12), dtype="float64")
    k, flags = np.arange(12.0), RNG.normal(size=(30, 12)) > 0
    y = pt.exp(m) + 1
    again = pt.switch(flags, y, m) / y
    cases = [(RNG.normal(size=(n, 12)),) for n in (30,)]
    assert_agrees([m], [again, again.sum(), y], *cases)
    text = source([m], again, again.sum(), y)
    assert text.count("in_line(") > 4 and not any(
        "i1 in range(12)" in line for line in text.splitlines()
    )
    # What is stretched has an index for each axis.
    assert_agrees([m], [m * k + y, (m * k).sum()], *cases)
    assert_agrees([m], [pt.exp(m.T) + m.T, pt.exp(m[::2]).sum()], *cases)


def test_a_state_is_another_array_behind_a_step():
    m = pt.tensor("m", shape=(20, 6), dtype="float64")

    def step(s, i):
        y = pt.tanh(s) + i
        return y * 0.5, (y**2).sum() + s[0, 0]

    s, sums = loopax.scan(step, m * 2, pt.arange(3))
    assert_agrees([m], [s + pt.tanh(m * 2), sums, s], (RNG.normal(size=(20, 6)),))


def test_compiled():
    """Constants, arguments of several types and views, by Numba itself."""
    m = pt.tensor("m", shape=(None, 5), dtype="float64")
    c, flags = RNG.normal(size=(40, 5)), RNG.normal(size=(40, 5)) > 0
    y = pt.switch(flags, m * c, m.astype("float32").astype("float64"))
    outputs = [y.sum(), y.sum(axis=0), (y > 0).any(axis=0), pt.exp(y) * y]
    at = RNG.normal(size=(40, 5))
    actual = jaxify([m], outputs, backend="numba")(np.asfortranarray(at))
    expected = np.where(flags, at * c, at.astype("f4"))
    np.testing.assert_allclose(actual[0], expected.sum())
    np.testing.assert_allclose(actual[1], expected.sum(axis=0))
    np.testing.assert_array_equal(actual[2], (expected > 0).any(axis=0))
    np.testing.assert_allclose(actual[3], np.exp(expected) * expected)
