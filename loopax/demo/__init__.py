"""The demo: a PyTensor model of the Nile, fitted, drawn and timed, in JAX, natively and by PyTensor.

`main` is the job in order, `report` what it prints. SciPy and matplotlib come with the extra
`demo` and are imported only once it is known that they are there.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import pytensor

from loopax import jaxify, value_and_grad

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loopax.demo.nile import Estimate, LocalLevel


class DemoError(Exception):
    """Raised for a problem that the user can fix; the message says how."""


class Timing(NamedTuple):
    """Times of one way to compute value and gradient of the log-likelihood."""

    name: str
    ready: float  # seconds from the PyTensor graph to the first result, compilation included
    each: float  # seconds of one evaluation after that, median


class Result(NamedTuple):
    """Measurements of the demo, for `report`."""

    estimate: Estimate
    published_variances: tuple[float, float]
    published_deficit: float  # the maximum less the log-likelihood of the published variances
    points: int  # of the likelihood surface, where the gradients were compared
    gradient_difference: float  # largest relative one between pytensor.grad and jax.grad
    timings: list[Timing]  # the first one is the yardstick


def main(output: Path) -> None:
    """Fit the model, draw the picture to the path `output`, print the report."""
    require_extra()
    check_writable(output)
    progress = Progress(steps=6)
    try:
        # Both are so already, unless the user's floatX is float32: in double precision here only.
        with jax.enable_x64(True), pytensor.config.change_flags(floatX="float64"):
            result = fit_and_draw(output, progress)
    finally:
        progress.clear()
    print(report(result, output))


def fit_and_draw(output: Path, progress: Progress) -> Result:
    """The job: writes the picture to `output`, returns the Result."""
    from loopax.demo import nile, picture

    years, flow = nile.read_flow()
    model = nile.local_level()

    progress("maximising the likelihood")
    log_likelihood = jaxify(model.inputs, model.log_likelihood)
    estimate = nile.maximise(log_likelihood, flow)
    published = log_likelihood(np.log(nile.PUBLISHED_VARIANCES), flow)

    progress("the likelihood surface, by jax.vmap")
    axes = nile.grid(estimate)
    surface = nile.over_grid(log_likelihood, flow, *axes)

    progress("the gradient once more, by pytensor.grad, over the same points")
    gradient = jaxify(model.inputs, pytensor.grad(model.log_likelihood, model.log_variances))
    difference = nile.largest_relative_difference(
        nile.over_grid(gradient, flow, *axes), nile.over_grid(jax.grad(log_likelihood), flow, *axes)
    )

    progress("drawing the picture")
    filtered = jaxify(model.inputs, {"level": model.level, "variance": model.variance})
    path = filtered(np.log(estimate.variances), flow)
    figure = picture.draw(years, flow, path["level"], path["variance"], (*axes, surface), estimate)
    save(figure, output)

    progress("compiling value and gradient four ways, PyTensor's own default mode last")
    calls, ready = compile_all(model, nile.start(flow), flow)
    progress("timing them")
    each = interleaved_medians(calls.values())

    return Result(
        estimate,
        nile.PUBLISHED_VARIANCES,
        estimate.log_likelihood - float(published),
        surface.size,
        difference,
        [Timing(*row) for row in zip(calls, ready, each, strict=True)],
    )


def compile_all(
    model: LocalLevel, log_variances: np.ndarray, flow: np.ndarray
) -> tuple[dict[str, Callable[[], Any]], list[float]]:
    """Value and gradient four ways: {name: call without arguments}, seconds to the first result.

    They are called as an optimiser calls them: with a NumPy vector of parameters each time, and with the
    data where the function expects them (for JAX on its device).
    """
    on_device = jax.device_put(flow)

    def with_jax() -> Callable[[], Any]:
        function = jax.jit(jax.value_and_grad(jaxify(model.inputs, model.log_likelihood)))
        return lambda: jax.block_until_ready(function(log_variances, on_device))

    def natively() -> Callable[[], Any]:
        function = jaxify(model.inputs, model.log_likelihood, backend="numba")
        return partial(value_and_grad(function), log_variances, flow)

    def value_and_gradient() -> list[Any]:
        return [model.log_likelihood, pytensor.grad(model.log_likelihood, model.log_variances)]

    def with_pytensor_grad() -> Callable[[], Any]:
        function = jaxify(model.inputs, value_and_gradient())
        return lambda: jax.block_until_ready(function(log_variances, on_device))

    def with_pytensor() -> Callable[[], Any]:
        return partial(pytensor.function(model.inputs, value_and_gradient()), log_variances, flow)

    linker = type(pytensor.compile.mode.get_default_mode().linker).__name__
    linker = linker.removesuffix("Linker").lower()
    ways = {
        "loopax, jax.value_and_grad": with_jax,
        "loopax, pytensor.grad in JAX": with_pytensor_grad,
        "loopax, native code": natively,
        f"PyTensor, default mode ({linker})": with_pytensor,
    }
    calls, ready = {}, []
    for name, compile_one in ways.items():
        begin = time.perf_counter()
        calls[name] = compile_one()
        calls[name]()
        ready.append(time.perf_counter() - begin)
    return calls, ready


def interleaved_medians(
    calls: Iterable[Callable[[], Any]], rounds: int = 200, repeats: int = 10
) -> list[float]:
    """The median seconds of each call, over rounds in which each has its turn.

    The turns let a busy machine slow all of them; each turn has several calls in a row, as an optimiser
    makes them, so that none pays for the caches of its predecessor.
    """
    calls = list(calls)
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, record in zip(calls, seconds, strict=True):
            begin = time.perf_counter()
            for _ in range(repeats):
                call()
            record.append((time.perf_counter() - begin) / repeats)
    return [statistics.median(record) for record in seconds]


def report(result: Result, output: Path) -> str:
    """The printed text; together with the progress lines it fits a screen of 24 x 80."""
    estimate = result.estimate
    rows = zip(
        ("observation variance", "level variance"),
        estimate.variances,
        estimate.standard_errors,
        result.published_variances,
        (0, 1),  # decimals that the book prints
        strict=True,
    )
    yardstick = result.timings[0].each
    return "\n".join(
        [
            "Local level model of the Nile at Aswan, 1871-1970 (variances in (1e8 m3)^2)",
            f"{'':24}{'estimate':>12}{'std. error':>12}{'published':>12}",
            *(
                f"  {name:22}{value:12.{decimals}f}{error:12.0f}{book:12.{decimals}f}"
                for name, value, error, book, decimals in rows
            ),
            f"  {'log-likelihood':22}{estimate.log_likelihood:12.4f}"
            f"   ({result.published_deficit:.1e} above the published pair's)",
            "  Published: Durbin & Koopman (2012), sec. 2.2. Diffuse likelihood: the first",
            "  year starts the level and drops out. Standard errors: inverse jax.hessian in",
            "  log variances, times the variances (delta method)."
            f" SciPy: {estimate.evaluations} evaluations.",
            "Gradients by pytensor.grad, transpiled, and by jax.grad: relative difference",
            f"  at most {result.gradient_difference:.1e} over {result.points} points",
            f"{'Value and gradient':36}{'first result':>14}{'then each':>12}{'ratio':>8}",
            *(
                f"  {name:34}{ready:12.2f} s{1e6 * each:9.0f} us{each / yardstick:8.1f}"
                for name, ready, each in result.timings
            ),
            f"Picture: {output}",
        ]
    )


class Progress:
    """The current step on stderr: a line that overwrites itself on a terminal, else lines."""

    def __init__(self, steps: int) -> None:
        self.steps, self.done = steps, 0
        self.overwrite = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        self.done += 1
        line = f"[{self.done}/{self.steps}] {text} ..."
        if self.overwrite:
            print(f"\r{line:79}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.overwrite:
            print(f"\r{'':79}\r", end="", file=sys.stderr, flush=True)


def require_extra() -> None:
    """Refuse, before any work, if packages of the extra are missing."""
    missing = [name for name in ("scipy", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(
            f"needs {' and '.join(missing)}, from the extra `demo`:\n    pip install 'loopax[demo]'"
        )


def check_writable(output: Path) -> None:
    """Refuse, before any work, a path to which the picture cannot be written; create its folder."""
    from matplotlib.figure import Figure

    formats = Figure().canvas.get_supported_filetypes()
    if output.suffix.lower().removeprefix(".") not in formats:
        raise DemoError(
            f"cannot tell the format of the picture from {str(output)!r}: let --output end in .png, "
            ".pdf or .svg"
        )
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.exists():
            output.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise cannot_write(output, error) from error


def save(figure: Figure, output: Path) -> None:
    try:
        figure.savefig(output)
    except OSError as error:
        raise cannot_write(output, error) from error


def cannot_write(output: Path, error: OSError) -> DemoError:
    return DemoError(
        f"cannot write the picture to {str(output)!r} ({error.strerror}): "
        "name another file with --output"
    )
