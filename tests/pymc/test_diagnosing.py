"""`loopax.pymc.diagnose`: models with a term or a slope that is not finite."""

import numpy as np
import pytensor.tensor as pt
import pytest

pm = pytest.importorskip("pymc")

import loopax.pymc  # noqa: E402
from loopax import diagnose, scan  # noqa: E402
from tests.diagnosis.test_diagnose import line_of  # noqa: E402

DATA = np.array([0.1, 0.2, 0.5])


def model_of_a_negative_logarithm():
    with pm.Model() as model:
        a = pm.Normal("a")
        rate = pt.log(a - 1.0)
        pm.Normal("y", rate, 1.0, observed=DATA)
    return model


@pytest.mark.slow
def test_a_parameter():
    model = model_of_a_negative_logarithm()
    for report in loopax.pymc.diagnose(model), diagnose(model):
        assert report.first.op == "Log"
        assert report.first.line.endswith(line_of(model_of_a_negative_logarithm, "pt.log"))
        assert report.first.operands[0].value == -1.0
        assert np.isnan(report.terms["y"]) and np.isfinite(report.terms["a"])
        assert "y is not finite" in str(report) and "log-density of y" in str(report)
    assert loopax.pymc.diagnose(model, {"a": 2.0}).ok


def model_out_of_its_domain():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", 0.0, a, observed=DATA)
    return model


def test_a_check_of_a_parameter():
    model = model_out_of_its_domain()
    report = loopax.pymc.diagnose(model, {"a": -1.0})
    assert report.terms["y"] == -np.inf
    assert "sigma > 0" in report.first.why
    assert report.first.line.endswith(line_of(model_out_of_its_domain, 'pm.Normal("y"'))


def test_a_loop_in_a_potential():
    with pm.Model() as model:
        w = pm.HalfNormal("w")
        r = np.random.default_rng(0).normal(size=100)

        def step(h, x):
            new = w - 0.5 * h - 0.5 * x**2
            return new, pt.log(new)

        pm.Potential("paths", scan(step, w, r)[1].sum())
    h, steps = 1.0, 0
    for x in r:
        h = 1.0 - 0.5 * h - 0.5 * x**2
        if h < 0:
            break
        steps += 1
    report = loopax.pymc.diagnose(model, {"w_log__": 0.0})
    assert (report.first.op, report.first.steps) == ("Log", (steps,))


@pytest.mark.slow
def test_slopes():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Flat("b")
        pm.Normal("y", pt.sqrt(pt.abs(a)), 1.0, observed=DATA)
        pm.Normal("c", sigma=1e-9)
    report = loopax.pymc.diagnose(model, {"a": 0.0, "b": 0.0, "c": 1.0})
    assert report.first.in_gradient and report.first.op == "Sqrt"
    report = loopax.pymc.diagnose(model, {"a": 1.0, "b": 0.0, "c": 1.0})
    assert report.ok
    assert any("slope by b is 0" in note for note in report.notes)
    assert any("Rescale" in note for note in report.notes)


def test_a_trace_with_divergences():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 3.0)
        pm.Normal("x", 0.0, scale)
        pm.Normal("y", pt.log(scale - 0.5), 1.0, observed=0.3)
    trace = pm.sample(
        draws=2, tune=2, chains=1, model=model, progressbar=False, random_seed=1,
        initvals={"scale": 2.0}, compute_convergence_checks=False,
    )  # fmt: skip
    trace.sample_stats["diverging"][:] = True
    trace.posterior["scale"][:] = 0.25
    report = loopax.pymc.diagnose(model, trace)
    assert report.first.op == "Log"
    np.testing.assert_allclose(report.first.operands[0].value, -0.25)
    trace.sample_stats["diverging"][:] = False
    assert loopax.pymc.diagnose(model, trace).ok


def test_other_tools_take_a_model():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.ones(3))
    assert loopax.compare(model).ok
    assert loopax.profile(model, {"mu": 0.3}).parts
