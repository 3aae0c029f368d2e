"""The examples of more than one device or process: against SciPy, and against the program undivided."""

import ast
import re

import chex
import jax
import numpy as np
import pytest
from scipy import stats

from examples import data_parallel, many_data_sets, two_processes

PANEL = data_parallel.simulated()
THETA = np.array([0.4, -0.3])


def by_scipy(theta):
    before = np.hstack([np.zeros((len(PANEL), 1)), PANEL[:, :-1]])
    normal = stats.norm(np.tanh(theta[0]) * before, np.exp(theta[1]))
    return normal.logpdf(PANEL).sum() + 0.5 * np.log(2 * np.pi) * PANEL.size


@pytest.fixture(scope="module")
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()), ("devices",))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_a_log_density_over_eight_devices(mesh, loops, as_users_have_it):
    assert mesh.size == 8
    log_density = data_parallel.build(loops)
    divided = data_parallel.over_devices(log_density, mesh)
    value, slope = divided(THETA, PANEL)
    np.testing.assert_allclose(value, by_scipy(THETA), rtol=1e-12)
    chex.assert_trees_all_close(slope, jax.grad(log_density)(THETA, PANEL), rtol=1e-10)
    compiled = divided.lower(THETA, PANEL).compile().as_text()
    assert len(re.findall(r" all-reduce\(", compiled)) == 1


@pytest.mark.slow
def test_chains_over_devices(mesh):
    run = data_parallel.chains_over_devices(data_parallel.build(), mesh)
    draws = np.asarray(run(jax.random.split(jax.random.key(3), mesh.size), PANEL))[:, 500:]
    assert draws.shape == (8, 500, 2)
    means = draws.mean(1)
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    # The posterior of so long a panel is normal around least squares, of the persistence and of the scale.
    before, now = PANEL[:, :-1].ravel(), PANEL[:, 1:].ravel()
    persistence = before @ now / (before @ before)
    residuals = np.append(now - persistence * before, PANEL[:, 0])
    wanted = np.arctanh(persistence), np.log(residuals.std())
    assert np.all(np.abs(means.mean(0) - wanted) < 4 * error + 1e-3)


@pytest.mark.slow
def test_two_processes():
    lines = two_processes.run()
    assert [line.split(":")[0] for line in lines] == ["0", "1"]
    log_density = data_parallel.build()
    value, slope = jax.value_and_grad(log_density)(np.zeros(2), PANEL)
    for line in lines:
        actual, *of_slope = re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", line.split(":")[1])
        np.testing.assert_allclose(float(actual), value, rtol=1e-12)
        np.testing.assert_allclose(list(map(ast.literal_eval, of_slope)), slope, rtol=1e-10)


@pytest.mark.slow
def test_many_data_sets():
    data = many_data_sets.simulated()[:4]
    fits = many_data_sets.fit_all(many_data_sets.build(), data)
    for (persistence, scale), series in zip(fits, data, strict=True):
        before, now = np.append(0.0, series[:-1]), series
        least_squares = before @ now / (before @ before)
        np.testing.assert_allclose(persistence, least_squares, rtol=1e-5)
        np.testing.assert_allclose(
            scale, np.sqrt(np.mean((now - least_squares * before) ** 2)), rtol=1e-5
        )
