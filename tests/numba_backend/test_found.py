"""Programs that went wrong once."""

import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, cond, grad, jaxify, scan
from tests.numba_backend.interpreted import interpreted, lowered


def test_small_lengths_that_do_not_fit_together_raise_only_where_they_meet():
    n, m = pt.lscalar("n"), pt.dmatrix("m")
    (left, right), _ = scan(lambda c, _: ((c[1].T, c[0] @ c[1]), None), (m, m * 1), length=n)
    f = jaxify([m, n], [left, right], backend="numba")
    wide = np.ones((2, 3))  # a variant for these lengths would have a product that has none
    for actual in f(wide, 0):
        np.testing.assert_array_equal(actual, wide)
    with pytest.raises(ValueError, match="mismatch"):
        f(wide, 1)


def test_lengths_in_a_branch_or_an_inner_loop_are_asked_about_only_where_it_runs():
    x, y = pt.dvectors("x", "y")
    n, m = pt.lscalars("n", "m")
    taken = pt.dscalar("taken")

    def step(c, _):
        inner, _ = scan(lambda d, _: (d + pt.dot(x * d, y), None), c, length=m)
        return c + cond(taken > 0, lambda: pt.dot(x * c, y), lambda: x.sum()) + inner, None

    total, _ = scan(step, 1.0, length=n)
    f = jaxify([x, y, n, m, taken], total, backend="numba")
    here, there = np.ones(2), np.ones(3)
    assert f(here, there, 2, 0, 0.0) == 10  # 2 c + 2, twice, from 1
    assert f(here, here, 1, 1, 1.0) == 6  # 1 + 2 + (1 + 2 * 1)
    for steps, flag in ((0, 1.0), (1, 0.0)):
        with pytest.raises(ValueError, match="mismatch"):
            f(here, there, 1, steps, flag)
    assert f(here, there, 0, 1, 1.0) == 1


def test_a_step_of_a_slice_as_large_as_a_number_can_be():
    x, k = pt.dvector("x"), pt.lscalar("k")
    f = jaxify([x, k], [x[::k], x[1::k], x[4::k]], backend="numba")
    for step in (2**63 - 1, -(2**63) + 1, 2, -2):
        for actual, start in zip(f(np.arange(3.0), step), (None, 1, 4), strict=True):
            np.testing.assert_array_equal(actual, np.arange(3.0)[start::step])


def test_a_field_of_packed_records_is_an_array_and_one_of_objects_is_none():
    x = pt.dvector("x")
    f = jaxify([x], x * 2, backend="numba")
    records = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i1"), ("b", "f8")])
    assert not records["b"].flags.aligned
    np.testing.assert_array_equal(f(records["b"]), [4.0, 8.0])
    with pytest.raises(LoopTypeError, match="argument 0"):
        f(np.array([1.0, 2.0], dtype=object))


@pytest.mark.slow
def test_a_chain_of_elementwise_ops_as_long_as_one_likes_is_written():
    x, u = pt.dvector("x"), pt.dscalar("u")
    z, w = x, u
    for _ in range(300):
        z, w = 0.5 * z + 1, 0.5 * w + 1
    actual = interpreted(lowered([x, u], [z[::-1], w]))(np.zeros(3), 0.0)
    np.testing.assert_allclose(actual[0], 2.0)
    np.testing.assert_allclose(actual[1], 2.0)


def test_complex_constants_that_are_not_finite_or_have_a_zero_with_a_sign():
    x = pt.zscalar("x")
    constants = [complex(np.nan, -0.0), complex(-np.inf, 2.0), complex(-0.0, 1.0), complex(1, -2)]
    kinds = [np.complex128, np.complex64]
    outputs = [x + pt.constant(kind(c)) for c in constants for kind in kinds]
    expected = [complex(-0.0, -0.0) + kind(c) for c in constants for kind in kinds]
    actual = jaxify([x], outputs, backend="numba")(complex(-0.0, -0.0))
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit([a.real, a.imag]), np.signbit([b.real, b.imag]))


def test_empty_traces_of_several_ranks_are_arrays_of_their_own():
    a, p, b = pt.dscalar("a"), pt.dscalar("p"), pt.dvector("b")
    step = lambda z, _: ((z[0] * p, z[1] * p), z[0] * z[1])  # noqa: E731
    # One step in blocks of two: there is no block, and all that the backward loop reads of them is empty.
    _, ys = scan(step, (a, b), length=1, checkpoint=2)
    f = grad(jaxify([p, a, b], (ys**2).sum(), backend="numba"), argnums=(0, 1, 2))
    by_p, by_a, by_b = f(0.7, 0.3, np.ones(2))
    assert by_p == 0
    np.testing.assert_allclose(by_a, 2 * 0.3 * 2)
    np.testing.assert_allclose(by_b, 2 * 0.3**2 * np.ones(2))


def test_a_split_into_many_parts_is_written_out():
    """By a constant that is too long for locals, as all are in a long program."""
    x = pt.dvector("x")
    parts = pt.split(x, splits_size=[1, 2] * 40)
    f = jaxify([x], [parts[1], parts[-1]], backend="numba")
    assert "op0" not in f.source
    actual = interpreted(lowered([x], [parts[1], parts[-1]]))(np.arange(120.0))
    np.testing.assert_array_equal(actual[0], [1, 2])
    np.testing.assert_array_equal(actual[1], [118, 119])
