"""Loops in JAX: truncated gradients, loops that run backwards, loops that are unrolled."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import DynamicShapeError, jaxify
from tests.support.compare import primitives

XS = np.linspace(-1.0, 1.0, 6)


def recurrence(truncate=-1):
    x, s, a = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("a")
    trace = pytensor.scan(
        lambda x_t, s, a: pt.tanh(a * s + x_t),
        sequences=[x],
        outputs_info=[s],
        non_sequences=[a],
        truncate_gradient=truncate,
        return_updates=False,
    )
    return [x, s, a], trace


def test_names_of_loops_reach_profilers():
    x = pt.dvector("x")
    final, _ = loopax.scan(lambda c, x: (pt.sin(c + x), None), 0.0, x, name="days")
    text = jax.jit(jaxify([x], final)).lower(XS).as_text(debug_info=True)
    assert "Scan{days}" in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("truncate", [-1, 1, 2, 3, 5, 6, 9])
@pytest.mark.parametrize("read", ["last", "sum"])
def test_truncated_gradients_are_those_of_pytensor(truncate, read):
    inputs, trace = recurrence(truncate)
    cost = trace[-1] if read == "last" else trace.sum()
    values = XS, 0.2, 0.7
    f = jaxify(inputs, cost)
    expected = pytensor.function(inputs, pytensor.grad(cost, inputs), mode="FAST_COMPILE")(*values)
    actual = jax.grad(f, argnums=(0, 1, 2))(*values)
    transpiled = jaxify(inputs, pytensor.grad(cost, inputs))(*values)
    for e, g, t in zip(expected, actual, transpiled, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(t, e, rtol=1e-10, atol=1e-14)


def test_truncation_leaves_values_alone():
    whole, cut = jaxify(*recurrence()), jaxify(*recurrence(2))
    np.testing.assert_allclose(cut(XS, 0.2, 0.7), whole(XS, 0.2, 0.7), rtol=1e-14)


def test_a_loop_over_a_flipped_sequence_runs_backwards():
    x = pt.dvector("x")
    trace = pytensor.scan(
        lambda x_t, s: 0.5 * s + x_t,
        sequences=[x[::-1]],
        outputs_info=[pt.zeros(())],
        return_updates=False,
    )
    f = jaxify([x], trace[::-1])
    expected = pytensor.function([x], trace[::-1], mode="FAST_COMPILE")(XS)
    np.testing.assert_allclose(f(XS), expected, rtol=1e-12)
    assert "reverse=True" in str(jax.make_jaxpr(f)(XS))
    # Rows from the middle, every second one from the end, no rows at all.
    for part in (x[4:1:-1], x[::-2], x[:0][::-1], x[::-1][1:4]):
        g = jaxify([x], pytensor.scan(lambda v: v * 2, sequences=[part], return_updates=False))
        np.testing.assert_array_equal(g(XS), 2 * pytensor.function([x], part)(XS))


def test_a_short_loop_with_shapes_that_change_is_unrolled():
    x = pt.dvector("x")
    sums = pytensor.scan(
        lambda t, x: x[:t].sum(), sequences=[pt.arange(6)], non_sequences=[x], return_updates=False
    )
    f = jaxify([x], sums)
    np.testing.assert_allclose(f(XS), np.r_[0, np.cumsum(XS)[:-1]])
    assert "scan" not in primitives(jax.make_jaxpr(f)(XS))
    long = pytensor.scan(
        lambda t, x: x[:t].sum(), sequences=[pt.arange(90)], non_sequences=[x], return_updates=False
    )
    with pytest.raises(DynamicShapeError, match="up to 64 steps is unrolled; this one has 90"):
        jaxify([x], long)(XS)


def test_no_step_of_a_loop_with_shapes_that_change():
    """Its step cannot be traced, and is not taken: draws of a 2 x 2 LKJ matrix have such a loop."""
    s, x = pt.dscalar("s"), pt.dvector("x")
    total, ys = loopax.scan(lambda c, k: (c + x[:k].sum(), pt.ones(k).sum()), s, pt.arange(2, 2))
    f = jaxify([s, x], [total, ys], loops="xla")
    value, rows = jax.jit(f)(1.5, XS)
    assert value == 1.5 and rows.shape == (0,)
    assert jax.jit(jax.grad(lambda s: f(s, XS)[0]))(1.5) == 1.0


def test_a_negative_number_of_steps_gives_no_number():
    n, s = pt.lscalar("n"), pt.dscalar("s")
    out = pytensor.scan(lambda s: s * 2, outputs_info=[s], n_steps=n, return_updates=False)
    f = jaxify([s, n], out[-1])
    assert np.isnan(f(1.0, -2)) and f(1.0, 3) == 8.0
