"""Loops over traced bounds: `fori_loop` with ``max_steps``, and the bounds that a program has by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import LoopTypeError, UnsupportedOpError, fori_loop, jaxify, scan, while_loop
from tests.support.both_backends import NATIVE

n, a = pt.lscalar("n"), pt.dscalar("a")
FORMS = ["xla", "native"]


def by_hand(lo, hi, a, most):
    c = 1.0
    for i in range(lo, min(hi, lo + most)):
        c = c * a + jnp.sin(a * i)
    return c


def looped(lo, hi, **options):
    return fori_loop(lo, hi, lambda i, c: c * a + pt.sin(a * i), 1.0, **options)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hi", [-1, 2, 3, 7, 8, 30])  # below the start, and beyond the bound
def test_reverse_mode_with_a_bound(form, hi):
    out = looped(2, n, max_steps=6)
    f = jax.jit(jaxify([n, a], out, loops=form))
    expected = [by_hand(2, hi, 0.5, 6)]
    expected += [d(lambda a: by_hand(2, hi, a, 6))(0.5) for d in (jax.grad, jax.hessian)]
    actual = [f(hi, 0.5), jax.jit(jax.grad(f, 1))(hi, 0.5), jax.jit(jax.hessian(f, 1))(hi, 0.5)]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    np.testing.assert_allclose(out.eval({n: hi, a: 0.5}), expected[0], rtol=1e-12)
    native = jaxify([n, a], out, backend="numba")
    np.testing.assert_allclose(native(hi, 0.5), expected[0], rtol=1e-12)


def test_a_batch_of_bounds():
    grad = jax.grad(jaxify([n, a], looped(0, n, max_steps=5), loops="xla"), 1)
    actual = jax.vmap(grad, (0, None))(jnp.arange(8), 0.5)
    expected = [jax.grad(lambda a, k=k: by_hand(0, k, a, 5))(0.5) for k in range(8)]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_the_graph_of_a_gradient():
    f = jaxify([n, a], pt.grad(looped(0, n, max_steps=5), a), loops="xla")
    for hi in (0, 3, 9):
        expected = jax.grad(lambda a, hi=hi: by_hand(0, hi, a, 5))(0.5)
        np.testing.assert_allclose(jax.jit(f)(hi, 0.5), expected, rtol=1e-12)


def test_in_single_precision():
    s = pt.fscalar("s")
    out = fori_loop(0, n, lambda i, c: c * s + s, pt.constant(1.0, dtype="float32"), max_steps=5)
    slope = jax.jit(jax.grad(jaxify([n, s], out, loops="xla"), 1))(3, np.float32(0.5))
    assert slope.dtype == "float32"
    np.testing.assert_allclose(slope, 6 * 0.5**2 + 2 * 0.5 + 1, rtol=1e-6)


def test_how_many_steps_there_may_be():
    assert fori_loop(0, 9, lambda i, c: c + 1, 0, max_steps=4).eval() == 4
    most = pt.lscalar("most")
    counted = fori_loop(0, n, lambda i, c: c + 1, 0, most)
    assert [counted.eval({n: 9, most: k}) for k in (0, 4, 12)] == [0, 4, 9]
    with pytest.raises(ValueError, match="a loop takes 0 or more"):
        counted.eval({n: 9, most: -2})
    for loop in (
        lambda most: fori_loop(0, n, lambda i, c: c + 1, 0, max_steps=most),
        lambda most: while_loop(lambda c: c < n, lambda c: c + 1, 0, max_steps=most),
    ):
        with pytest.raises(
            LoopTypeError, match="max_steps of .* must be a number of steps .*, got -1"
        ):
            loop(-1)
        with pytest.raises(LoopTypeError, match="max_steps of .* must be an integer"):
            loop(0.5)


def test_without_a_bound_the_error_names_it():
    f = jaxify([n, a], looped(0, n), loops="xla")
    # What follows from the index alone stays in the loop, or it would be an array of n.
    np.testing.assert_allclose(jax.jit(f)(3, 0.5), by_hand(0, 3, 0.5, 3), rtol=1e-12)
    with pytest.raises(
        UnsupportedOpError, match=r"fori_loop\(lo, hi, body, init, max_steps=1000\)"
    ):
        jax.jit(jax.grad(f, 1))(3, 0.5)
    bounded = jaxify([n, a], looped(0, pt.minimum(n, 5)), loops="xla")  # it has one of its own
    expected = jax.grad(lambda a: by_hand(0, 3, a, 5))(0.5)
    np.testing.assert_allclose(jax.jit(jax.grad(bounded, 1))(3, 0.5), expected, rtol=1e-12)


# -- loops whose bounds are indices of loops around ----------------------------------------------------


def cholesky(m, size):
    """Cholesky-Banachiewicz, as in a textbook: the bounds of two loops are indices of loops around."""

    def column(j, factor):
        def entry(i, factor):
            s = fori_loop(0, j, lambda k, s: s + factor[i, k] * factor[j, k], 0.0)
            diagonal = pt.sqrt(m[j, j] - s)
            below = (m[i, j] - s) / factor[j, j]
            return pt.set_subtensor(factor[i, j], pt.switch(pt.eq(i, j), diagonal, below))

        return fori_loop(j, size, entry, factor)

    return fori_loop(0, size, column, np.eye(size))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 4])
def test_a_bound_that_is_an_index(form, size):
    m = pt.dmatrix("m")
    f = jaxify([m], pt.log(pt.diagonal(cholesky(m, size))).sum(), loops=form)
    matrix = np.eye(size) * 3 + 0.5
    np.testing.assert_allclose(f(matrix), np.linalg.slogdet(matrix)[1] / 2, rtol=1e-12)
    # Only the lower triangle is read, and each of its entries stands for two.
    slopes = np.linalg.inv(matrix)
    expected = np.tril(slopes, -1) + np.diag(np.diag(slopes)) / 2
    np.testing.assert_allclose(jax.jit(jax.grad(f))(matrix), expected, rtol=1e-10)


def test_a_bound_that_is_an_index_going_back():
    def step(c, i):
        return fori_loop(0, 2 * i + 1, lambda k, c: c * a + k, c), None

    final, _ = scan(step, 1.0, pt.arange(4), reverse=True)
    inner = fori_loop(0, 3, lambda i, c: fori_loop(i - 5, i, lambda k, c: c * a + k, c), final)

    def expected(a):
        c = 1.0
        for i in (3, 2, 1, 0):
            for k in range(2 * i + 1):
                c = c * a + k
        for i in range(3):
            for k in range(i - 5, i):
                c = c * a + k
        return c

    f = jaxify([a], inner, loops="xla")
    np.testing.assert_allclose(f(0.5), expected(0.5), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(0.5), jax.grad(expected)(0.5), rtol=1e-12)


def test_an_index_of_a_loop_without_a_bound_is_none():
    def outer(c):
        return c[0] + 1, fori_loop(0, c[0], lambda k, s: s * a + k, c[1])

    out = while_loop(lambda c: c[0] < n, outer, (0, 1.0))[1]
    f = jaxify([n, a], out, loops="xla")
    assert np.isfinite(jax.jit(f)(3, 0.5))
    with pytest.raises(UnsupportedOpError, match="has no bound on its steps"):
        jax.jit(jax.grad(f, 1))(3, 0.5)


def test_rows_of_a_length_that_is_an_index_stay_arrays():
    # The loop around is written out, as it was before an index had a bound.
    def step(c, i):
        _, ys = scan(lambda s, _: (s * a, s), c, length=i + 1)
        return ys.reshape((i + 1, 1)).sum(), None

    f = jaxify([a], scan(step, 1.0, pt.arange(3))[0], loops="xla")
    c = 1.0
    for i in range(3):
        c = sum(c * 0.5**k for k in range(i + 1))
    np.testing.assert_allclose(f(0.5), c, rtol=1e-12)


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"loops": "native"}, {"backend": NATIVE}])
def test_reverse_mode_without_a_bound_says_what_to_write(options):
    f = jaxify([a], while_loop(lambda c: c < 9, lambda c: c * a, 1.0), **options)
    with pytest.raises(UnsupportedOpError, match=r"no bound .*max_steps=1000.*forward mode"):
        loopax.grad(f)(2.0)
