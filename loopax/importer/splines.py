"""SciPy's splines as polynomials, one for each interval; PyMC uses them in interpolated distributions.

    SplineWrapper(spline)(x)  ->  c[0, i] d**k + ... + c[k, i],  with i the interval of x, d = x - knots[i]

PyMC's op calls SciPy, which no backend can look into, and its derivative is an op of the derived spline:
the derivative of a linear one has no further derivative, although that is 0. A polynomial has derivatives
of any order. At a knot they belong to the interval that begins there, as in SciPy.

A spline that raises beyond its ends (``ext=2``) stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable

_EXTRAPOLATED, _ZEROS, _RAISES, _CONSTANT = range(4)  # SciPy's extrapolation modes


def spline_as_polynomials(node: Apply) -> Variable | None:
    """Express the spline ``node`` by PyTensor's ops; None if it is not PyMC's spline op."""
    op: Any = node.op
    # By name, since PyMC need not be there.
    if type(op).__name__ != "SplineWrapper" or not type(op).__module__.startswith("pymc."):
        return None
    x: Any = node.inputs[0]
    if op.spline.ext == _RAISES or not x.type.dtype.startswith("float"):
        return None
    knots, coefficients = _pieces(op.spline)
    first, last = knots[0], knots[-1]
    at = x.astype("float64")
    if op.spline.ext == _CONSTANT:
        at = pt.clip(at, first, last)
    place = pt.searchsorted(pt.constant(knots[1:-1]), at, side="right")
    off = at - pt.constant(knots[:-1])[place]
    value: Any = pt.constant(coefficients[0])[place]
    for row in coefficients[1:]:
        value = value * off + pt.constant(row)[place]
    if op.spline.ext == _ZEROS:
        value = pt.switch((at < first) | (at > last), 0.0, value)
    return value.astype(x.type.dtype)


def _pieces(spline: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the intervals, and the coefficients of each polynomial, highest power first."""
    from scipy.interpolate import PPoly  # as slow to import as a small program to compile

    knots, weights = spline.get_knots(), spline.get_coeffs()
    degree = len(weights) - len(knots) + 1
    ends = np.r_[[knots[0]] * degree, knots, [knots[-1]] * degree]
    pieces = PPoly.from_spline((ends, weights, degree)).c
    return knots, pieces[:, degree : degree + len(knots) - 1]
