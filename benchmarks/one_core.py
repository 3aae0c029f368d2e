"""``--one-core``: measure once more in a process that the system keeps on one core.

XLA divides a large operation among cores, so a ratio on two cores says little about one. The libraries
read the number of cores when they start: the second run is a child process, which inherits the affinity
of the thread that starts it. It runs when the first run has ended, so that neither disturbs the other.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measure import Pairs
from benchmarks.report import Figure, Memory

OPTION = "--one-core"
UNAVAILABLE = (
    f"{OPTION} needs a system that keeps a process on a core, such as Linux, and two cores."
)


def is_available() -> bool:
    """Whether the system can keep a process on one of the cores that this process may use."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


@contextmanager
def one_core() -> Iterator[None]:
    """A block in which this thread, and processes that it starts, stay on one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def run_on_one_core(arguments: Sequence[str]) -> dict[str, Any]:
    """The JSON of ``python -m benchmarks`` with these arguments, on one core."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        command = [sys.executable, "-m", "benchmarks", *arguments, "--json", str(path)]
        with one_core():
            child = subprocess.Popen(
                [*command, "--picture", str(Path(folder, "models.png"))],
                stdout=subprocess.DEVNULL,  # its tables; progress goes to stderr
            )
        if child.wait():
            raise SystemExit(f"{OPTION}: {' '.join(command)} ended with status {child.returncode}")
        return json.loads(path.read_text("utf-8"))


def figures_of(run: dict[str, Any]) -> list[Figure]:
    """The figures of a run that was written as JSON."""
    return [
        Figure(
            f["program"],
            f["comparison"],
            f["measured"],
            f["limit"],
            Pairs(*np.transpose(f["pairs"])),
            None if f["memory"] is None else Memory(**f["memory"]),
        )
        for f in run["figures"]
    ]


def with_one_core(figures: Sequence[Figure], run: dict[str, Any]) -> list[Figure]:
    """``figures``, each with its estimate in a run on one core."""
    estimates = {f[:3]: f.estimate for f in figures_of(run)}
    return [f._replace(one_core=estimates.get(f[:3])) for f in figures]
