"""One picture of the ratios of all examples: loopax's time divided by that of PyMC or PyTensor."""

import json

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from examples.gallery.page import EXAMPLES

BLUE, ORANGE = "#1f6fb0", "#d1495b"
# The start of a comparison's name, and its mark. SciPy is left out: nobody runs the model that way.
SERIES = {
    "loopax, native": (BLUE, "o", "native code"),
    "loopax, JAX": (ORANGE, "D", "JAX"),
}
# Ratios on the axis, in words.
TICKS = {
    0.02: "50x faster",
    0.1: "10x faster",
    0.5: "2x faster",
    1: "same",
    2: "2x slower",
}
# Names that are not the file's name with a capital.
NAMES = {
    "garch": "GARCH",
    "hidden_markov": "Hidden Markov",
    "lotka_volterra": "Lotka-Volterra",
    "sir": "SIR",
}
# The picture follows the reader's light or dark mode, its paper included, so it is legible on any page.
THEME = """<style type="text/css">
svg {fill: #24292f; --paper: #ffffff; --ink: #24292f; --line: #6e7781}
@media (prefers-color-scheme: dark) {
 svg {fill: #e6e8ec; --paper: #1e2129; --ink: #e6e8ec; --line: #9aa4b0}
}
</style>
"""
COLORS = {
    "#ffffff": "var(--paper)",
    "#000000": "var(--ink)",
    "#b0b0b0": "var(--line)",
}


def draw(folder):
    """Write overview.svg of the records in ``folder``, where there are any."""
    records = {name: folder / f"{name}.json" for name in EXAMPLES}
    record_by_name = {
        n: json.loads(p.read_text("utf-8"))
        for n, p in records.items()
        if p.exists()
    }
    record_by_name = {
        n: record
        for n, record in record_by_name.items()
        if any(map(is_drawn, record["ratios"]))
    }
    if not record_by_name:
        return
    rows = sorted(
        record_by_name.items(), key=lambda item: native_ratio(item[1])
    )
    figure = Figure(
        figsize=(7, 1.1 + 0.27 * len(rows)), layout="constrained"
    )
    axes = figure.subplots()
    for start, (color, marker, label) in SERIES.items():
        places = [
            (ratio, row)
            for row, (_, record) in enumerate(rows)
            for compared, ratio in record["ratios"].items()
            if compared.startswith(start) and is_drawn(compared)
        ]
        if places:
            axes.plot(
                *zip(*places, strict=True),
                marker,
                color=color,
                label=label,
                markersize=6,
            )
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks(list(TICKS))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda ratio, _: TICKS[round(ratio, 3)])
    )
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [title(name) for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel(
        "Time of one call relative to PyMC or PyTensor: left is faster"
    )
    axes.grid(axis="x", alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside upper left", ncols=2)
    path = folder / "overview.svg"
    figure.savefig(path, metadata={"Date": None})
    path.write_text(
        themed(path.read_text(encoding="utf-8")), encoding="utf-8"
    )


def title(name):
    """The name of an example as a row's label."""
    return NAMES.get(name) or name.replace("_", " ").capitalize()


def native_ratio(record):
    """The lowest ratio of native code, by which rows are sorted; of JAX where there is none."""
    drawn = {
        compared: ratio
        for compared, ratio in record["ratios"].items()
        if is_drawn(compared)
    }
    native = [
        ratio
        for compared, ratio in drawn.items()
        if compared.startswith("loopax, native")
    ]
    return min(native or drawn.values())


def is_drawn(compared):
    """Whether a comparison has a mark: its baseline is PyMC or PyTensor."""
    is_other = "SciPy" in compared or "NumPyro" in compared
    return compared.startswith(tuple(SERIES)) and not is_other


def themed(svg):
    """``svg`` with colours that follow the reader's light or dark mode."""
    for color, variable in COLORS.items():
        svg = svg.replace(color, variable)
    return svg.replace("<defs>\n  <style", f"{THEME}<defs>\n  <style", 1)
