"""Where a function has no derivative: what native code and JAX's operations give, as the document says."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify

X, Y = pt.dvector("x"), pt.dvector("y")


def guarded(function, x):
    return pt.switch(x > 0, function(pt.switch(x > 0, x, 1.0)), 0.0)


# A value at a kink, and its derivatives with respect to x: native, and in JAX's operations.
KINKS = {
    "maximum": (pt.maximum(X, Y), [1.0, 2.0], [1.0, 3.0], [1.0, 0.0], [0.5, 0.0]),
    "minimum": (pt.minimum(X, Y), [1.0, 2.0], [1.0, 3.0], [1.0, 1.0], [0.5, 1.0]),
    "abs": (abs(X), [0.0, -1.0], [0.0, 0.0], [0.0, -1.0], [1.0, -1.0]),
    "max": (pt.max(X), [2.0, 2.0], [0.0, 0.0], [1.0, 1.0], [0.5, 0.5]),
    "cumprod": (pt.cumprod(X), [0.0, 2.0], [0.0, 0.0], [3.0, 0.0], [3.0, 0.0]),
    "clip": (pt.clip(X, 0.0, 1.0), [0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]),
    "sqrt": (guarded(pt.sqrt, X), [0.0, 4.0], [0.0, 0.0], [0.0, 0.25], [0.0, 0.25]),
    "log": (guarded(pt.log, X), [-1.0, 2.0], [0.0, 0.0], [0.0, 0.5], [0.0, 0.5]),
    "sort": (pt.sort(X)[0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]),
    "prod": (pt.prod(X), [0.0, 2.0], [0.0, 0.0], [2.0, 0.0], [2.0, 0.0]),
    "power": (X**Y, [0.0, -1.0], [2.0, 2.0], [0.0, -2.0], [0.0, -2.0]),
}


@pytest.mark.parametrize("name", KINKS)
def test_derivatives_at_kinks(name):
    value, x, y, native, xla = KINKS[name]
    total = value.sum()
    for loops, right in ("native", native), ("xla", xla):
        f = jaxify([X, Y], total, loops=loops)
        np.testing.assert_array_equal(jax.grad(f)(np.array(x), np.array(y)), right, err_msg=loops)
    if name == "cumprod":  # PyTensor's divides by the element
        return
    by_pytensor = jaxify([X, Y], pytensor.grad(total, X))
    np.testing.assert_array_equal(by_pytensor(x, y), native, err_msg="pytensor.grad")
