"""Where a number became 0 of which a program takes the logarithm, or by which it divides."""

import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import diagnose, jaxify, scan
from tests.support.forms import FORMS, in_all_forms

STICKY = np.array([[0.98, 0.02], [0.05, 0.95]])
START = pt.constant([0.5, 0.5])


def forward(density):
    def day(p, d):
        p = (p @ STICKY) * d
        p.name = "p"
        return p, p

    return scan(day, START, density)


def underflow_step(density, tiny):
    """The first step after which NumPy's probabilities are all below ``tiny``."""
    p = np.full(2, 0.5)
    for k, d in enumerate(density):
        p = (p @ STICKY) * d
        p[p < tiny] = 0.0
        if not p.any():
            return k
    raise AssertionError("it does not underflow")


@pytest.mark.sampled(2)
@in_all_forms
@pytest.mark.parametrize("read", ["final", "trace"])
def test_a_probability_that_underflows_in_a_loop(form, read):
    density = np.random.default_rng(0).uniform(0, 0.5, size=(700, 2))

    def program(density):
        final, trace = forward(density)
        return pt.log(final.sum() if read == "final" else trace[-1].sum())

    finding = diagnose(jaxify(program, **form), density).first
    flushes = form == FORMS["xla"]  # XLA takes subnormal numbers for 0 on a CPU
    step = underflow_step(density, np.finfo(float).tiny if flushes else 0.0)
    assert (finding.op, finding.kind) == ("Log", "-inf")
    assert finding.zero.startswith(f"in Mul, p, at step {step}, ")
    assert f"    which became 0 {finding.zero}" in finding.lines()


@pytest.mark.sampled(2)
@in_all_forms
def test_a_factor_of_zero_is_an_input(form):
    density = np.full((9, 2), 0.5)
    density[4] = 0.0

    def program(density):
        return pt.log(forward(density)[0].sum())

    finding = diagnose(jaxify(program, **form), density).first
    assert finding.zero == "in input density[4, 0]"


@pytest.mark.sampled(2)
@in_all_forms
def test_an_exponential_in_an_inner_loop(form):
    def program(logs):
        def row(c, m):
            p, _ = scan(lambda p, x: (p * pt.exp(x), None), START, m)
            return c, pt.log(p.sum())

        return scan(row, pt.constant(0.0), logs)[1].sum()

    logs = np.full((4, 6, 2), -1.0)
    logs[2, 3] = -900.0
    finding = diagnose(jaxify(program, **form), logs).first
    assert finding.steps == (2,)
    assert finding.zero.startswith("in Exp, exp(") and "outer step 2, step 3" in finding.zero


def test_divisions():
    x = pt.dvector("x")
    finding = diagnose(jaxify([x], (x / pt.prod(x)).sum()), np.full(5, 1e-90)).first
    assert finding.op == "True_div" and finding.zero.startswith("in Prod, prod(x)")
    # An operand that is 0 as it was given has no more to say.
    finding = diagnose(jaxify([x], (1 / x).sum()), np.array([1.0, 0.0])).first
    assert finding.zero == "" and finding.operands[0].entry == (1,)
    # A difference that is 0 arose there; a gradient's pole is another story.
    finding = diagnose(jaxify([x], pt.log(x - 1.0).sum()), np.array([2.0, 1.0])).first
    assert finding.zero.startswith("in Sub, x - 1")
    assert diagnose(jaxify([x], pt.sqrt(x).sum()), np.zeros(2), grad=True).first.zero == ""


def test_names_and_lines_where_values_are_watched():
    """What nobody watches is dropped from a body, which keeps its names and lines."""

    def garch(theta, returns):
        def day(h, r):
            h = loopax.watch(theta[0] + theta[1] * r**2 + theta[2] * h, "h")
            return h, pt.log(h) + r**2 / h

        return scan(day, theta[0], returns)[1].sum()

    returns = np.random.default_rng(0).normal(size=50)
    finding = diagnose(jaxify(garch), np.array([0.1, -0.2, 0.9]), returns).first
    assert finding.operands[0].expression == "h" and "test_zeros.py" in finding.line
    assert finding.code.startswith("return h, pt.log(h)")
    assert "loopax.watch(theta[0]" in finding.operands[0].origin
