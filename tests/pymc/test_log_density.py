"""`loopax.pymc.logp` and ``jaxify(model)``: what PyMC's own functions of a model give."""

from functools import partial

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import LoopTypeError, MissingInputError, StatefulFunctionError, jaxify

pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")
cloudpickle = pytest.importorskip("cloudpickle")

pytestmark = pytest.mark.both_stacks
BOTH = pytest.mark.parametrize("backend", ["jax", "numba"])
RNG = np.random.default_rng(8)


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"slope": ["a", "b"]}) as model:
        scale = pm.HalfNormal("scale", 1.0)
        slopes = pm.Normal("slopes", 0.0, scale, dims="slope")
        x = pm.Data("x", RNG.normal(size=(6, 2)))
        pm.Deterministic("twice", 2 * slopes, dims="slope")
        pm.Normal("y", x @ slopes, scale, observed=RNG.normal(size=6))
    return model


@pytest.fixture(scope="module")
def point():
    return {"scale_log__": np.array(0.3), "slopes": np.array([0.1, -0.4])}


@pytest.fixture(scope="module")
def densities(model):
    return {backend: jaxify(model, backend=backend) for backend in ("jax", "numba")}


@pytest.mark.slow
@BOTH
def test_values_gradients_and_vectors(model, densities, point, backend):
    f = densities[backend]
    expected = model.compile_logp(mode="FAST_COMPILE")(point)
    np.testing.assert_allclose([f(point), f(**point)], expected, rtol=1e-12)
    value, slopes = f.value_and_gradient(point)
    by_pymc = model.compile_dlogp(mode="FAST_COMPILE")(point)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(f.flatten(slopes), by_pymc, rtol=1e-10)
    assert f.names == ["scale_log__", "slopes"]

    vector = f.flatten(point)
    np.testing.assert_array_equal(vector, [0.3, 0.1, -0.4])
    np.testing.assert_allclose(f.ravel(vector), expected, rtol=1e-12)
    np.testing.assert_allclose(loopax.grad(f.ravel)(vector), by_pymc, rtol=1e-10)
    again = f.unflatten(vector)
    assert {n: (x.shape, x.dtype) for n, x in again.items()} == {
        n: (x.shape, x.dtype) for n, x in point.items()
    }


def test_jax_transforms_it(densities, point):
    f = densities["jax"]
    slopes = jax.jit(jax.grad(f))(point)
    np.testing.assert_allclose(slopes["slopes"], f.gradient(point)["slopes"], rtol=1e-10)
    batch = jax.tree.map(lambda x: np.stack([x, x]), point)
    assert jax.vmap(f)(batch).shape == (2,)


@BOTH
def test_constrain_keeps_leading_axes(densities, point, backend):
    f = densities[backend]
    one = f.constrain(point)
    assert sorted(one) == ["scale", "slopes", "twice"]
    np.testing.assert_allclose(one["scale"], np.exp(0.3))
    draws = {n: np.broadcast_to(x, (2, 3, *x.shape)) for n, x in point.items()}
    many = f.constrain(draws)
    assert {n: np.shape(x) for n, x in many.items()} == {
        "scale": (2, 3),
        "slopes": (2, 3, 2),
        "twice": (2, 3, 2),
    }
    np.testing.assert_allclose(many["twice"], 2 * draws["slopes"])
    with pytest.raises(LoopTypeError, match="the same leading axes"):
        f.constrain({**draws, "scale_log__": np.zeros(3)})


@BOTH
def test_data_are_read_at_every_call(model, densities, point, backend):
    f, rows = densities[backend], model["x"].get_value()
    before = f(point)
    with model:
        try:
            pm.set_data({"x": 2 * rows})
            expected = model.compile_logp(mode="FAST_COMPILE")(point)
            np.testing.assert_allclose(f(point), expected, rtol=1e-12)
        finally:
            pm.set_data({"x": rows})
    assert f(point) == before


@BOTH
def test_a_parameter_out_of_its_domain_is_minus_infinity(backend):
    with pm.Model() as model:
        scale = pm.Normal("scale")
        pm.Normal("x", 0.0, scale, observed=1.0)
    assert loopax.pymc.logp(model, backend=backend)({"scale": -1.0}) == -np.inf


def test_options_and_the_jacobian(model, point):
    f = loopax.pymc.logp(model, jacobian=False, loops="xla")
    expected = model.compile_logp(jacobian=False, mode="FAST_COMPILE")(point)
    np.testing.assert_allclose(f(point), expected, rtol=1e-12)
    with model:
        assert loopax.pymc.logp().model is model
    with pytest.raises(ValueError, match="loops must be one of"):
        loopax.pymc.logp(model, loops="fast")
    assert loopax.pymc.logp(model, optimize="none")(point) == jaxify(model, loops="xla")(point)
    with pytest.raises(TypeError, match="no option 'transform': it has backend, jacobian, jit"):
        loopax.pymc.logp(model, transform=False)
    with pytest.raises(TypeError, match=r"loopax\.pymc\.logp\(model, jacobian=False\)"):
        jaxify(model, jacobian=False)
    with pytest.raises(TypeError, match="takes no outputs"):
        jaxify(model, model.logp())
    with pytest.raises(TypeError, match="takes no .*broadcasting"):
        jaxify(model, broadcasting="numpy")


