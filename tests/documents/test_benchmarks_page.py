"""docs/benchmarks.md has the numbers of the records in benchmarks/records."""

from typing import Any

import pytest

from benchmarks.history import (
    LOOPS,
    NEXT,
    PAGE,
    ROUTES,
    Record,
    from_run,
    page,
    records,
    times,
    title,
)
from benchmarks.models_report import EVALUATION


def test_the_page_has_the_numbers_of_the_records() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text, records()), "write the page again: python -m benchmarks.history"


def test_every_record_has_the_models_with_a_loop() -> None:
    assert records()
    for record in records():
        assert set(LOOPS) <= set(record.speed), record.title
        assert all(set(row) <= set(ROUTES) for row in record.speed.values())


def run(cores: int) -> dict[str, Any]:
    """A run of one model, as ``python -m benchmarks models --json`` writes it."""
    ratio = {"median": 0.25 * cores, "low": 0.2, "high": 0.6}
    figures = [
        {"program": "garch", "comparison": "Numba", "measured": measured, "ratio": ratio}
        for measured in (EVALUATION, "first result")
    ]
    return {"environment": {"cores": cores}, "figures": figures}


def test_a_run_becomes_a_record() -> None:
    assert from_run(run(1), NEXT) == [Record(NEXT, 1, {"garch": {"Numba": 4.0}})]


def test_a_run_with_one_core_becomes_two_records() -> None:
    two, one = from_run(run(2) | {"one core": run(1)}, NEXT)
    assert (two.cores, one.cores) == (2, 1)
    assert (two.speed["garch"], one.speed["garch"]) == ({"Numba": 2.0}, {"Numba": 4.0})


def test_records_are_named_by_release_and_cores() -> None:
    titles = [Record(release, 1, {}).title for release in (NEXT, "0.2.0")]
    assert titles == ["next release, one core", "0.2.0, one core"]


@pytest.mark.parametrize(
    ("speed", "text"), [(None, "-"), (62.5, "62x"), (9.97, "10x"), (3.24, "3.2x"), (0.85, "0.85x")]
)
def test_speeds_are_written_as_factors(speed: float | None, text: str) -> None:
    assert times(speed) == text


def test_models_are_named_in_words() -> None:
    assert title("latent_ar2_by_slices") == "Latent AR(2) by slices"


def test_the_models_are_those_of_the_latest_release_on_most_cores() -> None:
    models = [*LOOPS, "logistic"]
    older, newer, one_core = (
        Record(release, cores, {model: dict.fromkeys(ROUTES, speed) for model in models})
        for release, cores, speed in (("0.2.0", 2, 2.0), (NEXT, 2, 3.0), (NEXT, 1, 4.0))
    )
    places = "".join(f"<!-- begin {k} --><!-- end {k} -->" for k in ("models", "history"))
    assert "| Logistic | 3.0x | 3.0x | 3.0x |" in page(places, [older, newer, one_core])
