"""The demo: its model against formulas that owe nothing to it, its estimates, its manners."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytensor
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

import matplotlib
from scipy.stats import multivariate_normal

from loopax import demo, jaxify
from loopax.__main__ import main
from loopax.demo import nile, picture

SCREEN_LINES, SCREEN_COLUMNS = 24, 80
STEPS = 6  # lines of progress, which share the screen with the report


@pytest.fixture(scope="module")
def flow():
    return nile.read_flow()[1]


@pytest.fixture(scope="module")
def model():
    return nile.local_level()


@pytest.fixture(scope="module")
def log_likelihood(model):
    return jaxify(model.inputs, model.log_likelihood)


@pytest.fixture(scope="module")
def estimate(log_likelihood, flow):
    return nile.maximise(log_likelihood, flow)


def log_likelihood_of_differences(variances, flow):
    """The same likelihood without a filter: a flat prior of the level leaves the differences.

    diff(flow) is a moving average of order one: N(0, S), S tridiagonal with
    level variance + 2 observation variance on the diagonal, -observation variance beside it.
    """
    observation, level = variances
    n = len(flow) - 1
    covariance = (level + 2 * observation) * np.eye(n)
    covariance -= observation * (np.eye(n, k=1) + np.eye(n, k=-1))
    return multivariate_normal.logpdf(np.diff(flow), cov=covariance)


def test_data_are_the_books():
    years, flow = nile.read_flow()
    np.testing.assert_array_equal(years, np.arange(1871, 1971))
    assert flow.shape == (100,) and flow.dtype == "float64"
    assert flow.mean() == pytest.approx(919.35)


@pytest.mark.parametrize("variances", [(15099.0, 1469.1), (9000.0, 9000.0), (25000.0, 80.0)])
def test_likelihood_is_the_density_of_the_differences(variances, log_likelihood, flow):
    value = log_likelihood(np.log(variances), flow)
    assert value.shape == () and value.dtype == "float64"
    assert float(value) == pytest.approx(log_likelihood_of_differences(variances, flow), rel=1e-12)


def test_filter_is_the_books_recursion(model, flow):
    """Durbin & Koopman (2012), eq. 2.15, from a known level of enormous variance."""
    observation, level_variance = nile.PUBLISHED_VARIANCES
    mean, variance, levels, variances = 0.0, 1e14, [], []
    for value in flow:
        gain = variance / (variance + observation)
        levels.append(mean + gain * (value - mean))
        variances.append(variance * (1 - gain))
        mean, variance = levels[-1], variances[-1] + level_variance
    filtered = jaxify(model.inputs, {"level": model.level, "variance": model.variance})
    actual = filtered(np.log(nile.PUBLISHED_VARIANCES), flow)
    assert sorted(actual) == ["level", "variance"]
    np.testing.assert_allclose(actual["level"], levels, rtol=1e-6)
    # 1 - gain has lost nine digits in the first year.
    np.testing.assert_allclose(actual["variance"][1:], variances[1:], rtol=1e-2)
    np.testing.assert_allclose(actual["variance"][-1], variances[-1], rtol=1e-12)


def test_estimates_are_the_published_ones(estimate, log_likelihood, flow):
    observation, level = estimate.variances
    assert round(observation) == 15099
    # 1469.18 here, 1469.1 in the book: the likelihood cannot tell them apart, see below.
    assert level == pytest.approx(1469.1, abs=0.1)
    at_published = log_likelihood(np.log(nile.PUBLISHED_VARIANCES), flow)
    assert 0 <= estimate.log_likelihood - float(at_published) < 1e-7
    assert estimate.log_likelihood == pytest.approx(-632.5456, abs=5e-5)


def test_standard_errors_are_the_curvature_in_the_variances(estimate, flow):
    """Differences in the variances themselves: at a maximum the delta method adds nothing."""
    steps = np.diag(1e-3 * estimate.variances)

    def value(shift):
        return log_likelihood_of_differences(estimate.variances + shift, flow)

    hessian = [
        [
            (value(a + b) - value(a - b) - value(b - a) + value(-a - b)) / (4 * a.sum() * b.sum())
            for b in steps
        ]
        for a in steps
    ]
    expected = np.sqrt(np.diag(np.linalg.inv(-np.array(hessian))))
    assert (estimate.standard_errors > 0).all()
    np.testing.assert_allclose(estimate.standard_errors, expected, rtol=1e-4)


def test_pytensors_gradient_is_jaxs(model, log_likelihood, estimate, flow):
    gradient = jaxify(model.inputs, pytensor.grad(model.log_likelihood, model.log_variances))
    axes = nile.grid(estimate, shape=(5, 4))
    by_pytensor = nile.over_grid(gradient, flow, *axes)
    by_jax = nile.over_grid(jax.grad(log_likelihood), flow, *axes)
    assert by_pytensor.shape == (5, 4, 2)
    assert nile.largest_relative_difference(by_pytensor, by_jax) < 1e-10


def test_surface_holds_the_99_percent_region(log_likelihood, estimate, flow):
    observation_variances, level_variances = nile.grid(estimate, shape=(21, 22))
    surface = nile.over_grid(log_likelihood, flow, observation_variances, level_variances)
    assert surface.shape == (21, 22)
    assert float(surface[3, 5]) == pytest.approx(
        float(log_likelihood(np.log([observation_variances[3], level_variances[5]]), flow))
    )
    drop = np.asarray(surface) - estimate.log_likelihood
    assert drop.max() <= 0
    border = np.concatenate([drop[0], drop[-1], drop[:, 0], drop[:, -1]])
    assert border.max() < np.log(1 - max(picture.CONFIDENCE))


def test_relative_difference():
    a = np.array([[1.0, 2.0], [0.0, 4.0]])
    assert nile.largest_relative_difference(a, a) == 0
    assert nile.largest_relative_difference(a + [[0, 0], [0.4, 0]], a) == pytest.approx(0.1)


def test_picture_is_labelled_and_leaves_matplotlib_alone(tmp_path, estimate):
    years, flow = nile.read_flow()
    axes = nile.grid(estimate, shape=(9, 9))
    surface = -(np.log(axes[0][:, None] / 15099) ** 2) - np.log(axes[1] / 1469) ** 2
    before = dict(matplotlib.rcParams)
    figure = picture.draw(
        years,
        flow,
        flow,
        np.full(100, 4000.0),
        (*axes, surface + estimate.log_likelihood),
        estimate,
    )
    demo.save(figure, tmp_path / "nile.png")
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "nile.png").read_bytes().startswith(b"\x89PNG")
    for panel in figure.axes:
        assert panel.get_title() and panel.get_xlabel() and "m$^" in panel.get_ylabel()


def test_report_fits_one_screen():
    estimate = nile.Estimate(np.array([15098.52, 1469.18]), np.array([3146.0, 1280.0]), -632.5, 12)
    timings = [
        demo.Timing("loopax, jax.value_and_grad", 0.2, 1e-4),
        demo.Timing("loopax, pytensor.grad in JAX", 0.2, 1e-4),
        demo.Timing("loopax, native code", 2.3, 1e-5),
        demo.Timing("PyTensor, default mode (numba)", 123.4, 0.0123),
    ]
    result = demo.Result(estimate, nile.PUBLISHED_VARIANCES, 1.3e-8, 3721, 1.2e-13, timings)
    text = demo.report(result, Path("out/nile.png"))
    lines = text.splitlines()
    assert text.isascii()
    assert len(lines) + STEPS < SCREEN_LINES
    assert max(map(len, lines)) < SCREEN_COLUMNS
    assert "15099        3146       15099" in text
    assert "1469.2        1280      1469.1" in text
    assert lines[-2].split()[-1] == "123.0"  # the ratio


def test_missing_extra_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    assert main(["demo", "--output", str(tmp_path / "nile.png")]) == 1
    message = capsys.readouterr().err
    assert "needs scipy and matplotlib" in message and "pip install 'loopax[demo]'" in message


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("nile", "let --output end in .png"),
        ("nile.txt", "let --output end in .png"),
        ("a_file/nile.png", "cannot write the picture to"),
        ("a_folder.png", "cannot write the picture to"),
    ],
)
def test_bad_output_is_refused_before_any_work(output, message, monkeypatch, capsys, tmp_path):
    (tmp_path / "a_file").touch()
    (tmp_path / "a_folder.png").mkdir()
    monkeypatch.setattr(demo, "fit_and_draw", None)
    assert main(["demo", "--output", str(tmp_path / output)]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and "--output" in captured.err
    assert captured.out == ""


def test_command_line_without_a_command_shows_the_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "usage: python -m loopax" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_job(tmp_path):
    """As a user runs it, PyTensor's compilation included: nothing on stderr but the progress."""
    output = tmp_path / "new" / "nile.png"
    done = subprocess.run(
        [sys.executable, "-m", "loopax", "demo", "--output", str(output)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    progress = done.stderr.splitlines()
    assert [line.split()[0] for line in progress] == [f"[{i}/{STEPS}]" for i in range(1, STEPS + 1)]
    report = done.stdout.splitlines()
    assert len(progress) + len(report) < SCREEN_LINES
    assert report[-1] == f"Picture: {output}"
    assert output.stat().st_size > 10_000
