"""PyMC's error for a nonfinite start, for every sampler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pymc as pm
from pymc.initial_point import make_initial_point_fn


@contextmanager
def start_checked(model: pm.Model, starts: Mapping[str, Any] | None) -> Iterator[None]:
    """Raise PyMC's error if nutpie finds no start, since nutpie's own names no variable.

    See https://github.com/pymc-devs/nutpie/issues/44; remove this when nutpie names the variable.
    """
    try:
        yield
    except RuntimeError as error:
        if "initialization points failed" not in str(error):
            raise
        start = make_initial_point_fn(model=model, overrides=starts)(None)
        try:
            # A handful of evaluations: the Python mode compiles nothing for them.
            model.check_start_vals(start, mode="FAST_COMPILE")
        except pm.SamplingError as table:
            raise table from None
        raise pm.SamplingError(
            "nutpie found no start: the log-density is finite at the model's initial point,\n"
            f"{start},\n"
            "but it or its gradient is not finite at any point that nutpie tried near there. Pass a "
            "start well inside the model's domain, sample(model, initvals={...})."
        ) from None
