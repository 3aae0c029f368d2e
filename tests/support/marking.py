"""Which cases of a test `make test` leaves to `make test-all`."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_where(is_slow: Callable[[Any], Any], cases: Iterable[Any]) -> list[Any]:
    """``cases`` as parameters with their text as id, marked slow where ``is_slow`` of the case is true.

    The others go through the same code, and take a fraction of the time.
    """
    return [
        pytest.param(case, id=str(case), marks=[pytest.mark.slow] * bool(is_slow(case)))
        for case in cases
    ]
