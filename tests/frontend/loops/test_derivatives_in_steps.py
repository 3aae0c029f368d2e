"""Gradients that a step takes: through a row to what its sequence was made from, never through a carry."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import DisconnectedInputError

from loopax import LoopaxError, lead, map, scan
from tests.support.both_backends import in_both

X, A = np.array([0.5, -1.0, 2.0, 3.0]), 0.3
x, a = pt.dvector("x"), pt.dscalar("a")


def holds(outputs, expected):
    in_both([x, a], outputs, [X, A], np.asarray(expected))


def test_the_jacobian_over_the_rows_themselves():
    y = x**2 * a + pt.exp(x).sum()
    actual = map(lambda y_i: pytensor.grad(y_i, x), y)
    holds(actual, jax.jacobian(lambda x: x**2 * A + jax.numpy.exp(x).sum())(X))


@pytest.mark.parametrize("part", [slice(None, None, -1), slice(1, None, 2)], ids=str)
def test_rows_of_a_part(part):
    y = x**2 * a
    holds(map(lambda y_i: pytensor.grad(y_i, x), y[part]), np.diag(2 * X * A)[part])


@pytest.mark.slow
def test_two_rows_of_one_step():
    y, z = x**2 * a, pt.exp(x)
    actual = map(lambda r: pytensor.grad(r[0] * r[1], x), (y, z))
    holds(actual, jax.jacobian(lambda x: x**2 * A * jax.numpy.exp(x))(X))
    ahead = map(lambda r: pytensor.grad(r[1] - r[0], x), lead(y, [0, 1]))
    holds(ahead, jax.jacobian(lambda x: jax.numpy.diff(x**2 * A))(X))


def test_a_loop_in_reverse_and_a_gradient_by_what_is_no_vector():
    y = x**2 * a
    _, actual = scan(lambda c, r: (c, pytensor.grad(r**2, a)), 0.0, y, reverse=True)
    holds(actual, 2 * A * X**4)


@pytest.mark.slow
def test_a_loop_in_a_loop():
    y = x**2 * a + x[::-1]
    actual = map(lambda y_i: map(lambda g: pytensor.grad(g, x), pytensor.grad(y_i, x)), y)
    holds(actual, jax.hessian(lambda x: x**2 * A + x[::-1])(X))


def test_a_row_has_derivatives_of_its_own():
    holds(map(lambda r: pytensor.grad(r**3 + r * x.sum(), r), x), 3 * X**2 + X.sum())
    holds(map(lambda r: pytensor.grad(r**3, x), x), np.diag(3 * X**2))


def test_a_step_that_takes_no_gradient_captures_no_sequence():
    final, _ = scan(lambda c, r: (c + r * a, None), 0.0, x**2)
    node = final.owner
    args = node.op.split_inputs(node.inputs)
    assert len(args.sequences) == 1 and args.consts == [a]
    assert all(v.owner is None for v in node.op.args.rows)


def test_strict_steps_have_their_sequences():
    y = x**2
    holds(map(lambda r: pytensor.grad(r, y), y, strict=True), np.eye(4))
    with pytest.raises(LoopaxError, match="strict"):
        map(lambda r: pytensor.grad(r, x), y, strict=True)


def test_a_carry_is_no_way_out_of_the_step():
    with pytest.raises(DisconnectedInputError):
        scan(lambda c, r: (c + r, pytensor.grad(c, x)), (x**2).sum(), pt.arange(3.0))
