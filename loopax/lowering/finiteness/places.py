"""Wording for a nonfinite value: its name, loop, step and row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loopax.base.errors import NonFiniteError

KINDS = "nan", "infinite", "minus infinity"


class Place(NamedTuple):
    """The place in a program where a value is computed.

    ``what`` names the value ("state h"), ``ndim`` is the number of its axes, and ``loops`` are descriptions
    of the loops around it, outermost first.
    """

    what: str
    ndim: int
    loops: tuple[str, ...] = ()


class Finding(NamedTuple):
    """A nonfinite value: the number of its `Place`, from 1 on, its kind, its entry, its steps."""

    code: int
    kind: int
    entry: tuple[int, ...]
    steps: tuple[int, ...]


def error_of(
    finding: Finding | None, places: Sequence[Place], name: str, row: Sequence[int] = ()
) -> NonFiniteError:
    """The error for ``finding`` in the program ``name``; ``row`` of a batch, None for a single result."""
    if finding is None:
        message = (
            "a value is nan or infinite, and none is where each step is looked at: sums are added up in "
            "another order there."
        )
        return NonFiniteError(name, message, (), row)
    place = places[finding.code - 1]
    entry = ", ".join(map(str, finding.entry[: place.ndim]))
    what = f"entry [{entry}] of {place.what}" if entry else place.what
    what = f"{what} is {KINDS[finding.kind]}"
    if not place.loops:
        return NonFiniteError(name, f"{what}.", (), row)
    steps = finding.steps[: len(place.loops)]
    *outer, last = [f"step {k}" for k in steps]
    at = ", ".join([*(f"outer {step}" for step in outer), last])
    inside = "".join(f", in {loop}" for loop in reversed(place.loops[:-1]))
    message = (
        f"{what} at {at} of {place.loops[-1]}{inside}. No earlier value was NaN or infinite; "
        "steps count from 0."
    )
    return NonFiniteError(name, message, steps, row)


def error_of_reports(
    reports: np.ndarray, n_axes: int, places: Sequence[Place], name: str
) -> NonFiniteError:
    """The error for a report, or for the first row of a batch of reports that has a finding."""
    report = np.asarray(reports)
    row: Sequence[int] = ()
    if report.ndim > 1:
        bad = np.argwhere(report[..., 0] != 0)
        row = tuple(int(k) for k in bad[0]) if len(bad) else ()
        report = report[row] if row else report.reshape(-1, report.shape[-1])[0]
    return error_of(findings(report, n_axes), places, name, row)


def findings(report: np.ndarray, n_axes: int) -> Finding | None:
    """Decode the finding in a vector of numbers: code, kind, ``n_axes`` entries, and the steps."""
    code, kind, *fields = (int(x) for x in report)
    return Finding(code, kind, tuple(fields[:n_axes]), tuple(fields[n_axes:])) if code else None
