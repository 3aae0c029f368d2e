"""``loopax.pymc.sample(checkpoint=)``: killed, interrupted and called again."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")

import loopax  # noqa: E402
from loopax.pymc import CheckpointError  # noqa: E402
from loopax.pymc.checkpoints import blocks  # noqa: E402
from tests.pymc.checkpoints.killed_runs import draw, model, same  # noqa: E402

pytestmark = [
    pytest.mark.both_stacks,
    # numpyro, BlackJAX and what they import use names that JAX is about to drop.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no forks")


def needs(name, *points, module=None):
    module = module or name
    marks = [pytest.mark.slow]
    marks += [pytest.mark.skipif(not find_spec(module), reason=f"{module} is not installed")]
    return pytest.param(name, points, marks=marks, id=name)


@pytest.mark.slow
@posix
@pytest.mark.parametrize(
    ("sampler", "points"),
    [
        # Of each chain 60 draws, each a block and a state. The first file is run.json.
        pytest.param("pymc", ("2+", "21-", "100-"), id="pymc"),
        needs("pymc in processes", "1+", "2+", "21-", "30-", module="pymc"),
        # The state after the start; two states of tuning; then blocks.
        needs("numpyro", "1+", "2-", "2+", "1-", "2-", "1+", "1-"),
        needs("blackjax", "1+", "2-", "2+", "1-", "1+", "2-", "1+"),
        needs("nutpie", "1-", "1+", "2-", "2-", "1+", "2+"),
    ],
)
def test_draws_of_a_run_that_was_killed(tmp_path, sampler, points):
    """Draws equal those of a run that was not stopped, to the last bit."""
    program = [sys.executable, "-m", "tests.pymc.checkpoints.killed_runs", sampler]
    run = subprocess.run(
        [*program, str(tmp_path / "run"), *points],
        env={**os.environ, "LOOPAX_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    *_, resumed, plain = run.stdout.splitlines()
    assert resumed == "equal"
    # The draws are those of a call without checkpoint, too; BlackJAX's up to rounding. nutpie's chains
    # have seeds of their own.
    assert plain == "as without" or sampler in ("nutpie", "blackjax")


@pytest.mark.slow
def test_ctrl_c_keeps_the_draws(tmp_path, monkeypatch):
    """PyMC takes an interrupt for the end of its chain, and goes on with the next one."""
    monkeypatch.setattr(blocks, "_SECONDS", 0)
    monkeypatch.setattr(blocks, "_SHARE", 0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    drawn = []

    def callback(trace, draw):
        drawn.append(draw.chain)
        if len(drawn) == 40:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as interrupt:
        draw("pymc", checkpoint=folder, callback=callback)
    assert f"in {str(folder)!r}: the same call of loopax" in interrupt.value.__notes__[0]
    assert drawn == [0] * 40
    resumed = draw("pymc", checkpoint=folder, callback=callback)
    assert len(drawn) == 40 + 2 * 60  # all draws pass by, those that are kept too
    assert same(resumed, draw("pymc"))


@pytest.mark.slow
def test_another_model_other_data_or_arguments(tmp_path):
    draw("pymc", checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=r"(?s)another run:\s+draws: 30, now 31\s+Call"):
        draw("pymc", checkpoint=tmp_path, draws=31)
    other = model()
    with other:
        pm.set_data({"x": np.ones((20, 2))})
    options = {"draws": 30, "tune": 30, "chains": 2, "seed": 3, "checkpoint": tmp_path}
    with pytest.raises(CheckpointError, match=r"(?s)another run:\s+data 'x': other content\s+Call"):
        loopax.pymc.sample(other, "pymc", **options)


@pytest.mark.slow
def test_a_seed_of_the_folder(tmp_path):
    """The first call draws a seed, and later ones take it."""
    one = draw("pymc", checkpoint=tmp_path / "one", seed=None, chains=1)
    assert same(one, draw("pymc", checkpoint=tmp_path / "one", seed=None, chains=1))
    assert not same(one, draw("pymc", checkpoint=tmp_path / "two", seed=None, chains=1))


def test_what_cannot_go_on(tmp_path):
    with pytest.raises(CheckpointError, match="checkpoint= and trace= both store the draws"):
        draw("pymc", checkpoint=tmp_path, trace=object())
    with pytest.raises(CheckpointError, match="keep_warning_stat=True asks for objects"):
        draw("pymc", checkpoint=tmp_path, keep_warning_stat=True)
    with pm.Model() as smooth:
        x = pm.Normal("x")
        quiet = {"quiet": True, "progress": False, "cores": 1, "chains": 4, "draws": 10, "tune": 10}
        alone = pm.step_methods.DEMetropolis([x])
        with pytest.raises(CheckpointError, match="population of chains.*DEMetropolisZ"):
            loopax.pymc.sample(smooth, step=alone, checkpoint=tmp_path, **quiet)

        class Own(pm.step_methods.Metropolis):
            pass

        with pytest.raises(
            CheckpointError, match=r"PyMC's own steps, but .*Own is not one of them"
        ):
            loopax.pymc.sample(smooth, step=Own([x]), checkpoint=tmp_path, **quiet)


@pytest.mark.parametrize(("name", "_"), [needs("nutpie")])
def test_nutpie_gives_what_it_gives_without(tmp_path, name, _):
    """Groups, variables, dimensions and coordinates are those of a call without checkpoint."""
    options = {"idata_kwargs": {"include_transformed": True}, "discard_tuned_samples": False}
    plain, kept = draw(name, **options), draw(name, checkpoint=tmp_path, **options)
    assert {*plain.children} == {*kept.children}
    for group, expected in plain.children.items():
        assert list(kept[group].data_vars) == list(expected.data_vars)
        for variable, values in expected.data_vars.items():
            of_kept = kept[group][variable]
            assert (of_kept.dims, of_kept.dtype) == (values.dims, values.dtype)
            for coordinate in values.coords:
                np.testing.assert_array_equal(of_kept[coordinate], values[coordinate])
