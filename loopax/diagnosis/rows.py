"""Batches, row by row: the rows of a result that are not finite, and the arguments of these rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from loopax.diagnosis.numbers import bad_entries
from loopax.diagnosis.report import Diagnosis
from loopax.frontend.loops.trees import flatten, mapped_axes, match_prefix

_MOST, _EVERY = 4, 64  # searched rows


def rows_of(
    in_axes: object,
    out_axes: object,
    result: object,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    all_rows: bool,
) -> Iterator[tuple[int, Any, Any]]:
    """The first rows of ``result`` that are not finite, or ``all_rows``, with their arguments."""
    flags = None
    leaves, _ = flatten(result)
    for x, axis in zip(leaves, match_prefix(out_axes, result, "out_axes"), strict=True):
        bad = bad_entries(np.asarray(x))
        if bad is None or axis is None:
            continue
        row_flags = np.moveaxis(bad, axis, 0).reshape(bad.shape[axis], -1).any(axis=1)
        flags = row_flags if flags is None else flags | row_flags
    arguments, tree = flatten((args, kwargs))
    axes = mapped_axes(in_axes, args, len(arguments))
    if flags is not None and all_rows and not flags.any():
        rows = np.arange(min(len(flags), _EVERY))
    else:
        rows = np.zeros(0, int) if flags is None else np.flatnonzero(flags)[:_MOST]
    for row in rows:
        row_args, row_kwargs = tree.build(
            [
                x if axis is None else np.take(np.asarray(x), row, axis)
                for x, axis in zip(arguments, axes, strict=True)
            ]
        )
        yield int(row), row_args, row_kwargs


def in_row(diagnosis: Diagnosis, row: int) -> Diagnosis:
    """Add the number of the row to the diagnosis of one row of a batch."""
    findings = tuple(
        replace(
            f,
            where=", ".join(filter(None, [f.where, f"row {row}"])),
            steps=(*f.steps, row),
            spread=(*f.spread, f"row {row} of the result"),
        )
        for f in diagnosis.findings
    )
    return replace(diagnosis, findings=findings)
