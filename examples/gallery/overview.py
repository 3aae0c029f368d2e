"""One picture of the ratios of all examples: loopax beside PyMC's or PyTensor's own way."""

import json

from matplotlib.figure import Figure

from examples.gallery.page import EXAMPLES

BLUE, ORANGE = "#1f5f8b", "#d1495b"
# How comparisons begin, and their marks. One with SciPy stays out: nobody runs the model that way.
SERIES = {"loopax, native": (BLUE, "o", "native code"), "loopax, JAX": (ORANGE, "D", "JAX")}


def draw(folder):
    """Write overview.svg of the records in ``folder``, where there are any."""
    records = {name: folder / f"{name}.json" for name in EXAMPLES}
    found = {n: json.loads(p.read_text("utf-8")) for n, p in records.items() if p.exists()}
    found = {n: record for n, record in found.items() if any(map(is_drawn, record["ratios"]))}
    if not found:
        return
    figure = Figure(figsize=(7, 0.8 + 0.27 * len(found)), layout="constrained")
    axes = figure.subplots()
    for start, (color, marker, label) in SERIES.items():
        places = [
            (ratio, row)
            for row, record in enumerate(found.values())
            for compared, ratio in record["ratios"].items()
            if compared.startswith(start) and is_drawn(compared)
        ]
        axes.plot(*zip(*places, strict=True), marker, color=color, label=label, markersize=6)
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(found)), [name.replace("_", " ") for name in found])
    axes.invert_yaxis()
    axes.set_xlabel("time of a call, beside PyMC's or PyTensor's own way (1)")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 1.13), ncols=2)
    figure.savefig(folder / "overview.svg", metadata={"Date": None})


def is_drawn(compared):
    """Whether a comparison has a mark: it is one with PyMC's or PyTensor's own way."""
    return compared.startswith(tuple(SERIES)) and "SciPy" not in compared
