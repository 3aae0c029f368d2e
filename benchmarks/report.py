"""The figures as one table that fits a screen, and as JSON."""

import os
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import groupby
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.measure import Estimate, Pairs, estimate

ENOUGH = 9  # pairs; fewer show that it runs, not how fast (what is in process time needs none)
OVERHEAD = "direct call"
CHECKPOINT = "checkpoint"
NATIVE = "native"
KERNELS = "kernels"
JAX_FUNCTIONS = "native functions"
JAX_FIRST = "native functions, first result"
NATIVE_CALL = "native call"
NATIVE_GROWTH = "native growth"
COLD = "cold"
STOPPING = "stopping"
SIZES = "sizes"
PARALLEL = "parallel"
DEVICES = "devices"
PASSES = "passes"
GROWTH = "growth"
CALLS = (OVERHEAD, NATIVE_CALL, JAX_FIRST)
FEW = (GROWTH, NATIVE_GROWTH, COLD, JAX_FIRST)


class Memory(NamedTuple):
    """Temporary bytes of two compiled functions."""

    ours: int
    theirs: int
    limit: float  # of their ratio


class Figure(NamedTuple):
    """One thing measured. What a limit is set to is a ratio, or seconds for calls and `COLD`."""

    program: str
    comparison: str
    measured: str  # "one call", "first result", or one of the words above
    limit: float | None
    pairs: Pairs
    memory: Memory | None = None  # where it is measured too
    one_core: Estimate | None = None  # of a second run, by `--one-core`

    @property
    def estimate(self) -> Estimate:
        if self.measured == COLD:
            return estimate(self.pairs.ours)
        return self.pairs.difference if self.measured in CALLS else self.pairs.ratio

    @property
    def holds(self) -> str:
        """yes or no, by the median; with a question mark where the limit lies in the interval."""
        if self.limit is None:
            return ""
        if len(self.pairs.ours) < ENOUGH and self.measured not in FEW:
            return "-"
        median, low, high = self.estimate
        return ("yes" if median <= self.limit else "no") + ("?" if low <= self.limit < high else "")


def environment() -> dict[str, Any]:
    packages = ("loopax", "pytensor", "jax", "jaxlib", "numba", "numpy")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "device": jax.devices()[0].device_kind,
        "cores": len(os.sched_getaffinity(0))  # `taskset -c 0` leaves one
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


NATIVE_MEDIAN = {"forward": 1.2, "pytensor.grad": 3.0, "loopax.grad": 3.0}  # over the programs
COMPARED = tuple(NATIVE_MEDIAN)

HEAD = f"{'ratio':<5} {'interval':^12} {'limit':>5} {'holds':<5} {'hand':>7}"
ONE_CORE = f" {'1 core':>6}"
# The tables of programs that XLA may run on several cores.
BESIDE_XLA = ("one call", "first result", KERNELS, SIZES, JAX_FUNCTIONS, JAX_FIRST, STOPPING)


def table(figures: list[Figure], about: dict[str, Any]) -> str:
    """One line for each program and comparison, then one for each number of arguments."""
    lines = [
        "loopax {loopax}, PyTensor {pytensor}, JAX {jax}, Python {python}; {device}, {cores} cores, "
        "load {load} at the start; {pairs} pairs".format(**about)
    ]
    loops = [figure for figure in figures if figure.measured in ("one call", "first result")]
    if loops:
        head = HEAD + one_core_head(loops)
        titles = [f"{title:<{len(head)}}" for title in ("one call", "first result")]
        lines += ["", line("", "", titles), line("", "", [head, head])]
    for program, group in groupby(loops, lambda figure: figure.program):
        for comparison, row in groupby(group, lambda figure: figure.comparison):
            lines.append(line(program, comparison, [cell(figure) for figure in row]))
            program = ""  # once is enough
    for measured, title, head, row in SECTIONS:
        selected = [figure for figure in figures if figure.measured == measured]
        if selected:
            head = head and head + one_core_head(selected)
            lines += ["", title, *(["", head] if head else []), *map(row, selected)]
        if selected and measured == NATIVE:
            lines += ["", *medians(selected)]
        if selected and measured == JAX_FUNCTIONS:
            lines += ["", *medians_of_functions(selected)]
    return "\n".join(line.rstrip() for line in lines)


def medians(figures: list[Figure]) -> Iterator[str]:
    """Of the ratios that have a limit, over the programs."""
    counted = sorted(
        (f for f in figures if f.limit is not None), key=lambda f: COMPARED.index(f.comparison)
    )
    for comparison, group in groupby(counted, lambda f: f.comparison):
        ratios = [f.estimate.median for f in group]
        limit = NATIVE_MEDIAN[comparison]
        holds = "yes" if np.median(ratios) <= limit else "no"
        yield (
            f"{comparison:<14}of {len(ratios)}: median {np.median(ratios):.2f} (limit {limit:g}) {holds}, "
            f"worst {max(ratios):.2f}"
        )


def medians_of_functions(figures: list[Figure]) -> Iterator[str]:
    """Of the ratios of JAX functions."""
    for comparison in dict.fromkeys(f.comparison for f in figures):
        ratios = [f.estimate.median for f in figures if f.comparison == comparison]
        alone = [f.one_core.median for f in figures if f.comparison == comparison and f.one_core]
        on_one = f"; on one core {np.median(alone):.2f}, worst {max(alone):.2f}" if alone else ""
        middle, worst = np.median(ratios), max(ratios)
        yield f"{comparison:<14}of {len(ratios)}: median {middle:.2f}, worst {worst:.2f}{on_one}"


