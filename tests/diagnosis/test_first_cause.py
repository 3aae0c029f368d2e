"""Which of several numbers that are not finite is the cause: the first computed, and none that is meant."""

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import diagnose, jaxify, scan
from tests.diagnosis.test_diagnose import line_of
from tests.support.forms import FORMS


@pytest.fixture(params=["xla", "native", "numba"])
def form(request):
    return FORMS[request.param]


def falling(x, reverse=False):
    """A state that is negative from some step on, and its logarithm."""
    return scan(
        lambda c, r: (c - r, pt.log(c - r)), pt.constant(1.0, dtype="float64"), x, reverse=reverse
    )[1]


READERS = {
    "reversed loop": (lambda x: falling(x, True).sum(), 9),
    "reversed trace": (lambda x: falling(x)[::-1].sum(), 9),
    "transposed": (lambda x: (falling(x)[:, None] + pt.zeros((1, 2))).T.sum(), 9),
    "one row": (lambda x: falling(x)[12], 12),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", READERS)
def test_the_first_step_that_is_read(form, name):
    program, step = READERS[name]
    actual = diagnose(jaxify(program, **form), np.full(20, 0.105)).first
    assert (actual.op, actual.steps) == ("Log", (step,))
    np.testing.assert_allclose(actual.operands[0].value, 1 - 0.105 * (step + 1))


@pytest.mark.sampled(2)
def test_two_traces_and_two_rows(form):
    def both(x, y):
        def step(c, r):
            return (c[0] - r[0], c[1] - r[1]), (pt.sqrt(c[0] - r[0]), pt.log(c[1] - r[1]))

        one = pt.constant(1.0, dtype="float64")
        a, b = scan(step, (one, one), (x, y))[1]
        return a.sum() + b.sum()

    actual = diagnose(jaxify(both, **form), np.full(25, 0.051), np.full(25, 0.105)).first
    assert (actual.op, actual.steps) == ("Log", (9,))
    batch = jaxify(lambda xs: loopax.vmap(falling)(xs).sum(), **form)
    rows = np.full((3, 20), 0.01)
    rows[1], rows[2] = 0.06, 0.3
    actual = diagnose(batch, rows).first
    assert (actual.steps, actual.entry) == ((3,), (2,))


def test_an_impossible_value(form):
    """The infinity of a support is written in the program: the cause is that it was chosen."""

    def log_density(x):
        return pt.switch(x < 0, -np.inf, -x).sum()

    report = diagnose(jaxify(log_density, **form), np.array([0.1, 0.2, -1.75, 0.3]))
    actual = report.first
    assert (actual.op, actual.kind, actual.entry) == ("Switch", "-inf", (2,))
    assert actual.line.endswith(line_of(log_density, "pt.switch"))
    assert "x[2] = -1.75" in str(report) and "out of its domain" in actual.why


def forward(p, y):
    """A hidden Markov chain in logs, some of whose states cannot be reached."""
    moves = pt.log(pt.constant(np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])))
    start = pt.log(pt.constant(np.array([1.0, 0.0, 0.0])))

    def step(a, yt):
        seen = pt.log(p[:, yt])
        return pt.logsumexp(a[:, None] + moves, axis=0) + seen, None

    return pt.logsumexp(scan(step, start, y)[0])


@pytest.mark.sampled(2)
def test_infinities_that_are_meant(form):
    p = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.1, 0.9, 0.0]])
    y = np.random.default_rng(0).integers(0, 2, 40)
    assert diagnose(jaxify(forward, **form), p, y).ok
    y[23] = 2  # which no state emits
    actual = diagnose(jaxify(forward, **form), p, y).first
    assert (actual.op, actual.steps) == ("Log", (23,))
    assert actual.line.endswith(line_of(forward, "pt.log(p[:, yt])"))


def test_a_nan_in_a_trace_that_has_infinities(form):
    """The infinities of the first rows are no reason to miss the nan of a later one."""

    def program(x):
        start = pt.log(pt.constant(np.array([1.0, 0.0])))
        return scan(lambda a, r: (a + pt.log(r), a + pt.log(r)), start, x)[1]

    x = np.ones(20)
    x[13] = -2.5
    report = diagnose(jaxify(program, **form), x)
    assert (report.first.op, report.first.steps) == ("Log", (13,))
    assert report.first.operands[0].value == -2.5


def test_a_constant_that_is_nan(form):
    returns = pt.constant(np.where(np.arange(50) == 37, np.nan, 1.0), name="returns")
    f = jaxify(lambda b: scan(lambda c, r: (c * 0.5 + b * r, None), 0.0, returns)[0], **form)
    report = diagnose(f, 1.0)
    assert report.first.steps == (37,)
    assert "returns[37]" in str(report)


@pytest.mark.sampled(2)
def test_rows_of_a_batch_whose_gradient_is_not_finite(form):
    x = np.random.default_rng(0).normal(size=(9, 3))
    x[6] = 0
    batch = loopax.vmap(jaxify(lambda v: pt.sqrt((v**2).sum()), **form))
    report = diagnose(batch, x, grad=True)
    assert report.first.op == "Sqrt" and report.first.in_gradient
    assert "row 6" in str(report) or "[6]" in str(report)


def test_one_finding_for_one_line():
    report = diagnose(jaxify(falling), np.full(20, 0.105))
    assert len(report.findings) == 1
