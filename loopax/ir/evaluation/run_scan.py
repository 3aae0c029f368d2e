"""The reference semantics of `Scan`: twenty lines, written to be read; backends are tested against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import LoopTypeError, changes_shape
from loopax.ir.evaluation.evaluate import own
from loopax.ir.ops.bounds import no_bound
from loopax.ir.ops.calling_convention import UNBOUNDED, ScanArgs, ScanOuts
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.shapes import empty_traces
from loopax.ir.sizes.bodies import body_dims


def run_scan(
    scan: ScanGrammar, step: Callable[..., Sequence[Any]], inputs: Sequence[Any]
) -> ScanOuts:
    """Run ``step``, the body of ``scan``, on ``inputs`` in order: the reference semantics of `Scan`.

    The step that raises ``stop`` is counted and its rows are kept.
    """
    args = scan.split_inputs(inputs)
    check_lengths(scan, args.n_steps, args.sequences)
    order = range(int(args.n_steps))
    states, rows, stop = list(args.states), [], False
    for i in reversed(order) if scan.options.reverse else order:
        slices = [x[i] for x in args.sequences]
        outs = scan.split_body_outputs(step(np.int64(i), *slices, *states, *args.consts))
        check_shapes(scan, states, outs.states)
        states, stop = list(outs.states), bool(outs.stop)
        rows.append(outs.ys)
        if stop:
            break
    ended = (np.asarray(len(rows)), np.asarray(stop)) if scan.stops else ()
    return ScanOuts([own(s) for s in states], traces_of(scan, args, rows), *ended)


def traces_of(scan: ScanGrammar, args: ScanArgs, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """The traces of the ``rows`` that each step has emitted, first step first."""
    if not rows:
        return empty_traces(scan, args)
    in_order = rows[::-1] if scan.options.reverse else rows
    return [
        _stacked(scan, ys) if isinstance(y.type, DenseTensorType) else list(ys)
        for ys, y in zip(zip(*in_order, strict=True), scan.outs.ys, strict=True)
    ]


def _stacked(scan: ScanGrammar, rows: Sequence[Any]) -> Any:
    shapes = list(dict.fromkeys(np.shape(row) for row in rows))
    if len(shapes) > 1:
        raise LoopTypeError(
            f"The rows of a trace of {scan} have the shapes {shapes} and cannot be stacked. Pad them "
            "to one length."
        )
    return np.stack(rows)


def row_count(x: Any) -> Any:
    """The length of a list, or of an array, possibly a symbol of JAX's (for which ``len`` raises)."""
    return x.shape[0] if hasattr(x, "shape") else len(x)


def check_shapes(scan: ScanGrammar, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Raise `LoopTypeError` where a step has changed the shape of a state that must keep it."""
    dims, labels = body_dims(scan), scan.options.origin.labels
    for k, (v, x, y) in enumerate(zip(scan.outs.states, before, after, strict=True)):
        if not isinstance(v.type, DenseTensorType):
            continue
        shapes = np.shape(x), np.shape(y)
        if shapes[0] != shapes[1] and any(
            n != m and dims.keeps(k, axis) is not False
            for axis, (n, m) in enumerate(zip(*shapes, strict=True))
        ):
            raise changes_shape(labels[k] if labels else "", *shapes, v)


def check_lengths(scan: ScanGrammar, n_steps: Any, sequences: Sequence[Any]) -> None:
    """Raise ValueError unless ``n_steps >= 0`` and every sequence has that many rows."""
    if n_steps < 0:
        raise ValueError(f"{scan} got {n_steps} steps, but a loop takes 0 or more.")
    if n_steps == UNBOUNDED and not scan.stops:
        # The gradient of a loop inside a loop, whose number of steps comes from outside.
        raise ValueError(no_bound(f"The loop that {scan} differentiates"))
    for k, x in enumerate(sequences):
        rows = row_count(x)
        if rows != n_steps:
            raise ValueError(
                f"{scan} takes {n_steps} steps, but its sequence {k} has {rows} rows. "
                "Slice the sequence, or lower the number of steps."
            )
