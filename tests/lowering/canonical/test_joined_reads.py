"""An element from the end of a join, which PyTensor takes for a constant of the first part."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from loopax.facts.constants import constant_value
from loopax.ir import evaluate
from loopax.lowering.canonical.stabilize import stabilize
from tests.support.both_backends import NATIVE
from tests.support.compare import imported

X, N = pt.dvector("x"), pt.lscalar("n")
VALUE = np.array([0.5, -1.5, 1.25])
FORMS = [{"loops": "xla"}, {"backend": NATIVE}, {"loops": "native"}]
JOINS = {
    "a zero in front": pt.concatenate([[0.0], X]),
    "zeros of a fill": pt.concatenate([pt.zeros(2), X]),
    "ones on both sides": pt.concatenate([[1.0], X, [1.0]]),
    "a function of it": pt.tanh(pt.concatenate([[0.0], X])) + 1,
}


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("joined", JOINS.values(), ids=JOINS)
def test_products_with_an_element_from_the_end(joined, options):
    outputs = [X * joined[-1], abs(X) ** joined[-2], pt.switch(joined[-3], X, 2 * X)]
    inputs = [X]
    whole = np.asarray(jaxify(inputs, joined, loops="xla")(VALUE))
    a, b, c = whole[[-1, -2, -3]]
    expected = [VALUE * a, abs(VALUE) ** b, VALUE if c else 2 * VALUE]
    for actual, right in zip(jaxify(inputs, outputs, **options)(VALUE), expected, strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-14)


def test_in_a_step_and_in_its_gradient():
    def step(s, x):
        path = pt.concatenate([[0.0], pt.cumsum(X)])
        return s + x * path[-1], None

    f = jaxify([X], loopax.scan(step, 0.0, X)[0], loops="xla")
    np.testing.assert_allclose(f(VALUE), VALUE.sum() ** 2)
    np.testing.assert_allclose(jax.grad(f)(VALUE), np.full(3, 2 * VALUE.sum()))


@pytest.mark.parametrize("index", [-1, -2, -3])
def test_an_element_before_the_first_is_an_error(index):
    for in_front in (0, 1):
        joined = pt.concatenate([np.zeros(in_front), X])
        graph = imported([X], [2.0 * joined[index]]).graph
        stabilize(graph)
        n = -index - in_front  # elements that X needs
        assert evaluate(graph, np.ones(n))[0] == (0 if in_front else 2)
        if n > 0:
            with pytest.raises(IndexError):
                evaluate(graph, np.ones(n - 1))


def test_a_number_of_steps_from_the_end_of_a_join_is_not_known():
    counts = pt.concatenate([[3], pt.stack([N])])
    assert constant_value(counts[-1]) is None
    assert constant_value(pt.stack([N, 3])[-1]) == 3
    assert constant_value(pt.alloc(2.0, N)) == 2
    start = pt.dvector("start")
    _, rows = loopax.scan(lambda s, _: (2 * s, s), start, length=counts[-1])
    assert jaxify([N, start], rows, backend=NATIVE)(0, VALUE).shape == (0, 3)
