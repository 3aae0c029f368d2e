"""How far a long computation is, said to a person or to a function."""

from __future__ import annotations

import sys
from collections.abc import Callable

# Of how much is done, and of how much there is.
Progress = Callable[[int, int], None]


def progress_of(asked: bool | Progress) -> Progress | None:
    """What to call: a function as it is, for True a line on stderr, for False none."""
    return _line if asked is True else asked or None


def _line(done: int, total: int) -> None:
    end = "\n" if done >= total else ""
    print(f"\rloopax: {done} of {total} rows", file=sys.stderr, end=end, flush=True)
