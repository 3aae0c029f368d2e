"""Special functions in JAX and their derivatives, where JAX's own are wrong or do not end."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytensor
import pytensor.scalar.math as scalar
import pytensor.tensor as pt
import pytest
import scipy.special as sp

from loopax import jaxify
from loopax.numerics.special import bessel, incomplete_gammas, normal_tails, polygammas
from loopax.numerics.special.hypergeometric import hyp2f1
from tests.support.scalar_grid import within

LINE = np.array(
    [-700.25, -88.5, -30.25, -20.5, -10.25, -2.5, -1e-3, -1e-20, 1e-20, 0.3, 1, 3.5, 88, 1e6, 1e200]
)
X = pt.dvector("x")


def close(found, expected, rtol=1e-9, atol=0.0):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=atol)


# PyTensor has no native trigamma and polygamma: they run as Python, and it is said.
@pytest.mark.filterwarnings("ignore:These ops have no conversion to Numba:UserWarning")
@pytest.mark.parametrize(
    ("graph", "slope", "curvature"),
    [
        (pt.gammaln, sp.psi, lambda x: sp.polygamma(1, x)),
        (pt.psi, lambda x: sp.polygamma(1, x), lambda x: sp.polygamma(2, x)),
        (pt.tri_gamma, lambda x: sp.polygamma(2, x), lambda x: sp.polygamma(3, x)),
    ],
    ids=["gammaln", "psi", "tri_gamma"],
)
def test_derivatives_on_the_whole_line(graph, slope, curvature):
    f = jaxify([X], graph(X).sum())
    by_pytensor = pytensor.grad(graph(X).sum(), X)
    second = pytensor.grad(by_pytensor.sum(), X)
    for found in (
        jax.jit(jax.grad(f))(LINE),
        jaxify([X], by_pytensor)(LINE),
        jaxify([X], by_pytensor, backend="numba")(LINE),
    ):
        close(found, slope(LINE))
    slopes = jax.grad(f)
    found = [jax.grad(lambda x: slopes(x).sum())(LINE), jaxify([X], second)(LINE)]
    # In halves of odd integers the terms of the even orders cancel.
    for x in found:
        close(x, curvature(LINE), rtol=1e-7)


def test_the_ends():
    x = np.array([0.0, -0.0, np.inf, -np.inf, -3.0, np.nan])
    assert str(polygammas.psi(x).tolist()) == "[-inf, inf, inf, nan, nan, nan]"
    assert str(polygammas.tri_gamma(x).tolist()) == "[inf, inf, 0.0, inf, inf, nan]"
    assert str(polygammas.gammaln(x).tolist()) == "[inf, inf, inf, -inf, inf, nan]"


@pytest.mark.filterwarnings("ignore:These ops have no conversion to Numba:UserWarning")
@pytest.mark.parametrize("backend", ["jax", "numba"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_an_order_in_a_byte(backend, dtype):
    """The largest order that is told apart does not fit into a byte; in float32 the zeta function is 0."""
    n, x = pt.vector("n", dtype=dtype), pt.vector("x", dtype=dtype)
    orders, points = [2, 20, 63, 100], [3, 100, 7, 20]
    found = jaxify([n, x], pt.polygamma(n, x), backend=backend)(
        np.array(orders, dtype), np.array(points, dtype)
    )
    expected = sp.polygamma(np.array(orders), np.array(points, float)).astype("float32")
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_polygamma_where_scipy_has_only_rounding_errors():
    """At half integers the poles on both sides cancel in odd powers, and leave the sum from 1 - x on."""
    k = np.arange(40.0)
    expected = -sp.factorial(20) * np.sum((21.5 + k) ** -21.0)
    close(polygammas.polygamma(20, jnp.asarray(-20.5)), expected)
    assert (
        abs(sp.polygamma(20, -20.5)) > 1e8
    )  # to go from here, and from the page, when it is right


def test_incomplete_gammas_end():
    """The sums have bounds: `gammainc(1e300, 1e300)` never came back."""
    some = [0, 1e-300, 1e-7, 0.05, 0.7, 2.5, 88.5, 1e3, 1e4, 1.01e4, 1e6, 1.001e6, 1e10, 1e10 + 1e5]
    some += [1e17, 1e300, np.inf, np.nan, -1.0]
    k, x = (m.ravel() for m in np.meshgrid(some, some))
    for ours, scipy in (
        (incomplete_gammas.gammainc, sp.gammainc),
        (incomplete_gammas.gammaincc, sp.gammaincc),
    ):
        found = within(240, lambda ours=ours: np.asarray(jax.jit(ours)(k, x)))
        close(found, scipy(k, x), atol=1e-300)
    floats = incomplete_gammas.gammainc(jnp.float32(1000), jnp.float32(1000))
    close(floats, sp.gammainc(1000, 1000), rtol=1e-6)


@pytest.mark.slow  # XLA compiles the sums for ten seconds
def test_derivatives_of_incomplete_gammas():
    k = np.array([0.05, 2.5, 3e4])
    x, h = k * 0.99, 1e-4 * np.minimum(k, np.sqrt(k))
    for ours, scipy in (
        (incomplete_gammas.gammainc, sp.gammainc),
        (incomplete_gammas.gammaincc, sp.gammaincc),
    ):
        slopes = jax.jit(jax.grad(lambda k, x, f=ours: f(k, x).sum(), (0, 1)))(k, x)
        by_k = (scipy(k + h, x) - scipy(k - h, x)) / (2 * h)
        by_x = (scipy(k, x + h) - scipy(k, x - h)) / (2 * h)
        close(slopes, [by_k, by_x], rtol=1e-4)
    assert jax.grad(incomplete_gammas.gammainc, 1)(1.0, 0.0) == 1.0  # PyTensor's is 0 * log(0)


TAILS = np.array(
    [
        0,
        -1e-300,
        -1e-17,
        -0.005,
        -0.3,
        -2,
        -2.1,
        -50,
        -72,
        -75,
        -744,
        -800,
        -1e6,
        -1e19,
        -1e21,
        -1e300,
    ]
)


def test_derivatives_of_the_incomplete_beta_function():
    """With respect to its parameters too, which JAX refuses; on both sides of the mean, small and large."""
    a, b, x = pt.dvectors("a", "b", "x")
    parameters = [0.02, 0.5, 3.0, 40.0, 3000.0]
    grid = np.array([[p, q, z] for p in parameters for q in parameters for z in (-1.5, 0.1, 2.0)]).T
    p, q = grid[:2]
    mean, deviation = p / (p + q), np.sqrt(p * q / (p + q + 1)) / (p + q)
    values = p, q, np.clip(mean + grid[2] * deviation, 1e-6, 1 - 1e-6)
    f = jaxify([a, b, x], pt.betainc(a, b, x).sum())
    slopes = jax.jit(jax.grad(f, (0, 1, 2)))(*values)
    for k, slope in enumerate(slopes):
        step = (
            1e-5
            * np.eye(3)[k][:, None]
            * np.minimum(values[k], 1 - values[2] if k == 2 else np.inf)
        )
        ends = [sp.betainc(*(np.array(values) + sign * step)) for sign in (1, -1)]
        by_differences = (ends[0] - ends[1]) / (2 * step[k])
        np.testing.assert_allclose(slope, by_differences, rtol=1e-4, atol=1e-7)


def test_the_ends_of_the_incomplete_beta_function_of_large_parameters():
    """0 and 1, whatever the normalization; no value of parameters that are none."""
    a, b, x = pt.dvectors("a", "b", "x")
    found = jaxify([a, b, x], pt.betainc(a, b, x), loops="xla")(
        [0.7, 1e308, 1e308, -1.0], [1e308, 0.7, 1e308, 2.0], [0.0, 1.0, 0.0, 0.0]
    )
    np.testing.assert_array_equal(found, [0, 1, 0, np.nan])


@pytest.mark.slow
def test_the_hessian_of_the_incomplete_beta_function_and_its_ends():
    a, b, x = pt.dvectors("a", "b", "x")
    f = jaxify([a, b, x], pt.betainc(a, b, x).sum())
    at = [np.array([v]) for v in (2.0, 3.0, 0.4)]
    hessian = np.squeeze(np.array(jax.hessian(f, (0, 1, 2))(*at)))
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9)
    np.testing.assert_allclose(
        hessian[0, 0], 0.0583966, rtol=1e-5
    )  # by differences of the gradient
    edge = jax.grad(f, (0, 1, 2))(np.ones(2), np.ones(2), np.array([0.0, 1.0]))
    np.testing.assert_allclose(edge, [[0, 0], [0, 0], [1, 1]], rtol=1e-12)


def test_ndtri_exp():
    x = np.array([*TAILS, -np.inf, 1e-17, 1, np.nan])
    close(jax.jit(normal_tails.ndtri_exp)(x), sp.ndtri_exp(x), rtol=1e-11)
    floats = x[(x > -1e30) & (x < -1e-30)].astype("float32")
    expected = sp.ndtri_exp(floats.astype("float64"))
    close(jax.jit(normal_tails.ndtri_exp)(floats), expected, rtol=1e-5)
    inside = TAILS[(TAILS < -1e-10) & (TAILS > -1e5)]
    z = sp.ndtri_exp(inside)
    expected = np.sqrt(2 * np.pi) * np.exp(inside + z**2 / 2)
    slopes = jax.jit(jax.vmap(jax.grad(normal_tails.ndtri_exp)))(np.array([*inside, -1e300]))
    close(slopes[:-1], expected, rtol=1e-9)
    assert slopes[-1] > 0
    if hasattr(scalar, "NdtriExp"):
        close(jaxify([X], pt.ndtri_exp(X))(inside), z, rtol=1e-11)


def test_erfcinv_and_owens_t_at_the_ends():
    x = np.array([-1.0, 0, 2.2250738585072014e-308, 1e-300, 1e-29, 0.3, 1, 2 - 1e-10, 2, 2.1])
    close(normal_tails.erfcinv(jnp.asarray(x)), sp.erfcinv(x), rtol=1e-11)
    h, a = np.array([0, 0, 1.5, -3, np.inf]), np.array([np.inf, -np.inf, np.inf, -np.inf, np.inf])
    close(normal_tails.owens_t(h, a), sp.owens_t(h, a))


def test_bessel_functions_far_out():
    """Where SciPy before 1.18 has lost the phase: the first term of DLMF 10.17.3, by mpmath."""
    x = np.array([1e10, 1e17, 1e200, 1e300, np.finfo("float64").max])
    with mpmath.workdps(400):
        first = [mpmath.sqrt(2 / (mpmath.pi * mpmath.mpf(v))) for v in x]
        turns = [mpmath.mpf(v) - mpmath.pi / 4 for v in x]
        expected = [
            [float(a * f(t)) for a, t in zip(first, turns, strict=True)]
            for f in (mpmath.cos, mpmath.sin)
        ]
    close(jax.jit(bessel.j0)(x), expected[0], rtol=1e-9)
    close(jax.jit(bessel.j1)(x), expected[1], rtol=1e-9)


def test_hyp2f1():
    """Against SciPy: on the series' own ground, and on the host elsewhere; nan stays nan."""
    p = [-3.0, -1.5, -0.3, 0, 0.5, 1, 2.25, 7]
    grid = [m.ravel() for m in np.meshgrid(p, p, p, [-1e6, -5, -0.5, 0, 0.3, 0.89])]
    found = within(120, lambda: np.asarray(jax.jit(hyp2f1)(*grid)))
    close(found, sp.hyp2f1(*grid), rtol=1e-7)
    hard = [(1.0, 2, 3, 0.99), (1e300, 1, 1, 0.5), (np.inf, 1, 2, 0.5), (1.0, 2, 3, 1.0)]
    hard += [tuple(np.nan if j == k else 0.5 for j in range(4)) for k in range(4)]
    columns = [np.array(c) for c in zip(*hard, strict=True)]
    found = within(120, lambda: np.asarray(jax.jit(hyp2f1)(*columns)))
    close(found, sp.hyp2f1(*columns))
    assert np.isnan(found[-4:]).all()
    # Summed element by element under vmap: rows that are hard do not change the others.
    rows = jax.vmap(hyp2f1, (0, None, None, 0))(
        jnp.arange(3.0), 1.0, 2.0, jnp.array([0.5, -3, 0.99])
    )
    close(rows, sp.hyp2f1(np.arange(3.0), 1.0, 2.0, [0.5, -3, 0.99]))


