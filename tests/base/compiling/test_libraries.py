"""When LLVM optimizes which code."""

import re

import numpy as np
import pytensor.tensor as pt

from loopax import jaxify


def test_a_short_loop_that_calls_a_function_is_vector_code(as_users_have_it):
    """Twenty calls of ``exp`` are not unrolled before ``exp`` is inlined."""
    x, y = (pt.tensor(name, shape=(20,), dtype="float64") for name in "xy")
    f = jaxify([x, y], pt.exp(x[:, None] * y[None]), backend="numba")
    a, b = np.linspace(-1, 1, 20), np.linspace(0, 2, 20)
    np.testing.assert_allclose(f(a, b), np.exp(np.outer(a, b)), rtol=1e-14)
    (function,) = f._native.variants.by_lengths.values()
    (text,) = function.inspect_llvm().values()
    assert "range(20)" in function.py_func.__source__
    assert re.search(r"fmul .*<\d+ x double>", text)
