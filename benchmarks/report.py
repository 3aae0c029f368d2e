"""The figures as one table that fits a screen, and as JSON."""

import os
import platform
from importlib.metadata import version
from itertools import groupby
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.measure import Estimate, Pairs

ENOUGH = 9  # pairs; fewer show that it runs, not how fast (growth, in process time, needs none)
OVERHEAD = "direct call"
CHECKPOINT = "checkpoint"
NATIVE = "native"
STOPPING = "stopping"
PASSES = "passes"
GROWTH = "growth"


class Memory(NamedTuple):
    """Temporary bytes of two compiled functions."""

    ours: int
    theirs: int
    limit: float  # of their ratio


class Figure(NamedTuple):
    """One thing measured. What a limit is set to is a ratio, or seconds for `OVERHEAD`."""

    program: str
    comparison: str
    measured: str  # "one call", "first result", or one of the words above
    limit: float | None
    pairs: Pairs
    memory: Memory | None = None  # where it is measured too

    @property
    def estimate(self) -> Estimate:
        return self.pairs.difference if self.measured == OVERHEAD else self.pairs.ratio

    @property
    def holds(self) -> str:
        """yes or no, by the median; with a question mark where the limit lies in the interval."""
        if self.limit is None:
            return ""
        if len(self.pairs.ours) < ENOUGH and self.measured != GROWTH:
            return "-"
        median, low, high = self.estimate
        return ("yes" if median <= self.limit else "no") + ("?" if low <= self.limit < high else "")


def environment() -> dict[str, Any]:
    packages = ("loopax", "pytensor", "jax", "jaxlib", "numpy")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


HEAD = f"{'ratio':<5} {'interval':^12} {'limit':>5} {'holds':<5} {'hand':>7}"


def table(figures: list[Figure], about: dict[str, Any]) -> str:
    """One line for each program and comparison, then one for each number of arguments."""
    lines = [
        "loopax {loopax}, PyTensor {pytensor}, JAX {jax}, Python {python}; {device}, {cores} cores, "
        "load {load} at the start; {pairs} pairs".format(**about)
    ]
    loops = [
        figure
        for figure in figures
        if figure.measured not in (OVERHEAD, CHECKPOINT, NATIVE, STOPPING, PASSES, GROWTH)
    ]
    if loops:
        titles = [f"{title:<{len(HEAD)}}" for title in ("one call", "first result")]
        lines += ["", line("", "", titles), line("", "", [HEAD, HEAD])]
    for program, group in groupby(loops, lambda figure: figure.program):
        for comparison, row in groupby(group, lambda figure: figure.comparison):
            lines.append(line(program, comparison, [cell(figure) for figure in row]))
            program = ""  # once is enough
    overheads = [figure for figure in figures if figure.measured == OVERHEAD]
    if overheads:
        lines += ["", "a direct call beside jax.jit of the same function: us more, and the ratio"]
        lines += [overhead_line(figure) for figure in overheads]
    checkpoints = [figure for figure in figures if figure.measured == CHECKPOINT]
    if checkpoints:
        lines += [
            "",
            'value and gradients with checkpoint="sqrt" beside those without: time and memory',
        ]
        lines += [checkpoint_line(figure) for figure in checkpoints]
    natives = [figure for figure in figures if figure.measured == NATIVE]
    if natives:
        lines += [
            "",
            "one native function beside hand-written Numba's forward pass",
            "",
            line("", "", [HEAD]),
        ]
        lines += [line(f.program, f.comparison, [cell(f)]) for f in natives]
    stoppings = [figure for figure in figures if figure.measured == STOPPING]
    if stoppings:
        lines += ["", "a loop that takes 100 of 100,000 steps", "", line("", "", [HEAD])]
        lines += [line(f.program, f.comparison, [cell(f)]) for f in stoppings]
    for measured, title in (
        (PASSES, "the passes beside the whole time to the first result"),
        (GROWTH, "passes, seconds a node: beside the smallest program"),
    ):
        found = [figure for figure in figures if figure.measured == measured]
        if found:
            lines += ["", title, "", f"{'':<36}{HEAD}"]
            lines += [f"{f.program:<12}{f.comparison:<24}{cell(f)}" for f in found]
    return "\n".join(line.rstrip() for line in lines)


def line(program: str, comparison: str, cells: list[str]) -> str:
    return f"{program:<11}{comparison:<14}" + " | ".join(cells)


def cell(figure: Figure) -> str:
    median, low, high = figure.estimate
    limit = "" if figure.limit is None else f"{figure.limit:.3g}"
    interval = f"[{low:.2f}, {high:.2f}]"
    return f"{median:<5.2f} {interval:<12} {limit:>5} {figure.holds:<5} {hand(figure):>7}"


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
