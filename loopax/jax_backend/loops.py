"""``Scan``: which of JAX's loops it becomes.

One that takes a known number of steps is a ``lax.scan`` (`for_loops`). One that can stop, or whose
number of steps is traced, is a ``lax.while_loop`` (`while_loops`), which has final states only.
"""

from __future__ import annotations

from typing import Any

from pytensor.typed_list.type import TypedListType

from loopax.ir import Scan
from loopax.ir.errors import DynamicShapeError, describe
from loopax.jax_backend.evaluate import Site
from loopax.jax_backend.for_loops import for_loop
from loopax.jax_backend.lists import as_list
from loopax.jax_backend.registry import rule
from loopax.jax_backend.static import is_traced
from loopax.jax_backend.while_loops import while_loop


@rule(Scan)
def scan_rule(site: Site, *values: Any) -> tuple[Any, ...]:
    op: Scan = site.op
    args, outer = op.split_inputs(values), op.split_inputs(site.node.inputs)
    args = args._replace(
        sequences=[
            as_list(x, v.type) if isinstance(v.type, TypedListType) else x
            for x, v in zip(args.sequences, outer.sequences, strict=True)
        ]
    )
    used = op.split_outputs(site.used)
    kept = tuple(k for k, u in enumerate(used.traces) if u)
    if is_traced(args.n_steps) and (args.sequences or (kept and not op.stops)):
        # A trace has n_steps rows, and JAX must know how many while it traces.
        args = args._replace(n_steps=site.static(0))
    ended: tuple[Any, ...] = ()
    if op.stops:
        finals, *ended = while_loop(site, args)
        ys = _trace_of_steps_taken(site, args, ended[0], kept) if kept else []
    elif is_traced(args.n_steps):
        finals, *_ = while_loop(site, args)
        ys = []
    else:
        finals, ys = for_loop(site, args, kept)
    traces: list[Any] = [None] * op.n_ys
    for k, y in zip(kept, ys, strict=True):
        traces[k] = y
    return (*finals, *traces, *ended)


def _trace_of_steps_taken(site: Site, args: Any, n_done: Any, kept: Any) -> list[Any]:
    """The traces of a loop that stopped after ``n_done`` steps: those of a loop that takes as many."""
    op: Scan = site.op
    if is_traced(n_done):
        raise DynamicShapeError(no_trace(op, site.node.outputs[op.n_states + kept[0]]))
    done, n_steps = int(n_done), int(args.n_steps)
    first = n_steps - done if op.options.reverse else 0
    taken = slice(first, first + done)
    args = args._replace(n_steps=done, sequences=[x[taken] for x in args.sequences])
    return for_loop(site, args, kept, first)[1]


def no_trace(op: Scan, trace: Any) -> str:
    """Why there is no ``trace``, an output of the stopping loop ``op``, and what to write instead."""
    return (
        f"{op} can stop early, and its trace, {describe(trace)}, is read: it has as many rows as steps "
        "are taken, which is only known when the program runs, and JAX must know it while it traces. "
        "Read final states only; or let the loop run all its steps, with a state `done` that stays "
        "true, and mask the rows behind the end: pt.where(pt.arange(n_steps) < n_done, trace, 0). A "
        "function made with jaxify(..., jit=False) returns the trace, if it is called outside of "
        "transformations."
    )
