"""The picture of the demo: the filtered level over the data, and the likelihood surface.

Drawn on a `matplotlib.figure.Figure` without pyplot, so no backend, window or global setting of
the caller's matplotlib is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from loopax.demo.nile import Estimate

# Half width of a 90 % band of the normal distribution, in standard deviations.
Z90 = 1.6448536269514722
# Joint confidence regions of two parameters: minus twice the drop of the log-likelihood is
# chi-squared with 2 degrees of freedom, whose upper quantile is -2 log(1 - confidence).
CONFIDENCE = (0.99, 0.95, 0.90, 0.50)

BLUE, ORANGE, INK = "#1f5f8b", "#d1495b", "#333333"


def draw(
    years: np.ndarray,
    flow: np.ndarray,
    level: jax.Array,
    variance: jax.Array,
    surface: tuple[np.ndarray, np.ndarray, jax.Array],
    estimate: Estimate,
) -> Figure:
    """The figure.

    years, flow, level, variance: (n,), flows and levels in 1e8 m3;
    surface: (observation variances (m,), level variances (k,), log-likelihood (m, k)).
    """
    figure = Figure(figsize=(13, 5.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    draw_level(left, years, flow, level, variance)
    draw_surface(right, *surface, estimate)
    figure.suptitle(
        "Local level model of the Nile at Aswan, estimated by maximum likelihood", color=INK
    )
    return figure


def draw_level(
    axes: Axes, years: np.ndarray, flow: np.ndarray, level: jax.Array, variance: jax.Array
) -> None:
    """Data, filtered level and the band that holds the level with 90 % probability."""
    half_width = Z90 * np.sqrt(variance)
    axes.fill_between(
        years,
        level - half_width,
        level + half_width,
        color=BLUE,
        alpha=0.2,
        linewidth=0,
        label="90 % band of the level",
    )
    axes.plot(years, level, color=BLUE, linewidth=2, label="filtered level")
    axes.plot(years, flow, "o", color=INK, markersize=3.2, alpha=0.75, label="annual flow")
    axes.set_title("Annual flow and filtered level")
    axes.set_xlabel("year")
    axes.set_ylabel(r"flow ($10^8$ m$^3$ a year)")
    axes.set_xlim(years[0] - 1, years[-1] + 1)
    axes.legend(loc="upper right", frameon=False)
    tidy(axes)


def draw_surface(
    axes: Axes,
    observation_variances: np.ndarray,
    level_variances: np.ndarray,
    log_likelihood: jax.Array,
    estimate: Estimate,
) -> None:
    """Contours of the log-likelihood where it bounds joint confidence regions; its maximum."""
    drop = np.asarray(log_likelihood).T - estimate.log_likelihood
    levels = np.log1p(-np.array(CONFIDENCE))
    x, y = observation_variances, level_variances
    axes.contourf(
        x, y, drop, levels=[*levels, 0.01], colors=["#e3edf3", "#c3d9e6", "#93bbd1", "#5b97b8"]
    )
    lines = axes.contour(x, y, drop, levels=levels, colors=INK, linewidths=0.8, linestyles="solid")
    names = {
        value: f"{confidence:.0%}".replace("%", " %")
        for value, confidence in zip(lines.levels, CONFIDENCE, strict=True)
    }
    axes.clabel(lines, fmt=names, fontsize=8)
    axes.plot(*estimate.variances, "*", color=ORANGE, markersize=15, markeredgecolor="white")
    axes.annotate(
        "maximum\n{:.0f}, {:.1f}".format(*estimate.variances),
        tuple(estimate.variances),
        xytext=(0.72, 0.88),
        textcoords="axes fraction",
        color=INK,
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.7, "shrinkB": 7},
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = (8000, 10000, 15000, 20000, 30000)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    ticks = (100, 300, 1000, 3000, 10000)
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title("Likelihood surface: joint confidence regions")
    axes.set_xlabel(r"observation variance ($10^{16}$ m$^6$)")
    axes.set_ylabel(r"level variance ($10^{16}$ m$^6$)")
    tidy(axes)


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
