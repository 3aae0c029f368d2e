"""`loopax.pymc.sample` and its kin. What needs a sampler that is not installed is skipped."""

import importlib
from contextlib import nullcontext
from importlib.util import find_spec

import numpy as np
import pytest

import loopax

pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")

pytestmark = [
    pytest.mark.both_stacks,
    # numpyro, BlackJAX and what they import use names that JAX is about to drop.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
QUIET = {"seed": 1, "progress": False, "compute_convergence_checks": False}
ROWS = np.random.default_rng(8).normal(size=(40, 2))


def needs(name):
    return pytest.param(
        name,
        marks=[
            pytest.mark.skipif(not find_spec(name), reason=f"{name} is not installed"),
            pytest.mark.slow,
        ],
    )


@pytest.fixture(scope="module")
def model():
    noise = np.random.default_rng(1).normal(size=40)
    with pm.Model(coords={"slope": ["a", "b"]}) as model:
        x = pm.Data("x", ROWS)
        slopes = pm.Normal("slopes", dims="slope")
        scale = pm.HalfNormal("scale")
        pm.Deterministic("twice", 2 * slopes, dims="slope")
        pm.Normal("y", x @ slopes, scale, observed=ROWS @ [1.0, -0.5] + 0.1 * noise)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["pymc", *map(needs, ("nutpie", "numpyro", "blackjax"))])
def test_sample(model, sampler):
    options = {"cores": 1} if sampler == "pymc" else {}
    trace = loopax.pymc.sample(
        model, sampler, draws=100, tune=200, chains=2, log_likelihood=True, **QUIET, **options
    )
    posterior = trace.posterior
    np.testing.assert_allclose(posterior["slopes"].mean(("chain", "draw")), [1.0, -0.5], atol=0.1)
    np.testing.assert_allclose(posterior["twice"], 2 * posterior["slopes"])
    assert posterior["slopes"].dims == ("chain", "draw", "slope")
    assert list(posterior.coords["slope"].values) == ["a", "b"]
    assert posterior.sizes["chain"] == 2 and posterior.sizes["draw"] == 100
    assert trace.log_likelihood["y"].shape == (2, 100, 40)
    assert "diverging" in trace.sample_stats and "observed_data" in trace


@pytest.mark.parametrize("sampler", [*map(needs, ("numpyro", "blackjax"))])
def test_native_code_in_samplers_of_jax(model, sampler):
    options = {"backend": "numba", "draws": 100, "tune": 200, "chains": 2}
    trace = loopax.pymc.sample(model, sampler, **options, **QUIET)
    np.testing.assert_allclose(
        trace.posterior["slopes"].mean(("chain", "draw")), [1.0, -0.5], atol=0.1
    )


@pytest.mark.parametrize("sampler", [needs("blackjax")])
@pytest.mark.parametrize(
    "mass", [{}, {"is_mass_matrix_diagonal": False}], ids=["diagonal", "dense"]
)
def test_no_tuning(model, sampler, mass):
    """BlackJAX's adaptation refuses to take no steps: the draws begin with what it would begin with."""
    settings = {"initial_step_size": 0.05, **mass}
    sizes = {"draws": 30, "tune": 0, "chains": 2, "nuts_sampler_kwargs": settings}
    trace = loopax.pymc.sample(model, sampler, **sizes, **QUIET)
    assert trace.posterior["slopes"].shape == (2, 30, 2)
    assert not trace.sample_stats["diverging"].all() and trace.posterior["slopes"].std() > 0


@pytest.mark.parametrize("name", [needs("nutpie")])
def test_nutpie_model(model, name):
    nutpie = importlib.import_module(name)
    compiled = loopax.pymc.nutpie_model(model)
    options = {"draws": 200, "tune": 200, "chains": 2, "seed": 1, "progress_bar": False}
    slopes = nutpie.sample(compiled, **options).posterior["slopes"]
    np.testing.assert_allclose(slopes.mean(("chain", "draw")), [1.0, -0.5], atol=0.1)
    other = nutpie.sample(compiled.with_data(x=2 * ROWS), **options).posterior["slopes"]
    np.testing.assert_allclose(other.mean(("chain", "draw")), [0.5, -0.25], atol=0.1)


def test_installed_takes_and_puts_back(model):
    in_jax = importlib.import_module("pymc.sampling.jax")
    theirs = in_jax.get_jaxified_logp, in_jax.get_jaxified_graph, in_jax._blackjax_inference_loop
    point = {"slopes": np.array([0.1, 0.2]), "scale_log__": np.array(0.3)}
    expected = model.compile_logp(mode="FAST_COMPILE")(point)
    with loopax.pymc.installed():
        assert in_jax.get_jaxified_logp is not theirs[0]
        np.testing.assert_allclose(in_jax.get_jaxified_logp(model)(list(point.values())), expected)
        negative = in_jax.get_jaxified_logp(model, negative_logp=False)
        np.testing.assert_allclose(negative([*point.values()]), -expected)
        variables = [model["twice"], model["scale"]]
        outputs = model.replace_rvs_by_values(variables)
        values = in_jax.get_jaxified_graph(model.value_vars, outputs)(*point.values())
        np.testing.assert_allclose(values[0], [0.2, 0.4])
    with pytest.raises(RuntimeError), loopax.pymc.installed(loops="xla"):
        raise RuntimeError
    with pytest.raises(ValueError, match="loops must be one of"), loopax.pymc.installed(loops="no"):
        pass
    now = in_jax.get_jaxified_logp, in_jax.get_jaxified_graph, in_jax._blackjax_inference_loop
    assert now == theirs


