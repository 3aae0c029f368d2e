"""Derivatives of special functions in their parameters, natively: PyTensor's are NaN or wrong there."""

import jax
import mpmath
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise
from scipy.special import digamma, exp1

import loopax
from loopax import jaxify
from loopax.ir.derivatives.traversal import pull_back
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE

PARAMETERS = pt.dvectors("a", "b", "c", "z")
# Finite sums, z below 0 and below -1, z = 0, large parameters, and z near 1 (then PyTensor's).
POINTS = np.array(
    [
        [-1.0, 1.3, 5.3, 0.5],
        [0.0, 2.0, 1.5, 0.4],
        [0.7, -2.0, 1.5, -0.6],
        [0.7, 1.2, 2.5, -4.0],
        [1.0, 2.0, 2.0, 0.0],
        [0.5, 1.5, 40.0, 0.3],
        [36.5, 0.5, 1.5, 0.9],
        [120.0, 31.0, 45.0, 0.3],
        [36.5, 3.0, 45.0, -0.6],
        [0.5, 1.5, 3.0, 0.998],
    ]
)


def _differences(function, k, point):
    """The derivative of ``function`` in one argument, with many digits."""
    with mpmath.workdps(40):
        step = mpmath.mpf(10) ** -12
        up, down = ([mpmath.mpf(float(x)) for x in point] for _ in range(2))
        up[k] += step
        down[k] -= step
        return float((function(*up) - function(*down)) / (2 * step))


def _hyp2f1(*arguments):
    return mpmath.hyp2f1(*arguments, zeroprec=200)


