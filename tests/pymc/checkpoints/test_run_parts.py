"""Parts of runs: equal for equal runs, in any process."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")

import pytensor.tensor as pt  # noqa: E402
from pytensor import wrap_py  # noqa: E402

from loopax.pymc.checkpoints.folder import CheckpointError  # noqa: E402
from loopax.pymc.checkpoints.run_parts import run_parts  # noqa: E402

pytestmark = pytest.mark.both_stacks
OPTIONS = {"nuts_sampler": "pymc", "draws": 100, "random_seed": 1}


def line(prior=1.0, observed=(1.0, 2.0, 4.0), x=(0.0, 1.0, 2.0), transform=pt.exp, start=None):
    with pm.Model() as model:
        days = pm.Data("days", np.array(x))
        slope = pm.Normal("slope", 0, prior, initval=start)
        pm.Deterministic("transformed", transform(slope))
        pm.Normal("rise", slope * days, pm.HalfNormal("noise"), observed=list(observed))
    return model


def parts(model=None, **options):
    return run_parts(model or line(), "numba", {**OPTIONS, **options})


def differences(one, other):
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


def test_equal_runs_are_equal():
    assert parts() == parts()
    assert parts(random_seed=np.random.default_rng(3)) == parts(
        random_seed=np.random.default_rng(3)
    )
    indifferent = {"progressbar": False, "cores": 3, "callback": print, "tune": None, "quiet": True}
    assert parts(**indifferent) == parts()


@pytest.mark.slow
def test_equal_in_another_process():
    """Parts do not depend on the order of sets."""
    program = (
        "from tests.pymc.checkpoints.test_run_parts import parts; import json; "
        "print(json.dumps(parts()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    other = json.loads(run.stdout)
    # The test's own flags of JAX and PyTensor are not those of that process.
    assert differences(other, parts()) <= {"flags"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"prior": 2.0}, "model"),
        ({"transform": pt.log1p}, "model"),
        ({"start": 0.5}, "initial point"),
        ({"start": "prior"}, "initial point"),
        ({"observed": (1.0, 2.0, 5.0)}, "data 'rise'"),
        ({"x": (0.0, 1.0, 3.0)}, "data 'days'"),
    ],
)
def test_models_and_data(changes, name):
    assert name in (changed := differences(parts(), parts(line(**changes))))
    assert changed <= {name, "model"}


@pytest.mark.parametrize(
    "option",
    [
        {"draws": 101},
        {"random_seed": 2},
        {"random_seed": np.random.default_rng(1)},
        {"random_seed": [1, 2]},
        {"initvals": {"slope": 0.5}},
        {"initvals": {"slope": np.arange(100.0)}},
        {"nuts": {"target_accept": 0.9}},
        {"init": "adapt_diag"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_arguments(option):
    assert differences(parts(), parts(**option)) == set(option)


def test_the_generator_of_a_seed_counts_what_it_has_drawn():
    rng = np.random.default_rng(1)
    fresh = parts(random_seed=rng)
    rng.normal()
    assert differences(fresh, parts(random_seed=rng)) == {"random_seed"}
    rng = np.random.default_rng(1)
    rng.spawn(1)
    assert differences(fresh, parts(random_seed=rng)) == {"random_seed"}


def test_starts_by_variables():
    model = line()
    by_variable = parts(model, initvals={model["slope"]: 0.5})
    assert by_variable == parts(model, initvals={"slope": 0.5})


@pytest.mark.slow
def test_steps_are_told_apart_by_their_options():
    """A step has a generator, which is not that of a chain, and does not count."""

    def with_step(model=None, **options):
        model = model or line()
        mode = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
        with model:
            return parts(model, step=[pm.step_methods.NUTS(model.value_vars, **mode, **options)])

    assert with_step() == with_step()
    assert differences(with_step(), with_step(target_accept=0.9)) == {"step"}
    assert differences(parts(), with_step()) == {"step"}

    def metropolis(proposal):
        model = line()
        with model:
            return parts(model, step=pm.step_methods.Metropolis(proposal_dist=proposal))

    normal, cauchy = pm.step_methods.NormalProposal, pm.step_methods.CauchyProposal
    assert metropolis(normal) == metropolis(normal)
    assert differences(metropolis(normal), metropolis(cauchy)) == {"step"}


def test_an_argument_that_has_no_text():
    with pytest.raises(
        CheckpointError, match=r"nuts=.*holds an object.*numbers, strings and arrays"
    ):
        parts(nuts={"something": object()})


def test_ops_of_a_user_are_known_by_their_code():
    def with_op(add):
        @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
        def shifted(x):
            return np.asarray(x + add)

        return parts(line(transform=shifted))

    assert with_op(1.0) == with_op(1.0)
    assert differences(with_op(1.0), with_op(2.0)) == {"model"}
