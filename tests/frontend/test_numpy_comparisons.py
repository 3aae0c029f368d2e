"""PyTensor's own code compares NumPy's numbers with variables, in a step as elsewhere."""

import warnings

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from loopax import jaxify, scan


def test_a_slice_to_a_bound_from_the_end_in_a_step():
    """Its shape asks whether the bound -1 is the length: a symbolic test there failed, with a warning."""
    start, rows = pt.dvector("start"), pt.dmatrix("rows")

    def step(carry, row):
        joined = pt.join(0, carry, row)[:-1]
        return carry + 1.0, pt.ones((joined.shape[0],)).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, counts = scan(step, init=start, xs=rows)
        f = jaxify([start, rows], counts)
    np.testing.assert_array_equal(f(np.zeros(2), np.zeros((3, 4))), [5.0] * 3)


def test_a_comparison_in_a_users_step_is_symbolic():
    compared = []

    def step(carry, _):
        compared.extend([np.equal(carry, 1.0), np.float64(1.0) != carry])
        return carry + 1.0, None

    scan(step, init=pt.dscalar("x"), length=2)
    assert compared and all(isinstance(v, Variable) for v in compared)