def test_discrete_variables_have_a_value_and_no_slope():
    with pm.Model() as model:
        k = pm.Poisson("k", 3.0)
        pm.Normal("x", k, 1.0)
    f = jaxify(model)
    point = {"k": np.array(2), "x": np.array(0.5)}
    np.testing.assert_allclose(f(point), model.compile_logp(mode="FAST_COMPILE")(point))
    assert list(f.gradient(point)) == ["x"]
    assert f.unflatten(f.flatten(point))["k"].dtype == np.int64
    np.testing.assert_allclose(f.ravel([2.0, 0.5]), f(point))


@BOTH
def test_words_and_pickles(densities, point, backend):
    f = densities[backend]
    assert repr(f) == f"LogDensity(scale_log__: float64[], slopes: float64[2], backend={backend!r})"
    with pytest.raises(TypeError, match=r"takes a point, by name: .*f\.ravel\(f\.flatten"):
        f(0.3, np.zeros(2))
    with pytest.raises(MissingInputError, match="Did you mean 'scale_log__'"):
        f({"scale": 0.3, "slopes": np.zeros(2)})
    for of_point in (f.flatten, f.constrain):
        with pytest.raises(
            MissingInputError, match=r"slopes is not among scale_log__.*initial_point"
        ):
            of_point({"scale_log__": 0.3})
    with pytest.raises(LoopTypeError, match=r"vector of 3 values.*got one of shape \(4,\)"):
        f.unflatten(np.zeros(4))
    assert cloudpickle.loads(cloudpickle.dumps(f))(point) == f(point)


def test_what_is_no_model(model):
    for function in (loopax.pymc.logp, loopax.pymc.sample, loopax.pymc.nutpie_model):
        name = rf"loopax\.pymc\.{function.__name__}"
        with pytest.raises(
            TypeError, match=rf"There is no model.*{name}\(model\), .*`with model:`"
        ):
            function()
        with pytest.raises(
            TypeError, match=rf"{name} takes a PyMC model first, got 'm' of type str"
        ):
            function("m")


def test_a_model_is_explained(model, densities):
    by_name = str(loopax.explain(model))
    assert "logp of the model(scale_log__: float64[], slopes: float64[" in by_name
    assert by_name == str(loopax.explain(densities["jax"]))


@pytest.mark.slow
@BOTH
def test_transformations_of_loopax_take_it_as_a_function_of_a_point(densities, point, backend):
    f = densities[backend]
    slope, wanted = loopax.grad(f)(point), f.gradient(point)
    assert slope.keys() == wanted.keys()
    for name, by_method in wanted.items():
        np.testing.assert_allclose(slope[name], by_method, rtol=1e-10, err_msg=name)
    value, _ = loopax.value_and_grad(f)(point)
    np.testing.assert_allclose(value, f(point), rtol=1e-12)
    rows = {name: np.stack([x, x]) for name, x in point.items()}
    np.testing.assert_allclose(loopax.vmap(f)(rows), [value, value], rtol=1e-12)


def test_a_variable_that_a_step_captures_is_refused():
    """`pytensor.scan` would draw it at each step; PyMC refuses, too."""
    with pm.Model() as model:
        b = pm.Uniform("b", 0, 2)
        loop = partial(pytensor.scan, sequences=[pt.arange(4.0)], outputs_info=[pt.zeros(())])
        loop = partial(loop, return_updates=False)
        captured = loop(lambda t, p: b * p + pt.sin(t))
        passed = loop(lambda t, p, c: c * p + pt.sin(t), non_sequences=[b])
        term = pm.Potential("term", -(passed[-1] ** 2))
    at = {"b_interval__": np.array(0.3)}
    np.testing.assert_allclose(loopax.pymc.logp(model)(at), model.compile_logp()(at))
    with model:
        pm.Potential("other", term - captured[-1] ** 2)
    with pytest.raises(StatefulFunctionError, match="draws from 'uniform'.*non_sequences"):
        loopax.pymc.logp(model)


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_minibatch_is_not_drawn_again(backend):
    with pm.Model() as model:
        rows = pm.Minibatch(np.arange(20.0), batch_size=5)
        w = pm.Normal("w")
        pm.Normal("y", w, 1.0, observed=rows, total_size=20)
    with pytest.warns(UserWarning, match=r"(?s)every call makes the same draws.*pm\.Minibatch"):
        f = loopax.pymc.logp(model, backend=backend)
        at = {"w": np.array(1.0)}
        assert f(at) == f(at)
    if backend == "jax":  # what the warning advises
        moving = model.compile_logp(mode="LOOPAX")
        assert len({float(moving(at)) for _ in range(5)}) > 1
