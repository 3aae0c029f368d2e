"""`python -m benchmarks.gpu`: loops on a GPU beside the same loops written by hand with `lax.scan`.

On an accelerator each step of a loop starts kernels, of some microseconds each before they do anything. So
what counts is how many a step has, which is read from the program that XLA has compiled, and how many steps
come one after another. For each program of `programs`, forward and with its gradient: kernels a step of
both, and the time of both: the steps one by one, as ``parallel="auto"`` chooses, with ``parallel=True``.

Where there is no GPU it says so in one line, and that is all.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from benchmarks.comparisons import check_agreement, hand, hand_value_and_grad, value
from benchmarks.measure import Estimate, repeated_calls
from benchmarks.programs import PROGRAMS, Program
from benchmarks.report import environment
from benchmarks.step_kernels import Launches, launches_in_loops
from loopax import jaxify

FORMS: dict[str, Any] = {"one by one": False, "auto": "auto", "parallel": True}
HEAD = f"{'':<14}{'':<10}{'kernels a step':>16}{'':>2}" + "".join(f"{form:>20}" for form in FORMS)


class Row(NamedTuple):
    """A program beside the hand-written one: launches of both, and ratios of times by form."""

    title: str
    what: str
    launches: tuple[Launches, Launches]
    ratios: dict[str, Estimate]

    def __str__(self) -> str:
        ours, theirs = self.launches
        cells = [f"{r.median:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in self.ratios.values()]
        kernels = f"{ours} / {theirs}"
        return f"{self.title:<14}{self.what:<10}{kernels:>16}  " + "".join(
            f"{c:>20}" for c in cells
        )


def sides(p: Program, gradient: bool, form: Any) -> tuple[Callable, Callable]:
    """Loopax's and the hand-written function, compiled."""
    inputs, out = value(p)
    f = jaxify(inputs, out, loops="xla", parallel=form)
    if not gradient:
        return jax.jit(f), hand(p)
    return jax.jit(jax.value_and_grad(f, tuple(range(len(inputs))))), hand_value_and_grad(p)


def rows(names: list[str], pairs: int) -> Iterator[Row]:
    """One for each program and what is computed of it."""
    for p in (PROGRAMS[name] for name in names):
        args = [jax.device_put(x) for x in p.values()]
        for gradient in (False, True):
            plain = sides(p, gradient, False)
            check_agreement(*(f(*args) for f in plain))
            ours, theirs = (launches_in_loops(f.lower(*args).compile().as_text()) for f in plain)
            ratios = {
                form_name: repeated_calls(lambda s=form: sides(p, gradient, s), args, pairs).ratio  # noqa: B023
                for form_name, form in FORMS.items()
            }
            yield Row(p.title, "gradient" if gradient else "forward", (ours, theirs), ratios)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("which", nargs="*", help=f"of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--pairs", type=int, default=15, help="timed pairs (default: %(default)s)")
    parser.add_argument("--anywhere", action="store_true", help="without a GPU too, to see it run")
    asked = parser.parse_args(argv)
    if unknown := set(asked.which) - set(PROGRAMS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(PROGRAMS)}")
    if jax.default_backend() != "gpu" and not asked.anywhere:
        print(
            f"No GPU: JAX runs on {jax.default_backend()} here. This table is of kernels a step and times "
            "on a GPU, with pip install 'jax[cuda12]'; make bench measures on the CPU."
        )
        return 0
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    warnings.filterwarnings("ignore", message=".*takes its steps one by one")  # the table says so
    about = environment()
    print(f"loopax {about['loopax']}, JAX {about['jax']}; {about['device']}; {asked.pairs} pairs")
    print("ours / by hand, times as ratios of that; + g: so many steps of a loop are CUDA graphs")
    print(HEAD)
    for row in rows(asked.which or list(PROGRAMS), asked.pairs):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
