"""Derivatives of a choice: the number that is not chosen has no part in them, whatever its own are."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax.ir.derivatives.traversal import pull_back, push_forward
from tests.every_op.record import PLAIN

X, LOW, HIGH = pt.dvectors("x", "low", "high")
# A choice whose other number has an infinite derivative, arguments, and the derivative.
CHOICES = {
    "switch": (pt.switch(X > 0, pt.sqrt(X), 2 * X), [0.0, 4.0], [2.0, 0.25]),
    "switch to a constant": (pt.switch(X > 0, pt.sqrt(X), 3.0), [0.0, 4.0], [0.0, 0.25]),
    "clip": (pt.clip(pt.log(X), -3.0, 2.0), [0.0, 0.5, 100.0], [0.0, 2.0, 0.0]),
    "clip to a bound that moves": (pt.clip(pt.log(X), X, 9.0), [0.0, 2.0], [1.0, 1.0]),
    "not a number": (pt.clip(pt.log(X), -3.0, 2.0), [-1.0], [-1.0]),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_tangent_of_the_chosen_number(name):
    y, at, expected = CHOICES[name]
    (pushed,) = push_forward([X], [y], [pt.ones_like(X)])
    (tangent,) = pytensor.function([X], [pushed], mode=PLAIN)(at)
    np.testing.assert_array_equal(tangent, expected)


def test_a_bound_above_the_other():
    """``clip`` returns the lower bound, of which alone it is a function."""
    y = pt.clip(X, LOW, HIGH)
    inputs = [X, LOW, HIGH]
    cotangents = pull_back(inputs, [y], [pt.ones_like(y)])
    (pushed,) = push_forward(inputs, [y], [pt.full_like(X, 10.0), LOW, HIGH])
    run = pytensor.function(inputs, [*cotangents, pushed], mode=PLAIN)
    *shares, tangent = run([1.5, 1.5, 0.5, 1.5], [2.0, 1.0, 1.0, 0.0], [1.0, 2.0, 2.0, 1.0])
    np.testing.assert_array_equal(shares, [[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(tangent, [2.0, 10.0, 1.0, 1.0])


def test_choices_of_one_column_that_no_type_declares():
    index, choices = pt.lvector("i"), pt.dmatrix("m")
    (gradient,) = pull_back([choices], [pt.choose(index, choices)], [pt.as_tensor([1.0, 2.0, 4.0])])
    (slope,) = pytensor.function([index, choices], [gradient], mode=PLAIN)(
        [1, 0, 1], np.ones((2, 1))
    )
    np.testing.assert_array_equal(slope, [[2.0], [5.0]])
