"""PyMC's op of a spline of SciPy's becomes polynomials, with derivatives of any order."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from scipy.interpolate import InterpolatedUnivariateSpline, UnivariateSpline

import loopax
from loopax import jaxify
from loopax.importer.import_graph import import_graph

# PyMC's, until its ops have the method of PyTensor 3.
pytestmark = pytest.mark.filterwarnings("ignore:SplineWrapper should implement:FutureWarning")
dist_math = pytest.importorskip("pymc.distributions.dist_math")

AT = np.linspace(0.0, 4.0, 9)
VALUES = np.exp(-((AT - 1.5) ** 2))
POINTS = np.array([-0.7, 0.0, 0.1, 0.5, 1.23, 2.0, 3.999, 4.0, 4.5])
X = pt.dvector("x")


def spline(degree=3, beyond="zeros"):
    return InterpolatedUnivariateSpline(AT, VALUES, k=degree, ext=beyond)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("beyond", ["zeros", "extrapolate", "const"])
@pytest.mark.parametrize("degree", [1, 3, 5])
def test_values_and_derivatives_are_those_of_scipy(degree, beyond):
    """Inside, at knots, at the ends and beyond them, of first and second order."""
    one = spline(degree, beyond)
    f = jaxify([X], dist_math.SplineWrapper(one)(X))
    np.testing.assert_allclose(f(POINTS), one(POINTS), rtol=1e-9, atol=1e-12)
    inside = POINTS[1:-1]
    first, second = jax.grad(lambda x: f(x[None])[0]), jax.hessian(lambda x: f(x[None])[0])
    smooth = spline(degree, "zeros" if beyond == "const" else beyond)
    want = [smooth.derivative(n)(inside) if n <= degree else 0 * inside for n in (1, 2)]
    np.testing.assert_allclose(jax.vmap(first)(inside), want[0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(jax.vmap(second)(inside), want[1], rtol=1e-8, atol=1e-10)


def test_a_spline_with_knots_of_its_own():
    one = UnivariateSpline(AT, VALUES, s=0.01, k=2, ext=1)
    f = jaxify([X], dist_math.SplineWrapper(one)(X))
    np.testing.assert_allclose(f(POINTS), one(POINTS), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_native_code():
    """Values, first and second derivatives, also of the op that PyMC's own derivative is."""
    y = dist_math.SplineWrapper(spline(1))(X)
    slope = pt.grad(y.sum(), X)
    want = jaxify([X], [y, slope], loops="xla")(POINTS)
    native = jaxify([X], [y, slope], backend="numba")
    for got, one in zip(native(POINTS), want, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-12)
    total = jaxify([X], (y**2).sum(), backend="numba")
    np.testing.assert_allclose(
        np.diag(loopax.hessian(total)(POINTS)), 2 * np.asarray(want[1]) ** 2, rtol=1e-12
    )
    in_jax = jaxify([X], (y**2).sum(), loops="native")
    np.testing.assert_allclose(
        jax.hessian(in_jax)(POINTS), np.diag(2 * np.asarray(want[1]) ** 2), rtol=1e-12
    )


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shapes_and_dtypes(shape, dtype):
    x = pt.TensorType(dtype, (None,) * len(shape))("x")
    value = np.full(shape, 1.3, dtype)
    got = jaxify([x], dist_math.SplineWrapper(spline())(x))(value)
    assert got.shape == shape and got.dtype == dtype
    np.testing.assert_allclose(got, np.asarray(spline()(value)), rtol=1e-6)


def test_no_number_gives_no_number():
    f = jaxify([X], dist_math.SplineWrapper(spline())(X))
    assert np.isnan(f(np.array([np.nan, 1.0]))).tolist() == [True, False]


def test_a_spline_that_raises_beyond_its_ends_stays():
    y = dist_math.SplineWrapper(spline(beyond="raise"))(X)
    graph = FunctionGraph([X], [y], clone=True)
    import_graph(graph)
    assert [type(n.op) for n in graph.apply_nodes] == [dist_math.SplineWrapper]
