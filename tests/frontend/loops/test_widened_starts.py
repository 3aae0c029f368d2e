"""Loops that go on in more digits than they started with: said once, with what to write."""

import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import cond, fori_loop, jaxify, lag, reduce, scan, while_loop

x = pt.dvector("x")
f32 = pt.fscalar("f32")
ROUNDED = pt.set_subtensor(pt.full((3,), -np.inf)[0], x[0])

WIDENED = {
    "written into": lambda: reduce(lambda c, r: pt.logaddexp(c, r), ROUNDED, x),
    "an input": lambda: reduce(lambda c, r: c + r, f32, x),
    "shared": lambda: reduce(lambda c, r: c + r, pytensor.shared(np.float32(0.5)), x),
    "to complex": lambda: reduce(lambda c, r: c + pt.zscalar(), f32, x),
    "halves": lambda: reduce(lambda c, r: c * f32, pt.scalar("h", dtype="float16"), x),
    "a lag": lambda: scan(lambda c, r: (c[0] + r, None), lag(ROUNDED, [3]), x),
    "fori_loop": lambda: fori_loop(0, 3, lambda i, c: c + x[i], f32),
    "while_loop": lambda: while_loop(lambda c: c < 9, lambda c: c + x[0], f32),
    # The outer step is traced twice.
    "an inner loop": lambda: scan(
        lambda c, r: (c + reduce(lambda a, b: a + b, f32, x), None), pt.constant(0.5), x
    ),
    "in a branch": lambda: cond(
        x[0] > 0, lambda: reduce(lambda c, r: c + r, f32, x), lambda: pt.zeros(())
    ),
}


@pytest.mark.parametrize("name", WIDENED)
def test_a_start_of_fewer_digits_is_said_once(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WIDENED[name]()
    (warning,) = caught
    assert warning.filename == __file__
    wider = "float32" if name == "halves" else "complex128" if "complex" in name else "float64"
    assert f"dtype='{wider}'" in str(warning.message)
    assert f".astype('{wider}')" in str(warning.message)
    assert "(" + __file__ in str(warning.message) or name in ("shared", "halves", "an input")


SILENT = {
    "of the right dtype": lambda: reduce(lambda c, r: c + r, ROUNDED.astype("float64"), x),
    "numbers": lambda: reduce(lambda c, r: c + r, 0.5, x),
    "one constant": lambda: reduce(lambda c, r: c + r, pt.full((3,), -np.inf), x),
    "zeros": lambda: reduce(lambda c, r: c + r, pt.zeros((x.shape[0],), dtype="float32"), x),
    "narrower throughout": lambda: reduce(lambda c, r: c * f32, f32, x),
    "integers": lambda: reduce(lambda c, r: c + pt.lscalar(), pt.iscalar(), x),
    # The carry of the outer loop is a float32 in the first trace only.
    "an unsettled outer carry": lambda: scan(
        lambda c, r: (c + reduce(lambda a, b: a + b, c, x), None), pt.constant(0.5), x
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said(name):
    SILENT[name]()  # warnings are errors


def test_what_to_write_has_all_digits():
    start = pt.set_subtensor(pt.full((3,), -np.inf, dtype="float64")[0], x[0])
    f = jaxify([x], reduce(lambda c, r: pt.logaddexp(c, r), start, x)[0])
    np.testing.assert_allclose(f([0.1, 0.2]), np.logaddexp.reduce([0.1, 0.1, 0.2]), rtol=1e-15)