def test_derivatives_of_hyp2f1():
    at, h = (0.5, 1.2, 2.3, 0.4), 1e-6
    found = jax.jit(jax.grad(hyp2f1, (0, 1, 2, 3)))(*at)
    step = h * np.eye(4)
    expected = [(sp.hyp2f1(*(at + s)) - sp.hyp2f1(*(at - s))) / (2 * h) for s in step]
    close(found, expected, rtol=1e-7)
    assert np.isnan(jax.grad(hyp2f1)(0.5, 1.2, 2.3, 0.999))  # not known there, and it says so


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_floor_division_and_remainder(backend):
    values = [0.0, -0.0, 2, -2, 0.7, -0.7, 7, -7, 1e-7, 1e300, np.inf, -np.inf, np.nan]
    for dtype in ("float64", "float32"):
        x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
        some = np.array(values if dtype == "float64" else [*values[:9], *values[-3:]], dtype)
        a, b = (m.ravel() for m in np.meshgrid(some, some))
        quotient, rest = jaxify([x, y], [x // y, x % y], backend=backend)(a, b)
        with np.errstate(all="ignore"):
            for found, expected in ((quotient, a // b), (rest, a % b)):
                np.testing.assert_array_equal(found, expected, strict=True)
                numbers = ~np.isnan(expected)
                assert (np.signbit(found) == np.signbit(expected))[numbers].all()


def test_derivatives_of_the_remainder():
    x, y = pt.dscalars("x", "y")
    f = jaxify([x, y], x % y)
    assert jax.grad(f, (0, 1))(-7.0, 0.7) == (1.0, 11.0)
    assert jax.grad(jaxify([x, y], x // y), (0, 1))(-7.0, 0.7) == (0.0, 0.0)


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_integers_at_their_ends(backend):
    """The least one by -1 wraps and does not stop the process; powers wrap; uint64 compares by value."""
    x, y, u = pt.lvector("x"), pt.lvector("y"), pt.vector("u", dtype="uint64")
    least, most = np.iinfo("int64").min, np.iinfo("int64").max
    a, b = np.array([least, 7, -7, 3]), np.array([-1, 0, 2, 100])
    c = np.array([1, most, 2**63, 2], "uint64")
    outputs = [x // y, x % y, x ** abs(y), pt.lt(x, u), pt.eq(x, u), u**u, pt.gt(u, x)]
    found = jaxify([x, y, u], outputs, backend=backend)(a, b, c)
    with np.errstate(all="ignore"):
        expected = [a // b, a % b, a ** abs(b), a < c, a == c, c**c, c > a]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
