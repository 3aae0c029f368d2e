"""`loopax.diagnose`: programs with one planted cause each."""

import inspect
import math
import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import cond, diagnose, jaxify, scan
from tests.support.forms import FORMS

RETURNS = np.random.default_rng(0).normal(size=300)


@pytest.fixture(params=["xla", "native", "numba"])
def form(request):
    return FORMS[request.param]


def line_of(function, text):
    """Where ``text`` stands in ``function``, as a report has it."""
    lines, first = inspect.getsourcelines(function)
    k = next(k for k, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(function).rpartition('/')[2]}:{first + k}"


def garch(theta, r):
    w, a, b = theta[0], theta[1], theta[2]

    def step(h, x):
        new = w + a * x**2 + b * h
        new.name = "h"
        return new, -0.5 * (pt.log(new) + x**2 / new)

    return scan(step, w, r)[1].sum()


@pytest.mark.sampled(1)
def test_a_variance_that_goes_negative(form):
    theta = np.array([0.1, -0.2, 0.9])
    h, step = theta[0], -1
    while h >= 0:
        step += 1
        h = theta[0] + theta[1] * RETURNS[step] ** 2 + theta[2] * h
    report = diagnose(jaxify(garch, **form), theta, RETURNS)
    actual = report.first
    assert not report.ok
    assert (actual.op, actual.kind, actual.steps, actual.where) == (
        "Log",
        "nan",
        (step,),
        f"step {step}",
    )
    assert actual.line.endswith(line_of(garch, "pt.log(new)"))
    (operand,) = actual.operands
    assert operand.expression == "h"
    np.testing.assert_allclose(operand.value, h, rtol=1e-12)
    assert operand.origin.partition(": ")[0].endswith(line_of(garch, "new = w"))
    text = str(report)
    assert f"step {step}" in text and f"{h:.3g}"[:5] in text
    assert re.findall(r"step (\d+)", text)[0] == str(step)
    assert re.findall(r"\.py:(\d+)", text)[0] == actual.line.rpartition(":")[2]
    assert "negative" in report._repr_html_()


@pytest.mark.slow
def test_a_long_loop_is_compiled(form):
    """A million steps, of which one runs node by node."""
    r = np.random.default_rng(0).normal(size=1_000_000)
    r[700_000] = 100.0
    actual = diagnose(jaxify(garch, **form), np.array([0.1, -0.002, 0.9]), r).first
    assert (actual.op, actual.steps) == ("Log", (700_000,))


def test_nothing_to_find(form):
    report = diagnose(jaxify(garch, **form), np.array([0.1, 0.1, 0.5]), RETURNS)
    assert report.ok and report.first is None
    assert "step" not in str(report)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("at", [0, 61, 299])
def test_a_datum_that_is_nan(form, at):
    r = RETURNS.copy()
    r[at] = np.nan
    report = diagnose(jaxify(garch, **form), np.array([0.1, 0.1, 0.5]), r)
    assert (report.first.op, report.first.entry) == ("input", (at,))
    assert f"r[{at}] is nan" in str(report)


def test_shared_values_and_infinite_inputs(form):
    data = pytensor.shared(np.array([1.0, 2.0, np.nan]), name="data")
    x = pt.dvector("x")
    f = jaxify([x], (x * data).sum(), **form)
    assert "data[2] is nan" in str(diagnose(f, np.ones(3)))
    g = jaxify([x], x - x.mean(), **form)
    actual = diagnose(g, np.array([1.0, np.inf, 2.0])).first
    assert (actual.op, actual.entry) == ("input", (1,))
    assert "became nan" in "\n".join(actual.spread)


def nested(x):
    def outer(c, xi):
        def inner(d, k):
            lower = d - xi * 0.1 + 0 * k
            return lower, pt.sqrt(lower)

        d, ys = scan(inner, c, pt.arange(5.0))
        return d + 1.0, ys.sum()

    return scan(outer, pt.constant(2.0, dtype="float64"), x)[1].sum()


