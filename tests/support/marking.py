"""Which cases of a test `make test` leaves to `make test-all`, and which an installation cannot run."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from loopax.base.extensions import installed_extensions


def slow_where(is_slow: Callable[[Any], Any], cases: Iterable[Any]) -> list[Any]:
    """``cases`` as parameters with their text as id, marked slow where ``is_slow`` of the case is true.

    The others go through the same code, and take a fraction of the time.
    """
    return [
        pytest.param(case, id=str(case), marks=[pytest.mark.slow] * bool(is_slow(case)))
        for case in cases
    ]


def needs_extension(*names: str) -> pytest.MarkDecorator:
    """A mark of tests that are left out where this installation lacks one of these extensions."""
    absent = {*names} - installed_extensions().keys()
    return pytest.mark.skipif(bool(absent), reason=f"without the extensions {sorted(absent)}")
