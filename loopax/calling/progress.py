"""The progress of a long computation, as a line on stderr or calls of a function."""

from __future__ import annotations

import sys
from collections.abc import Callable

# A function of the work done and of the work in all.
Progress = Callable[[int, int], None]


def progress_of(setting: bool | Progress) -> Progress | None:
    """The function to call: a function as it is, a line on stderr for True, None for False."""
    return _line if setting is True else setting or None


def _line(done: int, total: int) -> None:
    end = "\n" if done >= total else ""
    print(f"\rloopax: {done} of {total} rows", file=sys.stderr, end=end, flush=True)