def test_loops_in_loops(form):
    x = np.full(12, 0.5)
    x[7] = 70.0
    report = diagnose(jaxify(nested, **form), x)
    actual = report.first
    assert (actual.op, actual.steps, actual.where) == ("Sqrt", (7, 1), "outer step 7, step 1")
    assert actual.line.endswith(line_of(nested, "pt.sqrt(lower)"))
    np.testing.assert_allclose(actual.operands[0].value, 2.0 + 7 - 7 * 5 * 0.05 - 14.0)
    assert re.findall(r"step (\d+)", str(report))[:2] == ["7", "1"]


def test_reversed_loops_and_branches(form):
    def program(x):
        def step(c, xi):
            new = cond(xi > 0, lambda: pt.log(c - xi), lambda: c + 1.0)
            return new, new

        return scan(step, pt.constant(3.0, dtype="float64"), x, reverse=True)[1].sum()

    x = -np.ones(9)
    x[3] = 100.0
    actual = diagnose(jaxify(program, **form), x).first
    assert (actual.op, actual.steps) == ("Log", (5,))  # rows 8, 7, 6, 5, 4 come before
    np.testing.assert_allclose(actual.operands[0].value, 3.0 + 5 - 100)


def test_a_loop_that_stops_and_one_that_overflows(form):
    def program(x):
        return loopax.while_loop(lambda c: c < np.float64(1e300), lambda c: c * c * 1e3, x)

    report = diagnose(jaxify(program, **form), 10.0)
    actual = report.first
    assert (actual.op, actual.kind) == ("Mul", "inf")
    c, step = 10.0, 0
    while math.isfinite(c * c * 1e3):
        c, step = c * c * 1e3, step + 1
    assert actual.steps == (step,)
    assert "overflow" in actual.why


@pytest.mark.slow
def test_a_probability_that_underflows():
    """XLA takes subnormal numbers for 0, so that it comes there earlier."""

    def program(p):
        def step(alpha, row):
            new = alpha * row
            return new, pt.log(new.sum())

        return scan(step, pt.ones(2) / 2, p)[1].sum()

    p = np.full((400, 2), 10**-6.0)
    steps = {
        name: diagnose(jaxify(program, **form), p).first.steps[0]
        for name, form in FORMS.items()
        if name != "auto"
    }
    alpha = np.ones(2) / 2
    native = next(k for k in range(400) if (alpha := alpha * 10**-6.0).sum() == 0)
    alpha, tiny = np.ones(2) / 2, np.finfo(float).tiny
    xla = next(
        k
        for k in range(400)
        if (alpha := np.where(alpha * 1e-6 < tiny, 0, alpha * 1e-6)).sum() == 0
    )
    assert steps == {"xla": xla, "native": native, "numba": native}


def test_an_index_out_of_range_is_a_finding():
    def program(x, rows):
        return scan(lambda c, k: (c + x[k], None), pt.constant(0.0, dtype="float64"), rows)[0]

    for form in FORMS["native"], FORMS["numba"]:
        report = diagnose(jaxify(program, **form), np.arange(5.0), np.array([1, 2, 9, 1]))
        actual = report.first
        assert (actual.kind, actual.op, actual.steps) == ("error", "Subtensor", (2,))
        assert [int(o.value) for o in actual.operands if o.value.ndim == 0] == [9]
        assert "IndexError" in actual.why


@pytest.mark.slow
def test_a_matrix_that_is_not_positive_definite(form):
    a = pt.dmatrix("a")
    f = jaxify([a], pt.log(pt.diagonal(pt.linalg.cholesky(a))).sum(), **form)
    actual = diagnose(f, np.array([[1.0, 2.0], [2.0, 1.0]])).first
    assert actual.op == "Cholesky"
    assert "smallest eigenvalue is -1" in actual.why


def test_an_infinity_that_a_mask_throws_away(form):
    x = pt.dvector("x")
    y = pt.switch(x > 0, pt.log(x), 0.0)
    assert diagnose(jaxify([x], y.sum(), **form), np.array([0.0, 1.0])).ok
    # What reads the mask's other branch is the cause, not the branch that was thrown away.
    f = jaxify([x], (y + pt.sqrt(x - 1.0)).sum(), **form)
    actual = diagnose(f, np.array([0.0, 2.0])).first
    assert (actual.op, actual.entry) == ("Sqrt", (0,))