def line(program: str, comparison: str, cells: list[str]) -> str:
    return f"{program:<16}{comparison:<14}" + " | ".join(cells)


def cell(figure: Figure) -> str:
    median, low, high = figure.estimate
    limit = "" if figure.limit is None else f"{figure.limit:.3g}"
    interval = f"[{low:.2f}, {high:.2f}]"
    text = f"{median:<5.2f} {interval:<12} {limit:>5} {figure.holds:<5} {hand(figure):>7}"
    if figure.one_core is None or figure.measured not in BESIDE_XLA:
        return text
    return f"{text} {figure.one_core.median:>6.2f}"


def one_core_head(figures: list[Figure]) -> str:
    """The head of the column of one core, if there is one."""
    return ONE_CORE if any(f.one_core and f.measured in BESIDE_XLA for f in figures) else ""


def overhead_line(figure: Figure) -> str:
    median, low, high = (f"{1e6 * x:.1f}" for x in figure.estimate)
    limit = f"limit {1e6 * figure.limit:g} us  {figure.holds:<4}"
    ratio = "{:.2f} [{:.2f}, {:.2f}]".format(*figure.pairs.ratio)
    more = f"+{median} us [{low}, {high}]"
    return f"{figure.program:<25}{more:<22} {limit} ratio {ratio} of {hand(figure)}"


def checkpoint_line(figure: Figure) -> str:
    memory = figure.memory
    assert memory is not None
    fraction = memory.ours / memory.theirs
    kept = "yes" if fraction < memory.limit else "no"
    title = f"{figure.program}, {figure.comparison}"
    return (
        f"{title:<32}{cell(figure)} | 1/{1 / fraction:<5.0f} limit 1/{1 / memory.limit:.0f}  {kept:<4}"
        f"of {memory.theirs / 1e6:.3g} MB"
    )


def hand(figure: Figure) -> str:
    """The median time of the other side, in three digits."""
    seconds = float(np.median(figure.pairs.theirs))
    for unit, size in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if seconds < 999 * size or unit == "s":
            break
    number = seconds / size
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"


def row(figure: Figure) -> str:
    return line(figure.program, figure.comparison, [cell(figure)])


def wide_row(figure: Figure) -> str:
    return f"{figure.program:<16}{figure.comparison:<20}{cell(figure)}"


def function_row(figure: Figure) -> str:
    return f"{figure.program:<24}{figure.comparison:<10}{cell(figure)}"


def function_head(what: str) -> str:
    return f"{'':<34}{HEAD}".replace("ratio", f"{what:<5}")


def wide_head(what: str) -> str:
    return f"{'':<36}{HEAD}".replace("ratio", f"{what:<5}")


# What is measured, a title, a head, and how to write a figure.
SECTIONS: tuple[tuple[str, str, str, Callable[[Figure], str]], ...] = (
    (
        OVERHEAD,
        "a direct call beside jax.jit of the same function: us more, and the ratio",
        "",
        overhead_line,
    ),
    (
        CHECKPOINT,
        'value and gradients with checkpoint="sqrt" beside those without: time and memory',
        "",
        checkpoint_line,
    ),
    (
        NATIVE,
        "one native function beside hand-written Numba's forward pass (*: shapes not declared)",
        line("", "", [HEAD]),
        row,
    ),
    (
        KERNELS,
        "loops as jaxify chooses on the CPU beside hand-written JAX, both under jax.jit",
        line("", "", [HEAD]),
        row,
    ),
    (
        SIZES,
        "steps of n numbers, or matrices of n x n, beside hand-written JAX, both under jax.jit",
        line("", "", [HEAD]),
        row,
    ),
    (
        JAX_FUNCTIONS,
        "hand-written JAX by loopax.native beside the same by jax.jit",
        function_head("ratio"),
        function_row,
    ),
    (JAX_FIRST, "the same, seconds more to the first result", function_head("s"), function_row),
    (NATIVE_CALL, "a call beside Numba's dispatcher: us more, and the ratio", "", overhead_line),
    (STOPPING, "a loop that takes 100 of 100,000 steps", line("", "", [HEAD]), row),
    (
        PARALLEL,
        "loops in parallel over their steps beside the steps one by one",
        wide_head("ratio"),
        wide_row,
    ),
    (
        DEVICES,
        "a log-density and its gradient on two devices of the CPU beside one",
        wide_head("ratio"),
        wide_row,
    ),
    (PASSES, "the passes beside the whole time to the first result", wide_head("ratio"), wide_row),
    (GROWTH, "passes, seconds a node: beside the smallest program", wide_head("ratio"), wide_row),
    (
        COLD,
        "native, seconds to the first result; hand: how long Numba compiles the one by hand",
        wide_head("s"),
        wide_row,
    ),
    (
        NATIVE_GROWTH,
        "native, seconds to value and gradient for its size: beside the smallest",
        wide_head("ratio"),
        wide_row,
    ),
)


def as_json(figures: list[Figure], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, each pair included: [ours, theirs] in seconds."""
    return {
        "environment": about,
        "figures": [
            {
                "program": figure.program,
                "comparison": figure.comparison,
                "measured": figure.measured,
                "estimate": figure.estimate._asdict(),
                "ratio": figure.pairs.ratio._asdict(),
                "limit": figure.limit,
                "holds": figure.holds,
                "pairs": np.transpose(figure.pairs).tolist(),
                "memory": None if figure.memory is None else figure.memory._asdict(),
            }
            for figure in figures
        ],
    }
