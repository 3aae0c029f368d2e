"""Even powers of an absolute value have the second derivative of the power, at 0 too."""

import jax
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax.facts.elementwise import scalar_op_of
from loopax.lowering.canonical.stabilize import stabilize

X = pt.dvector("x")
AT, ALONG = np.array([0.0, -0.0, 1.5, -2.0]), np.array([1.0, 2.0, -1.0, 0.5])

# With the second derivative.
POWERS = {
    "a square": (abs(X) ** 2, 2 + 0 * AT),
    "a product": (abs(X) * abs(X), 2 + 0 * AT),
    "among other factors": (3 * abs(X) * X * abs(X), 18 * AT),
    "a fourth power": (abs(X) ** 4.0, 12 * AT**2),
    "with its sign": (abs(X) * pt.sign(X) * X, 2 + 0 * AT),
    "a third power": (abs(X) ** 3, 6 * abs(AT)),
    "in a norm": (pt.sqrt(pt.linalg.norm(X[:1]) ** 2 + X**2 + 1), None),
    "of a root": (pt.sqrt(X**2) ** 4, 12 * AT**2),
    "the square of a root": (pt.sqrt(X**2) ** 2 + 1, 2 + 0 * AT),
}


@pytest.mark.parametrize("name", POWERS)
def test_second_derivatives_at_zero(name):
    out, expected = POWERS[name]
    for options in ({"loops": "xla"}, {"loops": "native"}, {"backend": "numba"}):
        f = loopax.jaxify([X], out.sum(), **options)
        along = loopax.hvp(f, (AT,), (ALONG,))
        if expected is not None:
            np.testing.assert_allclose(along, expected * ALONG, atol=1e-12)
        np.testing.assert_allclose(
            along, jax.hessian(loopax.jaxify([X], out.sum(), loops="xla"))(AT) @ ALONG, atol=1e-12
        )


@pytest.mark.parametrize("name", POWERS)
def test_values_stay(name):
    at = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-200, -3.7e120])
    out = POWERS[name][0]
    f = loopax.jaxify([X], out, loops="xla")
    with np.errstate(all="ignore"):
        expected = pytensor.function([X], out, mode="FAST_COMPILE")(at)
    np.testing.assert_allclose(f(at), expected, rtol=0 if "root" not in name else 1e-15)


def test_a_root_of_a_negative_number_stays_nan():
    for options in ({"loops": "xla"}, {"backend": "numba"}):
        f = loopax.jaxify([X], pt.sqrt(X) ** 2, **options)
        np.testing.assert_array_equal(f(np.array([-1.0, -0.0, 4.0])), [np.nan, 0.0, 4.0])


def test_absolute_values_of_other_powers_and_of_complex_numbers_stay():
    z = pt.zvector("z")
    for x, out in ((X, abs(X) ** 3), (X, abs(X) * abs(X + 1)), (z, abs(z) ** 2)):
        graph = FunctionGraph([x], [out])
        stabilize(graph)
        ops = [scalar_op_of(node.op) for node in graph.toposort()]
        assert any(isinstance(op, ps.Abs) for op in ops)
