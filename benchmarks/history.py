"""``python -m benchmarks.history [RUN.json ... --release 0.3.0]``: the tables of docs/benchmarks.md.

A run of ``python -m benchmarks models --json RUN.json`` becomes a record: the speed of each model as a
multiple of PyTensor's, the release, and the number of cores. Records are kept in ``benchmarks/records``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.models_report import EVALUATION

RECORDS = Path(__file__).with_name("records")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
NEXT = "next"  # what is not released yet
# The columns of the tables, by the names of the routes in a run.
ROUTES = {
    "Numba": "native code",
    "transpiled": "JAX, `pytensor.grad`",
    "jax.grad": "JAX, `jax.grad`",
}
LOOPS = (
    "local_linear_trend",
    "predators_and_prey",
    "arma_by_scan",
    "garch",
    "epidemic",
    "hidden_markov_chain",
)
COUNTS = {1: "one", 2: "two"}
# Names of models in words, where the name on the command line is none.
WORDS = {
    "ar2": "AR(2)",
    "ar": "AR",
    "arma": "ARMA",
    "coregionalised": "coregionalized",
    "factorisation": "factorization",
    "garch": "GARCH",
    "lkj": "LKJ",
    "kronecker": "Kronecker",
    "markov": "Markov",
    "weibull": "Weibull",
    "wishart": "Wishart",
}


class Record(NamedTuple):
    """The models of one release, measured on a number of cores."""

    release: str
    cores: int
    speed: dict[str, dict[str, float]]  # by model and route, as a multiple of PyTensor's

    @property
    def title(self) -> str:
        release = "next release" if self.release == NEXT else self.release
        return f"{release}, {COUNTS.get(self.cores, self.cores)} core{'s' * (self.cores != 1)}"

    @property
    def path(self) -> Path:
        return RECORDS / f"{self.release}-{self.cores}.json"

    def write(self) -> None:
        self.path.write_text(json.dumps(self._asdict(), indent=1) + "\n", encoding="utf-8")


def records() -> list[Record]:
    """All records, the oldest release first, and of a release the one with most cores."""
    unsorted = [Record(**json.loads(path.read_text("utf-8"))) for path in RECORDS.glob("*.json")]
    return sorted(unsorted, key=lambda record: (_order(record.release), -record.cores))


def _order(release: str) -> list[float]:
    return [np.inf] if release == NEXT else [*map(float, release.split("."))]


def from_run(run: dict[str, Any], release: str) -> list[Record]:
    """The records of a run: on the cores that it had, and with ``--one-core`` on one."""
    again = from_run(run["one core"], release) if "one core" in run else []
    speed: dict[str, dict[str, float]] = {}
    for figure in run["figures"]:
        if figure["measured"] == EVALUATION:
            faster = float(f"{1 / figure['ratio']['median']:.3g}")
            speed.setdefault(figure["program"], {})[figure["comparison"]] = faster
    return [Record(release, run["environment"]["cores"], speed), *again]


def title(model: str) -> str:
    """The name of a model in words."""
    words = " ".join(WORDS.get(word, word) for word in model.split("_"))
    return words[0].upper() + words[1:]


def times(speed: float | None) -> str:
    """A speed as on the page, such as 3.2x; a dash if it was not measured."""
    if speed is None:
        return "-"
    n_decimals = 0 if speed >= 9.95 else 1 if speed >= 0.995 else 2
    return f"{speed:.{n_decimals}f}x"


def models_table(record: Record) -> Iterator[str]:
    """A row for each model, the one that gains most in native code first, and the median."""
    yield f"| model | {' | '.join(ROUTES.values())} |"
    yield "|---|" + "---|" * len(ROUTES)
    middle = [
        times(float(np.median([row[route] for row in record.speed.values() if route in row])))
        for route in ROUTES
    ]
    yield f"| **median of {len(record.speed)} models** | {' | '.join(f'**{m}**' for m in middle)} |"
    for model, row in sorted(record.speed.items(), key=lambda item: -item[1]["Numba"]):
        yield f"| {title(model)} | {' | '.join(times(row.get(route)) for route in ROUTES)} |"


def history_table(all_records: list[Record]) -> Iterator[str]:
    """A row for each model with a loop; for each record its speed in native code and by `jax.grad`."""
    heads = [f"{record.title}: {way}" for record in all_records for way in ("native", "`jax.grad`")]
    yield f"| model | {' | '.join(heads)} |"
    yield "|---|" + "---|" * len(heads)
    for model in LOOPS:
        rows = [record.speed.get(model, {}) for record in all_records]
        cells = [times(row.get(route)) for row in rows for route in ("Numba", "jax.grad")]
        yield f"| {title(model)} | {' | '.join(cells)} |"


def page(text: str, all_records: list[Record]) -> str:
    """The text of the page with new tables."""
    complete = max(
        (record for record in all_records if len(record.speed) > len(LOOPS)),
        key=lambda record: (_order(record.release), record.cores),
    )
    for name, table in (
        ("models", models_table(complete)),
        ("history", history_table(all_records)),
    ):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        between = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text, n = between.subn(lambda _: "\n".join([begin, "", *table, "", end]), text)  # noqa: B023
        assert n == 1, f"{PAGE} has no place between {begin} and {end}"
    return text


def main() -> None:
    """Keep each run as a record, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN.json")
    parser.add_argument(
        "--release", default=NEXT, help="the release of the runs (default: %(default)s)"
    )
    arguments = parser.parse_args()
    for run in arguments.runs:
        for record in from_run(json.loads(run.read_text("utf-8")), arguments.release):
            record.write()
    PAGE.write_text(page(PAGE.read_text("utf-8"), records()), encoding="utf-8")


if __name__ == "__main__":
    main()
