"""`loopax.compare`: programs that agree in every form, and programs with one wrong part."""

import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.link.jax.dispatch import jax_funcify

import loopax
from loopax import compare, cond, jaxify, scan
from tests.diagnosis.test_diagnose import RETURNS, garch, line_of
from tests.support.ops import SameType

WAYS = ("PyTensor's Python mode", "JAX's operations", "native code in JAX", "native code")


class WrongInJax(SameType):
    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] ** 2

    def pullback(self, inputs, outputs, cotangents):
        return [2 * cotangents[0] * inputs[0]]


class WrongSlope(SameType):
    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] ** 2

    def pullback(self, inputs, outputs, cotangents):
        return [3 * cotangents[0] * inputs[0]]


@jax_funcify.register(WrongInJax)
def _(op, **kwargs):
    return lambda x: x**2 + jnp.where(x > 2, 1e-3, 0.0)


@pytest.mark.slow
def test_a_program_that_agrees():
    report = compare(jaxify(garch), np.array([0.1, 0.1, 0.5]), RETURNS[:50])
    assert report.ok and report.first is None
    text = str(report)
    assert "everything agrees" in text
    for said in (*WAYS, "gradient", "second derivative", "finite differences", "float32"):
        assert said in text
    assert all(row.difference < 1e-3 for row in report.rows)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"backend": "numba"}, {"loops": "xla"}])
def test_loops_branches_and_integers(options):
    def program(x, k):
        def step(c, r):
            return cond(r > 0, lambda: c * pt.cos(r), lambda: c + r), c

        final, ys = scan(step, pt.constant(1.0, dtype="float64"), x, reverse=True)
        return final, ys[k], pt.argmax(ys), ys > 0

    x = np.array([0.3, -0.2, 0.5, -0.9])
    assert compare(jaxify(program, **options), x, 2).ok


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_conversion_that_is_wrong():
    def program(x):
        return scan(lambda c, r: (c + pt.sin(WrongInJax()(r)), None), pt.zeros(3), x)[0]

    x = np.linspace(0.0, 1.5, 15).reshape(5, 3)
    assert compare(jaxify(program), x).ok
    x[3, 1] = 2.5
    report = compare(jaxify(program), x)
    assert not report.ok
    apart = {(row.one, row.other) for row in report.rows if not row.ok and row.what == "value"}
    assert (WAYS[0], WAYS[1]) in apart and (WAYS[0], WAYS[3]) not in apart
    assert (report.first.op, report.first.steps, report.first.entry) == ("WrongInJax", (3,), (1,))
    np.testing.assert_allclose(report.first.operands[0].value[1], 2.5)
    assert "JAX's operations gives 6.251" in str(report)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_pullback_that_is_wrong():
    def program(x):
        return scan(lambda c, r: (c + pt.sin(WrongSlope()(r)), None), pt.zeros(3), x)[0]

    report = compare(jaxify(program), np.linspace(0.1, 1.5, 15).reshape(5, 3))
    assert not report.ok
    assert {row.what for row in report.rows if not row.ok} == {"gradient", "second derivative"}
    assert report.first.op == "WrongSlope" and report.first.in_gradient
    assert report.first.line.endswith(line_of(test_a_pullback_that_is_wrong, "WrongSlope()(r)"))
    assert report.notes  # an op without a conversion


@pytest.mark.slow
def test_single_precision():
    """A difference of large numbers, which no rewrite takes apart."""
    x = pt.dvector("x")
    f = jaxify([x], ((x + 1e8) ** 2 - 1e16).sum())
    report = compare(f, np.linspace(0.1, 1.0, 5))
    (row,) = [row for row in report.rows if row.other == "float32"]
    assert not row.ok and not report.ok
    assert [row for row in report.rows if row.other != "float32" and not row.ok] == []


@pytest.mark.slow
def test_models_and_shared_values():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, 1.0, observed=np.arange(4.0))
    assert compare(loopax.pymc.logp(model), {"a": 0.3}).ok


def test_what_it_does_not_take():
    with pytest.raises(TypeError, match="needs a function"):
        compare(3)


@pytest.mark.slow
def test_step_sizes_fit_each_entry():
    """Arguments of different sizes, kinks nearby, and small numbers behind a logarithm."""
    x, s = pt.dvector("x"), pt.dscalar("s")
    f = jaxify([x, s], (pt.sin(x) * s + pt.abs(x) + pt.log(x**2 + 1e-9)).sum())
    assert compare(f, np.random.default_rng(0).normal(size=300), 1e5).ok
    assert compare(jaxify([x], pt.log(x).sum()), np.array([1e-5, 1e-4, 3.0])).ok


@pytest.mark.slow
def test_single_precision_programs_and_sparse_arguments():
    import scipy.sparse
    from pytensor import sparse

    x = pt.fvector("x")
    f = jaxify([x], (x**2).sum() + pt.exp(x).mean())
    assert compare(f, np.random.default_rng(0).normal(size=1000).astype("float32")).ok
    a, v = sparse.csr_matrix("a", dtype="float64"), pt.dmatrix("v")
    g = jaxify([a, v], sparse.structured_dot(a, v))
    assert compare(
        g, scipy.sparse.random(4, 5, 0.5, format="csr", random_state=0), np.ones((5, 2))
    ).ok
