"""`loopax.diagnose(f, ..., grad=True)`: values that are finite, and derivatives that are not."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import diagnose, jaxify, scan
from tests.diagnosis.test_diagnose import garch, line_of
from tests.support.forms import FORMS


@pytest.fixture(params=["xla", "native", "numba"])
def form(request):
    return FORMS[request.param]


def distances(x, points):
    def step(total, point):
        distance = pt.sqrt(((point - x) ** 2).sum())
        return total + distance, None

    return scan(step, pt.constant(0.0, dtype="float64"), points)[0]


@pytest.mark.slow
@pytest.mark.parametrize("size, at", [(10, 4), (3000, 1700)])
def test_a_norm_at_zero(form, size, at):
    points = np.arange(3.0 * size).reshape(size, 3)
    report = diagnose(jaxify(distances, **form), points[at], points, grad=True)
    actual = report.first
    assert actual.in_gradient
    assert (actual.op, actual.steps) == ("Sqrt", (at,))
    assert actual.line.endswith(line_of(distances, "pt.sqrt"))
    assert "norm at 0" in actual.why
    assert "the value is finite" in report.summary


@pytest.mark.sampled(1)
def test_a_gradient_that_is_finite(form):
    report = diagnose(jaxify(garch, **form), np.array([0.1, 0.1, 0.5]), np.ones(20), grad=True)
    assert report.ok
    assert "derivative" in report.summary


@pytest.mark.sampled(2)
def test_a_branch_that_was_not_taken(form):
    """A product of matrices reads the whole vector, as docs/native_loops_in_jax.md says."""
    x = pt.dvector("x")
    rows = pt.dot(np.array([[1.0, 1, 1], [0, 1, 2], [0, 3, 1]]), pt.sqrt(x))
    value = pt.switch(x > 0, rows, 0.0).sum()
    actual = diagnose(jaxify([x], value, **form), np.array([0.0, 1.0, 2.0]), grad=True).first
    assert actual.op == "Sqrt"
    assert "branch that was not taken" in actual.why
    assert "switch" in actual.instead


def test_the_value_comes_first(form):
    x = pt.dscalar("x")
    actual = diagnose(jaxify([x], pt.log(x), **form), -1.0, grad=True).first
    assert (actual.op, actual.in_gradient) == ("Log", False)


def test_transformations():
    f = jaxify(distances)
    points = np.arange(30.0).reshape(10, 3)
    report = diagnose(loopax.grad(f), points[4], points)
    assert (report.first.op, report.first.steps) == ("Sqrt", (4,))


def test_gradients_in_programs(form):
    """Newton's method on a function whose derivative is a gradient in the step."""

    def newton(x):
        def f(z):
            return pt.log(z) - 1

        def step(c, _):
            return c - f(c) / loopax.grad(f)(c), None

        return scan(step, x, length=50)[0]

    actual = diagnose(jaxify(newton, **form), 20.0).first
    assert (actual.op, actual.steps) == ("Log", (1,))
    np.testing.assert_allclose(actual.operands[0].value, 20 - (np.log(20) - 1) * 20)


@pytest.mark.parametrize("build", [lambda x, n: n * 2, lambda x, n: [], lambda x, n: x > n])
def test_a_program_without_a_float_that_has_a_derivative(form, build):
    x, n = pt.dvector("x"), pt.lvector("n")
    f = jaxify([x, n], build(x, n), **form)
    assert diagnose(f, np.arange(3.0), np.arange(3), grad=True).ok
    assert diagnose(jaxify([n], n * 2, **form), np.arange(3), grad=True).ok


@pytest.mark.parametrize(
    "key", [jax.random.key, pytest.param(jax.random.PRNGKey, marks=pytest.mark.slow)]
)
def test_a_key_as_an_argument(key):
    rng = pt.random.rng("rng")
    after, draws = rng.normal(size=3)
    for outputs in (draws, [after, draws]):
        f = jaxify([rng], outputs)
        assert diagnose(f, key(1)).ok
        loopax.profile(f, key(1))
        loopax.compare(f, key(1))
