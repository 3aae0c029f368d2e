"""`python -m benchmarks --one-core`: a child process on one core, and its column."""

import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import one_core
from benchmarks.measure import Pairs
from benchmarks.report import CHECKPOINT, KERNELS, Figure, as_json, table

ABOUT = dict.fromkeys(("loopax", "pytensor", "jax", "python", "device"), "1")
ABOUT = {**ABOUT, "cores": 2, "load": 0.1, "pairs": 9}


def figure(ratio: float, measured: str = KERNELS) -> Figure:
    return Figure("garch", "gradient", measured, 1.0, Pairs(np.full(9, ratio), np.ones(9)))


@pytest.mark.skipif(not one_core.is_available(), reason="there is one core, or no affinity")
def test_a_process_that_is_started_there_has_one_core() -> None:
    before = os.sched_getaffinity(0)
    count = "import os; print(len(os.sched_getaffinity(0)))"
    with one_core.one_core():
        done = subprocess.run([sys.executable, "-S", "-c", count], capture_output=True, text=True)
    assert done.stdout == "1\n"
    assert os.sched_getaffinity(0) == before


def test_the_table_has_a_column() -> None:
    alone = as_json([figure(0.25)], ABOUT)
    figures = one_core.with_one_core([figure(0.5)], alone)
    *_, head, row = table(figures, ABOUT).splitlines()
    assert head.endswith("hand 1 core") and row.endswith("0.25") and " 0.50 " in row
    *_, head, row = table([figure(0.5)], ABOUT).splitlines()
    assert head.endswith("hand") and row.endswith("1.00 s")


def test_a_figure_survives_json() -> None:
    (again,) = one_core.figures_of(as_json([figure(0.25)], ABOUT))
    assert again[:4] == figure(0.25)[:4] and again.estimate == figure(0.25).estimate


def test_a_figure_that_the_second_run_lacks_has_no_column() -> None:
    both = [figure(0.5), figure(0.5, CHECKPOINT)]
    run = as_json(both, ABOUT)
    run["figures"] = run["figures"][:1]
    first, second = one_core.with_one_core(both, run)
    assert first.one_core is not None and second.one_core is None


def test_without_a_second_core_it_is_refused(monkeypatch, capsys) -> None:
    main = pytest.importorskip("benchmarks.__main__").main
    monkeypatch.setattr("benchmarks.__main__.is_available", lambda: False)
    monkeypatch.setenv("LOOPAX_CACHE_DIR", "")
    with pytest.raises(SystemExit):
        main(["garch", "--one-core"])
    assert "two cores" in capsys.readouterr().err
