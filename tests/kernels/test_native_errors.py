"""Errors of native code in a direct call of a JAX program: what failed, where, and with which values."""

import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import jaxify, scan


def picked(x, rows):
    return scan(lambda c, k: (c + x[k], None), pt.constant(0.0, dtype="float64"), rows)[0]


@pytest.mark.both_stacks
def test_an_index_out_of_range_in_a_loop():
    f = jaxify(picked, loops="native")
    said = r"index 9 is out of bounds for axis 0 with size 5; Subtensor.* with the value 9.*x\[k\]"
    for _ in range(2):
        with pytest.raises(IndexError, match=said) as error:
            f(np.arange(5.0), np.array([1, 2, 9]))
        assert __file__.rpartition("/")[2] in str(error.value)
    assert f(np.arange(5.0), np.array([1, 2, 4])) == 7.0


@pytest.mark.both_stacks
def test_shapes_that_do_not_fit():
    x, y = pt.dvectors("x", "y")
    f = jaxify([x, y], scan(lambda c, r: (c + r[0] * r[1], None), 0.0, (x, y))[0], loops="native")
    with pytest.raises(ValueError, match="Slice the sequence, or lower the number of steps"):
        f(np.arange(3.0), np.arange(4.0))
