"""The figures as one table that fits a screen, and as JSON."""

import os
import platform
from importlib.metadata import version
from typing import Any, NamedTuple

import jax

from benchmarks import calls
from benchmarks.measure import Estimate, Pairs

ENOUGH = 9  # pairs; fewer show that it runs, not how fast


class Figure(NamedTuple):
    """One thing measured. What is compared with the limit is a ratio, or seconds (`calls`)."""

    program: str
    comparison: str
    measured: str  # "call", "first result" or "call overhead"
    limit: float
    pairs: Pairs

    @property
    def estimate(self) -> Estimate:
        overhead = self.measured == "call overhead"
        return self.pairs.difference if overhead else self.pairs.ratio

    @property
    def holds(self) -> str:
        """yes or no, by the median; with a question mark where the limit lies in the interval."""
        if len(self.pairs.ours) < ENOUGH:
            return "-"
        if self.comparison == "control":
            return ""
        median, low, high = self.estimate
        return ("yes" if median <= self.limit else "no") + ("?" if low <= self.limit < high else "")


def environment() -> dict[str, Any]:
    packages = {name: version(name) for name in ("loopax", "pytensor", "jax", "jaxlib", "numpy")}
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        **packages,
        "device": device.device_kind,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def table(figures: list[Figure], about: dict[str, Any]) -> str:
    """One line for each program and comparison, then one for each number of arguments."""
    by_row: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        by_row.setdefault((figure.program, figure.comparison), []).append(figure)
    lines = [
        "loopax {loopax}, PyTensor {pytensor}, JAX {jax}, Python {python}; {device}, {cores} cores, "
        "load {load} at the start".format(**about)
    ]
    loops = [row for row in by_row.values() if row[0].measured != "call overhead"]
    if loops:
        lines += ["", loop_line("", "", ["one call", "first result"]), loop_line("", "", [TITLE] * 2)]
    last = None
    for row in loops:
        first = row[0]
        name = "" if first.program == last else first.program
        last = first.program
        lines.append(loop_line(name, first.comparison, [cell(figure) for figure in row]))
    overheads = [figure for figure in figures if figure.measured == "call overhead"]
    if overheads:
        lines += ["", "direct call, beside jax.jit of the same function"]
        lines += [overhead_line(figure) for figure in overheads]
    return "\n".join(line.rstrip() for line in lines)


TITLE = f"{'ratio':>5} {'interval':^12}  {'limit':>5} {'holds':<5} {'hand':>7}"


def loop_line(program: str, comparison: str, cells: list[str]) -> str:
    return f"{program:<23}{comparison:<14}" + " | ".join(f"{one:<{len(TITLE)}}" for one in cells)


def cell(figure: Figure) -> str:
    median, low, high = figure.estimate
    limit = "" if figure.comparison == "control" else f"{figure.limit:g}"
    hand = seconds(figure.pairs.theirs)
    interval = f"[{low:.2f}, {high:.2f}]"
    return f"{median:>5.2f} {interval:<12}  {limit:>5} {figure.holds:<5} {hand:>7}"


def overhead_line(figure: Figure) -> str:
    more = [f"{x * 1e6:.1f}" for x in figure.estimate]
    jit, ratio = seconds(figure.pairs.theirs), figure.pairs.ratio
    return (
        f"{figure.program:<37}{more[0]:>5} us more [{more[1]}, {more[2]}]  limit {calls.LIMIT * 1e6:g} us "
        f" {figure.holds:<4}  jax.jit {jit}, ratio {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    )


def seconds(times: Any) -> str:
    median = sorted(times)[len(times) // 2]
    return f"{median * 1e3:.0f} ms" if median > 0.01 else f"{median * 1e6:.3g} us"


def as_json(figures: list[Figure], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, every pair included: [ours, theirs] in seconds."""
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
                "pairs": [list(map(float, pair)) for pair in zip(*figure.pairs, strict=True)],
            }
            for figure in figures
        ],
    }