@pytest.mark.slow
def test_rows_of_batches():
    thetas = np.array([[0.1, 0.1, 0.5]] * 6 + [[0.1, -0.3, 0.9]])
    alone = diagnose(jaxify(garch), thetas[6], RETURNS).first
    for backend in "jax", "numba":
        batch = loopax.vmap(jaxify(garch, backend=backend), in_axes=(0, None))
        report = diagnose(batch, thetas, RETURNS)
        assert report.first.op == "Log"
        assert report.first.steps[: len(alone.steps)] == alone.steps
        assert report.first.line == alone.line
        assert "row 6" in str(report) or "[6]" in str(report)
    inside = jaxify(lambda thetas, r: loopax.vmap(lambda t: garch(t, r))(thetas).sum())
    actual = diagnose(inside, thetas, RETURNS).first
    assert (actual.op, actual.entry, actual.steps) == ("Log", (6,), alone.steps)
    assert actual.line == alone.line


def test_the_loops_of_pytensor(form):
    x, a = pt.dvector("x"), pt.dscalar("a")
    hs = pytensor.scan(
        lambda xt, h: a * h + pt.log(xt),
        sequences=[x],
        outputs_info=[pt.constant(0.0, dtype="float64")],
        return_updates=False,
    )
    f = jaxify([x, a], hs[-1], **form)
    values = np.ones(20)
    values[13] = -2.0
    actual = diagnose(f, values, 0.5).first
    assert (actual.op, actual.steps) == ("Log", (13,))
    assert actual.operands[0].value == -2.0


def test_what_it_takes():
    x = pt.dscalar("x")
    bad = {"function": pytensor.function([x], pt.log(x)), "python": lambda x: pt.log(x)}
    for f in bad.values():
        assert diagnose(f, -1.0).first.op == "Log"
    import jax

    f = jaxify([x], pt.log(x))
    assert diagnose(jax.jit(f), -1.0).first.op == "Log"
    with pytest.raises(TypeError, match="loopax.vmap"):
        diagnose(jax.vmap(f), np.array([-1.0]))
    with pytest.raises(TypeError, match="This needs a function that jaxify returned"):
        diagnose(3, 4)
    with pytest.raises(TypeError, match="cannot look into hessian"):
        diagnose(loopax.hessian(f), -1.0)


@pytest.mark.sampled(1)
def test_bounds_of_names(form):
    f = jaxify(garch, **form)
    theta = np.array([0.1, 0.2, 0.3])
    h, highest = theta[0], []
    for r in RETURNS:
        h = theta[0] + theta[1] * r**2 + theta[2] * h
        highest.append(h)
    bound = sorted(highest)[-3]
    step = next(k for k, h in enumerate(highest) if h > bound)
    actual = diagnose(f, theta, RETURNS, within={"h": (0, bound)}).first
    assert (actual.kind, actual.steps) == ("range", (step,))
    assert diagnose(f, theta, RETURNS, within={"h": (0, np.inf)}).ok
    assert diagnose(f, theta, RETURNS, within={"r": (-1, 1)}).first.op == "input"
    with pytest.raises(ValueError, match=r"names k, but the program has no such variable.*h"):
        diagnose(f, theta, RETURNS, within={"k": (0, 1)})
    with pytest.raises(ValueError, match=r"within=\{'h': \(0, 1\)\}"):
        diagnose(f, theta, RETURNS, within={"h": (1, 0)})


@pytest.mark.slow
def test_a_report_is_short():
    y = x = pt.dvector("x")
    for _ in range(500):
        y = pt.tanh(y) + pt.sin(y)
    report = diagnose(jaxify([x], pt.log(y - 100).sum()), np.ones(5000))
    assert report.first.op == "Log"
    assert len(str(report)) < 20_000
