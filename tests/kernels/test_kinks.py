"""Where a function has no derivative: native code gives what JAX's operations give."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify


def guarded(function):
    return lambda x, y: pt.switch(x > 0, function(pt.switch(x > 0, x, 1.0)), 0.0)


def largest_so_far(start, of_row):
    def final(x, y):
        return loopax.scan(lambda s, x: (pt.maximum(s, of_row(x)), None), start, x)[0]

    return final


# A function, its arguments at a kink, and its derivative by the first: jax.grad's in either form, and
# pytensor.grad's; that of cumprod divides by the element.
KINKS = {
    "maximum": (pt.maximum, [1.0, 2.0], [1.0, 3.0], [0.5, 0.0], [1.0, 0.0]),
    "minimum": (pt.minimum, [1.0, 2.0], [1.0, 3.0], [0.5, 1.0], [1.0, 1.0]),
    "both": (
        lambda x, y: pt.maximum(x, y) * pt.minimum(x, y),
        *([2.0, 2.0], [2.0, 3.0], [2.0, 3.0], [4.0, 3.0]),
    ),
    "broadcast": (
        lambda x, y: pt.maximum(x[0], y),
        *([1.0, 2.0], [1.0, 0.0], [1.5, 0.0], [2.0, 0.0]),
    ),
    "abs": (lambda x, y: abs(x), [0.0, -1.0], [0.0, 0.0], [1.0, -1.0], [0.0, -1.0]),
    "relu": (lambda x, y: pt.maximum(x, 0), [0.0, 1.0], [0.0, 0.0], [0.5, 1.0], [1.0, 1.0]),
    "max": (lambda x, y: pt.max(x), [2.0, 2.0], [0.0, 0.0], [0.5, 0.5], [1.0, 1.0]),
    "min of rows": (
        lambda x, y: pt.min(pt.stack([x, y]), axis=0),
        *([1.0, 2.0], [1.0, 3.0], [0.5, 1.0], [1.0, 1.0]),
    ),
    "cumprod": (lambda x, y: pt.cumprod(x), [0.0, 2.0], [0.0, 0.0], [3.0, 0.0], None),
    "clip": (lambda x, y: pt.clip(x, 0.0, 1.0), [0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]),
    "sqrt": (guarded(pt.sqrt), [0.0, 4.0], [0.0, 0.0], [0.0, 0.25], [0.0, 0.25]),
    "log": (guarded(pt.log), [-1.0, 2.0], [0.0, 0.0], [0.0, 0.5], [0.0, 0.5]),
    "sort": (lambda x, y: pt.sort(x)[0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]),
    "prod": (lambda x, y: pt.prod(x), [0.0, 2.0], [0.0, 0.0], [2.0, 0.0], [2.0, 0.0]),
    "power": (lambda x, y: x**y, [0.0, -1.0], [2.0, 2.0], [0.0, -2.0], [0.0, -2.0]),
    "in a loop": (largest_so_far(0.0, abs), *([0.0, -1.0], [0.0, 0.0], [0.0, -1.0], [0.0, -1.0])),
    "equal in a loop": (
        largest_so_far(1.0, lambda x: x),
        *([1.0, 1.0], [0.0, 0.0], [0.25, 0.5], [0.0, 0.0]),
    ),
}
OTHERS = [
    name for name in KINKS if name != "cumprod"
]  # with it, JAX differentiates the whole program


def program(names):
    """One program of a row of two matrices for each kink: each total, and all of them together."""
    xs, ys = pt.dmatrix("xs"), pt.dmatrix("ys")
    totals = pt.stack([KINKS[name][0](xs[k], ys[k]).sum() for k, name in enumerate(names)])
    points = [np.array([KINKS[name][at] for name in names]) for at in (1, 2)]
    return (xs, ys), totals, points


def assert_rows(rows, expected, names):
    for row, right, name in zip(rows, expected, names, strict=True):
        np.testing.assert_allclose(row, right, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_gradients():
    inputs, totals, (x, y) = program(OTHERS)
    for loops in "native", "xla":
        f = jaxify(inputs, totals.sum(), loops=loops)
        assert_rows(jax.grad(f)(x, y), [KINKS[name][3] for name in OTHERS], OTHERS)
    f = jaxify(inputs, pytensor.grad(totals.sum(), inputs[0]))
    assert_rows(f(x, y), [KINKS[name][4] for name in OTHERS], OTHERS)


@pytest.mark.slow
def test_a_cumulative_product():
    (xs, ys), totals, (x, y) = program(["cumprod"])
    for loops in "native", "xla":
        f = jaxify([xs, ys], totals.sum(), loops=loops)
        np.testing.assert_array_equal(jax.grad(f)(x, y), [KINKS["cumprod"][3]])


@pytest.mark.slow
def test_forward_mode_and_second_order():
    inputs, totals, (x, y) = program(OTHERS)
    t = np.broadcast_to([1.0, -2.0], x.shape)
    native, xla = (jaxify(inputs, totals, loops=loops) for loops in ("native", "xla"))
    pushed = [jax.jvp(lambda x, f=f: f(x, y), (x,), (t,))[1] for f in (native, xla)]
    assert_rows(*pushed, OTHERS)
    pulled = [jax.vjp(lambda x, f=f: f(x, y), x)[1](t[:, 0])[0] for f in (native, xla)]
    assert_rows(*pulled, OTHERS)

    def curved(f):
        return jax.jvp(jax.grad(lambda x: (f(x, y) ** 2).sum()), (x,), (t,))[1]

    assert_rows(curved(native), curved(xla), OTHERS)