def test_refusals(model, monkeypatch):
    with pytest.raises(ValueError, match="sampler must be one of"):
        loopax.pymc.sample(model, "stan")
    with pytest.raises(ValueError, match=r"got 500.*by name: draws=500"):
        loopax.pymc.sample(model, 500)
    with pytest.raises(ValueError, match="backend must be one of"):
        loopax.pymc.sample(model, "pymc", backend="torch")
    for theirs, ours, value in (
        ("random_seed", "seed", 1),
        ("progressbar", "progress", False),
        ("nuts_sampler", "sampler", "pymc"),
    ):
        with pytest.raises(TypeError, match=f"'{ours}' and '{theirs}' are two names for one"):
            loopax.pymc.sample(model, **{theirs: value, ours: value})
    monkeypatch.setattr("loopax.pymc.sampling.find_spec", lambda name: None)
    for sampler in ("nutpie", "numpyro", "blackjax"):
        with pytest.raises(ImportError, match=f"pip install {sampler}"):
            loopax.pymc.sample(model, sampler)
    with pytest.raises(ImportError, match="pip install nutpie"):
        loopax.pymc.nutpie_model(model)
    monkeypatch.setattr("loopax.pymc.sampling.find_spec", lambda name: True)
    with pytest.raises(ValueError, match="works only with backend='numba'"):
        loopax.pymc.sample(model, "nutpie", backend="jax")


def test_models_that_take_other_steps_than_nuts(monkeypatch):
    """They are PyMC's own sampler's, where none is named; the others say of which variables."""
    with pm.Model() as mixed:
        kind = pm.Bernoulli("kind", 0.5)
        pm.Normal("y", pm.Normal("center"), 1.0 + kind, observed=ROWS[:, 0])
    monkeypatch.setattr("loopax.pymc.sampling.find_spec", lambda name: True)
    for sampler in ("nutpie", "numpyro", "blackjax"):
        with pytest.raises(ValueError, match=r"'kind' \(BinaryGibbsMetropolis\).*sampler='pymc'"):
            loopax.pymc.sample(mixed, sampler)
    monkeypatch.setattr("loopax.pymc.sampling.installed", lambda **_: nullcontext())
    asked = []
    monkeypatch.setattr(pm, "sample", lambda **options: asked.append(options["nuts_sampler"]))
    loopax.pymc.sample(mixed)
    with pm.Model() as smooth:
        x = pm.Normal("x")
    loopax.pymc.sample(smooth)
    loopax.pymc.sample(smooth, step=pm.Slice([x], model=smooth))
    assert asked == ["pymc", "nutpie", "pymc"]


def test_the_arguments_of_pm_sample(model, monkeypatch):
    """Each reaches ``pm.sample`` under its own name, however it was spelt, and the draws come first."""
    asked = []
    monkeypatch.setattr(pm, "sample", lambda **options: asked.append(options))
    monkeypatch.setattr("loopax.pymc.sampling.find_spec", lambda name: True)
    monkeypatch.setattr("loopax.pymc.sampling.installed", lambda *_, **__: nullcontext())
    theirs = {"random_seed": 3, "progressbar": False, "nuts_sampler": "numpyro"}
    others = {
        "tune": None,
        "chains": None,
        "cores": 1,
        "initvals": {"scale": 1.0},
        "var_names": ["scale"],
    }
    others |= {"idata_kwargs": {}, "mp_ctx": "spawn", "discard_tuned_samples": False}
    with model:
        loopax.pymc.sample(70, **theirs, **others)
    loopax.pymc.sample(model, "numpyro", draws=70, seed=3, progress=False, **others)
    assert asked[0] == asked[1]
    assert asked[0].items() >= {"draws": 70, "model": model, **theirs, **others}.items()
    loopax.pymc.sample(model, nuts_sampler="numpyro", nuts_sampler_kwargs={"target_accept": 0.9})
    assert "nuts" not in asked[2]  # PyMC refuses both
    loopax.pymc.sample(model, "pymc", compile_kwargs=None)  # PyMC's default, as it is written there
    assert asked[3]["compile_kwargs"] == {"mode": "LOOPAX_NUMBA"}


@pytest.mark.parametrize(
    "option",
    [{"init": "advi"}, {"callback": print}, {"initvals": [{"x": 1.0}, {"x": 2.0}]}]
    + [{"return_inferencedata": False}],
    ids=str,
)
def test_what_only_the_sampler_of_pymc_takes_chooses_it(monkeypatch, option):
    asked = []
    monkeypatch.setattr(pm, "sample", lambda **options: asked.append(options["nuts_sampler"]))
    monkeypatch.setattr("loopax.pymc.sampling.find_spec", lambda name: True)
    with pm.Model():
        pm.Normal("x")
        loopax.pymc.sample(**option)
    assert asked == ["pymc"]


@pytest.mark.parametrize("finite", [False, True])
def test_a_start_that_nutpie_refuses(monkeypatch, finite):
    """The error names the term that is not finite, whatever nutpie says."""

    def sample(**_):
        raise RuntimeError("All initialization points failed: ErrorCode(4)")

    with pm.Model() as model:
        a = pm.Uniform("a")
        pm.Uniform("y", 5 * a + (0 if finite else 10), 20, observed=3.0)
    monkeypatch.setattr(pm, "sample", sample)
    monkeypatch.setattr("loopax.pymc.sampling.find_spec", lambda name: True)
    monkeypatch.setattr("loopax.pymc.sampling.installed", lambda *_, **__: nullcontext())
    said = r"(?s)found no start.*initvals=" if finite else r"(?s)Starting values.*'y': .*-inf"
    with pytest.raises(pm.SamplingError, match=said):
        loopax.pymc.sample(model, "nutpie")
