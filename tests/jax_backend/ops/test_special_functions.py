"""Special functions in JAX and their derivatives, where JAX's own are wrong or do not end."""

import jax
import numpy as np
import pytensor
import pytensor.scalar.math as scalar
import pytensor.tensor as pt
import pytest
import scipy.special as sp

from loopax import jaxify
from tests.numerics.special.closeness import close

LINE = np.array(
    [-700.25, -88.5, -30.25, -20.5, -10.25, -2.5, -1e-3, -1e-20, 1e-20, 0.3, 1, 3.5, 88, 1e6, 1e200]
)
X = pt.dvector("x")


@pytest.mark.slow
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
    for actual in (
        jax.jit(jax.grad(f))(LINE),
        jaxify([X], by_pytensor)(LINE),
        jaxify([X], by_pytensor, backend="numba")(LINE),
    ):
        close(actual, slope(LINE))
    slopes = jax.grad(f)
    actual = [jax.grad(lambda x: slopes(x).sum())(LINE), jaxify([X], second)(LINE)]
    # In halves of odd integers the terms of the even orders cancel.
    for x in actual:
        close(x, curvature(LINE), rtol=1e-7)


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:These ops have no conversion to Numba:UserWarning")
@pytest.mark.parametrize("backend", ["jax", "numba"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_an_order_in_a_byte(backend, dtype):
    """The largest order that is told apart does not fit into a byte; in float32 the zeta function is 0."""
    n, x = pt.vector("n", dtype=dtype), pt.vector("x", dtype=dtype)
    orders, points = [2, 20, 63, 100], [3, 100, 7, 20]
    actual = jaxify([n, x], pt.polygamma(n, x), backend=backend)(
        np.array(orders, dtype), np.array(points, dtype)
    )
    expected = sp.polygamma(np.array(orders), np.array(points, float)).astype("float32")
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


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
    actual = jaxify([a, b, x], pt.betainc(a, b, x), loops="xla")(
        [0.7, 1e308, 1e308, -1.0], [1e308, 0.7, 1e308, 2.0], [0.0, 1.0, 0.0, 0.0]
    )
    np.testing.assert_array_equal(actual, [0, 1, 0, np.nan])


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


@pytest.mark.skipif(
    not hasattr(scalar, "NdtriExp"), reason="only later releases of PyTensor have it"
)
def test_ndtri_exp():
    inside = np.array([-0.005, -0.3, -2, -72, -744, -1e4])
    close(jaxify([X], pt.ndtri_exp(X))(inside), sp.ndtri_exp(inside), rtol=1e-11)


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_floor_division_and_remainder(backend):
    values = [0.0, -0.0, 2, -2, 0.7, -0.7, 7, -7, 1e-7, 1e300, np.inf, -np.inf, np.nan]
    for dtype in ("float64", "float32"):
        x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
        some = np.array(values if dtype == "float64" else [*values[:9], *values[-3:]], dtype)
        a, b = (m.ravel() for m in np.meshgrid(some, some))
        quotient, rest = jaxify([x, y], [x // y, x % y], backend=backend)(a, b)
        with np.errstate(all="ignore"):
            for actual, expected in ((quotient, a // b), (rest, a % b)):
                np.testing.assert_array_equal(actual, expected, strict=True)
                numbers = ~np.isnan(expected)
                assert (np.signbit(actual) == np.signbit(expected))[numbers].all()


@pytest.mark.parametrize("order", [0, 1])
def test_derivatives_of_modified_bessel_functions(order):
    """At 0 and near it, where JAX before 0.12 has a kink, and where they overflow."""
    f = jaxify([X], (pt.i0, pt.i1)[order](X).sum(), loops="xla")
    x = np.array([-2.0, -1e-9, -0.0, 0.0, 0.1, 3.0])
    for n in (1, 2, 3):
        close(_nth_derivative(f, n)(x), sp.ivp(order, x, n), rtol=1e-12)
    assert jax.grad(f)(np.array([800.0])) == np.inf


def _nth_derivative(f, n):
    """The derivative of order ``n`` of a sum over elements, in each of them."""
    if n == 0:
        return f
    return jax.grad(lambda x: _nth_derivative(f, n - 1)(x).sum())


def test_derivatives_of_the_remainder():
    x, y = pt.dscalars("x", "y")
    f = jaxify([x, y], x % y)
    assert jax.grad(f, (0, 1))(-7.0, 0.7) == (1.0, 11.0)
    assert jax.grad(jaxify([x, y], x // y), (0, 1))(-7.0, 0.7) == (0.0, 0.0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_integers_at_their_ends(backend):
    """The least one by -1 wraps and does not stop the process; powers wrap; uint64 compares by value."""
    x, y, u = pt.lvector("x"), pt.lvector("y"), pt.vector("u", dtype="uint64")
    least, most = np.iinfo("int64").min, np.iinfo("int64").max
    a, b = np.array([least, 7, -7, 3]), np.array([-1, 0, 2, 100])
    c = np.array([1, most, 2**63, 2], "uint64")
    outputs = [x // y, x % y, x ** abs(y), pt.lt(x, u), pt.eq(x, u), u**u, pt.gt(u, x)]
    actual = jaxify([x, y, u], outputs, backend=backend)(a, b, c)
    with np.errstate(all="ignore"):
        expected = [a // b, a % b, a ** abs(b), a < c, a == c, c**c, c > a]
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
