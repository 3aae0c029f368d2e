"""States of PyMC's steps, as arrays and back."""

import numpy as np
import pytest

pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")

from pymc import step_methods as methods  # noqa: E402
from pymc.step_methods.state import equal_dataclass_values  # noqa: E402

from loopax.pymc.checkpoints.folder import CheckpointError  # noqa: E402
from loopax.pymc.checkpoints.step_state import as_arrays, from_arrays  # noqa: E402

pytestmark = [
    pytest.mark.both_stacks,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of steps that PyMC would not choose
]


def dense_nuts():
    adapt = methods.hmc.quadpotential.QuadPotentialFullAdapt
    return normal(methods.NUTS, potential=adapt(2, np.zeros(2), np.eye(2), 10))()


def two_steps():
    x, k = pm.Normal("x", shape=2), pm.Poisson("k", 3.0)
    return methods.CompoundStep(
        [step([v], compile_kwargs=MODE) for step, v in ((methods.NUTS, x), (methods.Metropolis, k))]
    )


def normal(step, **options):
    return lambda: step([pm.Normal("x", shape=2)], compile_kwargs=MODE, **options)


MODE = {"mode": "FAST_COMPILE"}
STEPS = {
    "NUTS": normal(methods.NUTS),
    "NUTS, dense": dense_nuts,
    "HMC": normal(methods.HamiltonianMC),
    "Slice": normal(methods.Slice),
    "DEMetropolisZ": normal(methods.DEMetropolisZ),
    "Metropolis": lambda: methods.Metropolis([pm.Poisson("k", 3.0)], compile_kwargs=MODE),
    "BinaryMetropolis": lambda: methods.BinaryMetropolis(
        [pm.Bernoulli("b", 0.5)], compile_kwargs=MODE
    ),
    "BinaryGibbs": lambda: methods.BinaryGibbsMetropolis(
        [pm.Bernoulli("b", 0.5)], compile_kwargs=MODE
    ),
    "CategoricalGibbs": lambda: methods.CategoricalGibbsMetropolis(
        [pm.Categorical("c", [0.2, 0.8])], compile_kwargs=MODE
    ),
    "two": two_steps,
}


def step_and_point(name):
    with pm.Model() as model:
        return STEPS[name](), model.initial_point()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", STEPS)
def test_every_step_goes_on_as_it_would_have(name):
    step, point = step_and_point(name)
    rng = np.random.default_rng(1)
    if hasattr(step, "setup_chain"):
        step.setup_chain(rng, 10, 10)
    else:  # PyMC before 6.4
        step.set_rng(rng)
    for _ in range(5):
        point, _ = step.step(point)
    arrays = as_arrays(step.sampling_state)
    assert all(x.dtype != object for x in arrays.values())
    expected, at = [], point
    for _ in range(5):
        at, _ = step.step(at)
        expected.append(at)
    state = from_arrays(arrays, step.sampling_state)
    step.sampling_state = state
    assert equal_dataclass_values(step.sampling_state, state)
    for values in expected:
        point, _ = step.step(point)
        np.testing.assert_equal(point, values)


def test_what_is_refused():
    nuts, slices = (step_and_point(name)[0].sampling_state for name in ("NUTS", "Slice"))
    with pytest.raises(CheckpointError, match="holds the state of a .*State, but this step has a"):
        from_arrays(as_arrays(nuts), slices)
    slices.tune = print
    with pytest.raises(CheckpointError, match=r"state\.tune is a builtin_function"):
        as_arrays(slices)
