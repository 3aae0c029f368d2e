"""Tables and a picture of the models: each route beside the mode of PyTensor's that it replaces."""

from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, hand

EVALUATION = "an evaluation"
FIRST = "build and first result"
MEMORY = "memory"
MODEL = (EVALUATION, FIRST, MEMORY)
COLUMNS = {"transpiled": "JAX", "jax.grad": "JAX", "Numba": "NUMBA"}  # beside which mode
# Over the models, where one is kept; first results beside what NUMBA mode, PyTensor's default, takes.
MEDIAN = {
    (EVALUATION, "transpiled"): 0.95,
    (EVALUATION, "jax.grad"): 0.95,
    (EVALUATION, "Numba"): 0.8,
    (FIRST, "transpiled"): 0.5,
    (FIRST, "jax.grad"): 0.5,
    (FIRST, "Numba"): 0.7,
}
WORST = {
    (EVALUATION, "transpiled"): 1.3,
    (EVALUATION, "jax.grad"): 1.3,
    (EVALUATION, "Numba"): 1.25,
}
TITLES = {
    EVALUATION: "models, log-density and gradient: one evaluation beside PyTensor's JAX and NUMBA modes",
    FIRST: "models: from the graph to the first result (gradient, build, compile, run)",
    MEMORY: "models: by how much the process grew for that, at its peak",
}
HEAD = f"{'JAX mode':>10} {'transpiled':>10} {'jax.grad':>10} | {'NUMBA mode':>10} {'Numba':>10}"


def models_table(figures: list[Figure]) -> str:
    lines = []
    for measured in MODEL:
        group = [figure for figure in figures if figure.measured == measured]
        if not group:
            continue
        lines += ["", TITLES[measured], "", f"{'':<26}{HEAD}"]
        for name, row in groupby(group, lambda figure: figure.program):
            lines.append(f"{name:<26}{cells({f.comparison: f for f in row})}")
        lines += [f"{what:<26}{over_models(group, what)}" for what in ("median", "worst")]
        lines += limits(group, measured)
    return "\n".join(line.rstrip() for line in lines)


def cells(row: dict[str, Figure]) -> str:
    ratios = {k: f"{row[k].estimate.median:.2f}" if k in row else "-" for k in COLUMNS}
    theirs = {
        mode: next((quantity(row[k]) for k in COLUMNS if COLUMNS[k] == mode and k in row), "-")
        for mode in ("JAX", "NUMBA")
    }
    return aligned(theirs, ratios)


def aligned(theirs: dict[str, str], ratios: dict[str, str]) -> str:
    left = f"{theirs['JAX']:>10} {ratios['transpiled']:>10} {ratios['jax.grad']:>10}"
    return f"{left} | {theirs['NUMBA']:>10} {ratios['Numba']:>10}"


def quantity(figure: Figure) -> str:
    """What the mode of PyTensor's took."""
    if figure.measured == MEMORY:
        return f"{np.median(figure.pairs.theirs) / 1e6:.3g} MB"
    return hand(figure)


def ratios(group: list[Figure], route: str) -> np.ndarray:
    """Of the models, (n,); those whose memory is not known left out."""
    ratios = np.array([f.estimate.median for f in group if f.comparison == route])
    return ratios[np.isfinite(ratios)]


def beside_numba(group: list[Figure], route: str) -> np.ndarray:
    """Of the models that NUMBA mode runs, (n,): what a route takes beside it."""
    numba = {
        f.program: np.median(f.pairs.theirs) for f in group if COLUMNS[f.comparison] == "NUMBA"
    }
    ours = {f.program: np.median(f.pairs.ours) for f in group if f.comparison == route}
    return np.array([ours[name] / numba[name] for name in ours if name in numba])


def over_models(group: list[Figure], what: str) -> str:
    over = np.median if what == "median" else np.max
    known = {route: ratios(group, route) for route in COLUMNS}
    return aligned(
        {"JAX": "", "NUMBA": ""},
        {route: f"{over(values):.2f}" if len(values) else "-" for route, values in known.items()},
    )


def limits(group: list[Figure], measured: str) -> list[str]:
    lines = []
    for what, over, kept in (("median", np.median, MEDIAN), ("worst", np.max, WORST)):
        for route in COLUMNS:
            limit = kept.get((measured, route))
            values = beside_numba(group, route) if measured == FIRST else ratios(group, route)
            if limit is not None and len(values):
                holds = "yes" if over(values) <= limit else "no"
                lines.append(
                    f"{route}, {what} of {len(values)}{' beside NUMBA mode' * (measured == FIRST)}: "
                    f"{over(values):.2f} (limit {limit:g}) {holds}"
                )
    return lines


def draw(figures: list[Figure], path: Path) -> None:
    """One dot for each model and route, left of the line where loopax takes less.

    On a `matplotlib.figure.Figure` without pyplot: no window, no global setting.
    """
    from matplotlib.figure import Figure as Picture

    kinds = [kind for kind in (EVALUATION, FIRST) if any(f.measured == kind for f in figures)]
    order = sorted(
        {f.program for f in figures},
        key=lambda name: max(
            f.estimate.median for f in figures if f.program == name and f.measured == kinds[0]
        ),
    )
    picture = Picture(figsize=(12, 1.5 + 0.22 * len(order)), dpi=120, layout="constrained")
    for axes, kind in zip(
        picture.subplots(1, len(kinds), sharey=True, squeeze=False)[0], kinds, strict=True
    ):
        for route, marker in zip(COLUMNS, "os^", strict=True):
            dots = [f for f in figures if f.measured == kind and f.comparison == route]
            axes.plot(
                [f.estimate.median for f in dots],
                [order.index(f.program) for f in dots],
                marker,
                markersize=5,
                alpha=0.8,
                label=f"{route} beside {COLUMNS[route]} mode",
            )
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_title(kind)
        axes.set_xlabel("loopax / PyTensor, log scale")
        axes.set_yticks(range(len(order)), order, fontsize=7)
        axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path)