@pytest.mark.slow
def test_hyp2f1_in_all_arguments():
    f = jaxify(PARAMETERS, pt.hyp2f1(*PARAMETERS).sum(), backend=NATIVE)
    gradient = loopax.grad(f, (0, 1, 2, 3))(*POINTS.T)
    for k, slopes in enumerate(gradient):
        expected = [_differences(_hyp2f1, k, point) for point in POINTS]
        np.testing.assert_allclose(slopes, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_terms_of_hyp2f1_that_cancel(loops):
    """The value is 0 or small, and the slopes are not; where they have no digits they are NaN.

    PyTensor's slope by the first parameter of the last point is 805,300, and -1.3e186 is right.
    """
    points = np.array([[2.0, -1.0, 1.0, 0.5], [1.0, -3.0, 1.0, 0.95], [-29.5, 29.0, 0.5, 0.8]])
    points = np.concatenate([points, [[-3.0, 200.0, 1.5, 0.9]]])
    f = jaxify(PARAMETERS, pt.hyp2f1(*PARAMETERS).sum(), loops=loops)
    for k, slopes in enumerate(jax.jit(jax.grad(f, (0, 1, 2)))(*points.T)):
        expected = [_differences(_hyp2f1, k, point) for point in points[:2]]
        np.testing.assert_allclose(slopes[:2], expected, rtol=1e-8)
        assert np.isnan(slopes[2:]).all()


# Parameters that are integers, or nearly so, at which the fractions end and their derivatives do not;
# small ones; and large ones, for which the fractions are long.
BETAS = np.array(
    [
        [1.0, 1.0, 0.3],
        [2.0, 3.0 - 1e-8, 0.7],
        [0.05, 5.0, 0.01],
        [0.001, 10.0, 1e-4],
        [0.5, 0.5, 0.97],
        [1000.0, 1.0, 0.99],
        [5.0, 1e-6, 0.9],
    ]
)
GAMMAS = np.array(
    [[1.0, 2.0], [2.0, 3.0], [1.0 + 1e-9, 2.5], [0.3, 1.9], [20.0, 21.5], [50.0, 60.0]]
)


def _betainc(a, b, x):
    return mpmath.betainc(a, b, 0, x, regularized=True)


def _gammainc(k, x):
    return mpmath.gammainc(k, 0, x, regularized=True)


@pytest.mark.slow
@pytest.mark.parametrize("loops", ["xla", "native"])
@pytest.mark.parametrize(
    ("function", "exact", "points"),
    [(pt.betainc, _betainc, BETAS), (pt.gammainc, _gammainc, GAMMAS)],
    ids=["betainc", "gammainc"],
)
def test_incomplete_functions_in_their_parameters(function, exact, points, loops):
    inputs = pt.dvectors("a", "b", "x")[-points.shape[1] :]
    f = jaxify(inputs, function(*inputs), loops=loops)
    by_point = jax.jit(jax.vmap(jax.grad(lambda *xs: f(*(x[None] for x in xs))[0], (0, 1))))
    together = jax.jit(jax.grad(lambda *xs: f(*xs).sum(), (0, 1)))
    for slopes in by_point(*points.T), together(*points.T):
        for k, actual in enumerate(slopes):
            expected = [_differences(exact, k, point) for point in points]
            np.testing.assert_allclose(actual, expected, rtol=5e-9)


@pytest.mark.slow
def test_second_derivatives_of_hyp2f1_at_zero():
    """Along z they are b / c, a / c and -a b / c**2, and in z itself a (a + 1) b (b + 1) / (c (c + 1))."""
    a, b, c = np.array([[1.0, 0.0, 40.0], [2.0, 1.5, 0.3], [2.0, 3.0, 1.0]])
    zeros = np.zeros(3)
    f = jaxify(PARAMETERS, pt.hyp2f1(*PARAMETERS).sum(), backend=NATIVE)
    products = loopax.hvp(f, (a, b, c, zeros), (zeros, zeros, zeros, np.ones(3)))
    expected = [b / c, a / c, -a * b / c**2, a * (a + 1) * b * (b + 1) / (c * (c + 1))]
    np.testing.assert_allclose(products, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_betainc_at_the_ends():
    """The value is 0 or 1 whatever the parameters are: all derivatives in them are 0."""
    a, b, x = pt.dvectors("a", "b", "x")
    f = jaxify([a, b, x], pt.betainc(a, b, x).sum(), backend=NATIVE)
    point = np.array([1.7, 2.4]), np.array([1.3, 2.5]), np.array([0.0, 1.0])
    np.testing.assert_array_equal(loopax.grad(f, (0, 1))(*point), 0)


# Shapes and arguments on both sides of where the series meets the fraction, which a whole shape ends.
INCOMPLETE = np.array(
    [[1e-3, 0.5], [0.5, 2.0], [2.0, 2.0], [3.0, 3.001], [7.5, 1.0], [30.0, 30.0], [30.0, 80.0]]
)


@pytest.mark.slow
@pytest.mark.parametrize("op, sign", [(pt.gammainc, 1), (pt.gammaincc, -1)])
def test_incomplete_gammas_in_both_arguments(op, sign):
    k, x = pt.dvectors("k", "x")
    f = jaxify([k, x], op(k, x).sum(), backend=NATIVE)
    gradient = loopax.grad(f, (0, 1))(*INCOMPLETE.T)
    products = loopax.hvp(f, tuple(INCOMPLETE.T), (np.ones(7), np.zeros(7)))
    with mpmath.workdps(40):
        for at, *slopes in zip(INCOMPLETE, *gradient, products[0], strict=True):
            shape, argument = map(mpmath.mpf, map(float, at))

            def value(k, x):
                return sign * mpmath.gammainc(k, 0, x, regularized=True)

            orders = (1, 0), (0, 1), (2, 0)
            expected = [float(mpmath.diff(value, (shape, argument), n)) for n in orders]
            np.testing.assert_allclose(slopes, expected, rtol=1e-9, err_msg=str(at))


def test_incomplete_functions_at_the_ends():
    """The density is not 0 at an end where its power is 1, and the value does not depend on the shape."""
    k, x = pt.dvectors("k", "x")
    f = jaxify([k, x], pt.gammaincc(k, x).sum(), backend=NATIVE)
    by_k, by_x = loopax.grad(f, (0, 1))(np.array([1.0, 2.5, 0.5]), np.array([0.0, 0.0, np.inf]))
    np.testing.assert_array_equal(by_k, 0)
    np.testing.assert_array_equal(by_x, [-1, 0, 0])
    g = jaxify([k, x], pt.betainc(k, 1.0, x).sum(), backend=NATIVE)
    np.testing.assert_allclose(
        loopax.grad(g, 1)(np.array([1.0, 4.0]), np.array([0.0, 1.0])), [1, 4]
    )


def _hvp_of_jax(f, at, along):
    return jax.jvp(jax.grad(f, (0, 1)), at, along)[1]


@pytest.mark.parametrize(
    "options, hvp",
    [
        ({"backend": NATIVE}, loopax.hvp),
        pytest.param({"loops": "xla"}, _hvp_of_jax, marks=pytest.mark.slow),
    ],
)
def test_densities_move_with_a_shape_of_1(options, hvp):
    """Their power is 1 there, and its derivative in the exponent a logarithm; 0 where that is infinite."""
    k, x = pt.dvectors("k", "x")
    gammas = jaxify([k, x], pt.gammainc(k, x).sum(), **options)
    betas = jaxify([k, x], pt.betainc(k, 3.0, x).sum(), **options)
    shape, at, ones = np.ones(2), np.array([0.0, 0.3]), np.ones(2)
    logs = np.array([0.0, np.log(0.3)])
    for f, expected in (
        (gammas, np.exp(-at) * (logs - digamma(1))),
        (betas, 3 * (1 - at) ** 2 * (logs - digamma(1) + digamma(4))),
    ):
        np.testing.assert_allclose(hvp(f, (shape, at), (ones, 0 * ones))[1], expected)


def test_erfcinv_at_the_ends():
    """JAX before 0.12 has the derivative 0 there."""
    x = pt.dvector("x")
    f = jaxify([x], pt.erfcinv(x).sum(), loops="xla")
    np.testing.assert_array_equal(jax.grad(f)(np.array([0.0, 2.0])), -np.inf)


def test_a_choice_in_an_elementwise_loop():
    """The derivative of the branch that is not taken is NaN."""
    s, c = ps.float64("s"), ps.float64("c")
    body = ps.switch(ps.eq(c, 0), s * c, s * c * ps.log(c))
    start, factor = pt.dvectors("start", "factor")
    out = Elemwise(ScalarLoop([s], [body], constant=[c]))(np.int64(1), start, factor)
    slopes = pull_back([start, factor], [out], [pt.ones_like(out)])
    derivative = pytensor.function([start, factor], slopes, mode=FAST_COMPILE)
    by_start, by_factor = derivative(np.array([2.0, 3.0]), np.array([0.0, np.e]))
    np.testing.assert_allclose(by_start, [0, np.e])
    np.testing.assert_allclose(by_factor, [2, 6])


def test_a_series_of_another_dtype():
    """PyTensor writes the loop again for a float32, and in 3.0 loses nodes of the loop of derivatives."""
    x = ps.float64("x")
    halved = Elemwise(ScalarLoop([x], [x / 2.0], until=ps.lt(x, 1.0)))
    q = pt.fvector("q")
    slope = loopax.grad(jaxify([q], halved(np.int64(9), q)[0].sum(), backend=NATIVE))
    actual = slope(np.array([0.5, 1.2], "float32"))
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual, [0.5, 0.25])


@pytest.mark.slow
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_ends_of_gammainc(loops):
    """NaN where the function is, and at the shape 0 the limit -E1(x) from above."""
    k, x = pt.dvectors("k", "x")
    f = jaxify([k, x], pt.gammainc(k, x).sum(), loops=loops)
    points = np.array(
        [[1.0, -1.0], [1.0, np.nan], [-1.0, 1.0], [0.0, 0.5], [0.0, 3.0], [2.0, np.inf]]
    )
    by_k, by_x = jax.jit(jax.grad(f, (0, 1)))(*points.T)
    limits = [-exp1(0.5), -exp1(3.0)]
    np.testing.assert_allclose(by_k, [np.nan, np.nan, np.nan, *limits, 0.0], rtol=1e-12)
    np.testing.assert_array_equal(by_x, [np.nan, np.nan, np.nan, 0.0, 0.0, 0.0])
