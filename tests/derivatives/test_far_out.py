"""First and second derivatives of functions of numbers where a term overflows, or two of them cancel."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax.ir.derivatives.traversal import pull_back, push_forward
from tests.every_op.record import PLAIN

INF, NAN = np.inf, np.nan
ROOT = np.sqrt(np.pi)
X = pt.dvector("x")
# A function, arguments, and its first and second derivative.
FUNCTIONS = {
    "erf": (pt.erf, [-INF, 1e200, INF], [0, 0, 0], [0, 0, 0]),
    "erfc": (pt.erfc, [-INF, 1e200, INF], [0, 0, 0], [0, 0, 0]),
    "erfcx": (
        pt.erfcx,
        [0.0, 101.0, 1e9, INF],
        [-2 / ROOT, -5.52991513527467436e-5, -1e-18 / ROOT, 0],
        [2, 1.09487173683924717e-6, 2e-27 / ROOT, 0],
    ),
    "arccosh": (pt.arccosh, [-2.0, 2.0, 1e200, INF], [NAN, 3**-0.5, 1e-200, 0], None),
    "Owen's T": (
        lambda h: pt.owens_t(h, INF),
        [0.0, 1.0],
        [-((8 * np.pi) ** -0.5), -np.exp(-0.5) * (8 * np.pi) ** -0.5],
        [0, np.exp(-0.5) * (8 * np.pi) ** -0.5],
    ),
}
if hasattr(pt, "ndtri_exp"):  # only some releases have it
    FUNCTIONS["ndtri_exp"] = (pt.ndtri_exp, [-INF, -1e20, 0.0], [0, 0.5**0.5 * 1e-10, INF], None)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_far_out(name):
    function, at, first, second = FUNCTIONS[name]
    ones = pt.ones_like(X)
    (slope,) = pull_back([X], [function(X)], [ones])
    (tangent,) = push_forward([X], [function(X)], [ones])
    (curvature,) = push_forward([X], [slope], [ones])
    slopes = pytensor.function([X], [slope, tangent, curvature], mode=PLAIN)(at)
    np.testing.assert_allclose(slopes[:2], [first, first], rtol=1e-10)
    if second is not None:
        np.testing.assert_allclose(slopes[2], second, rtol=1e-9)
