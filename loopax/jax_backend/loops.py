"""``Scan`` -> ``lax.scan``.

Where the number of steps is traced and only final states are read it is a ``lax.fori_loop``. Where a
shape *inside* the step hangs on the step's index, a row or a state that are themselves static, the
loop is unrolled, if it is short: each step is then traced with its own shapes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.ir import Scan, UnsupportedOpError
from loopax.ir.errors import DynamicShapeError, LoopTypeError, describe
from loopax.ir.evaluate import check_lengths
from loopax.jax_backend.evaluate import ChangesInLoop, Site
from loopax.jax_backend.registry import rule
from loopax.jax_backend.reverse import unflipped
from loopax.jax_backend.static import is_traced, no_number
from loopax.jax_backend.x64 import as_declared

_UNROLLED = 64  # steps; a longer loop is not traced step by step


@rule(Scan)
def scan_rule(site: Site, *values: Any) -> tuple[Any, ...]:
    op: Scan = site.op
    if op.stops:
        raise UnsupportedOpError(
            f"{op}, for {describe(site.out)}: loops that stop early are not converted yet"
        )
    args = op.split_inputs(values)
    used = op.split_outputs(site.used)
    if is_traced(args.n_steps) and (any(used.traces) or args.sequences):
        # A trace has n_steps rows, and JAX must know how many while it traces.
        n_steps = int(site.static(0))
    else:
        n_steps = args.n_steps if is_traced(args.n_steps) else int(args.n_steps)
    sequences = [jnp.asarray(x) for x in args.sequences]
    init = tuple(
        as_declared(jnp.asarray(x), v) if hasattr(v.type, "dtype") else x
        for x, v in zip(args.states, op.args.states, strict=True)
    )
    step = _step(site, args.consts)
    if is_traced(n_steps):
        finals = jax.lax.fori_loop(0, n_steps, lambda i, states: step(i, (), states, ())[0], init)
        return (*(_if_legal(n_steps >= 0, x) for x in finals), *[None] * op.n_ys)
    check_lengths(op, n_steps, sequences)
    kept = tuple(k for k, u in enumerate(used.traces) if u)
    index = None
    if op.args.i in site.context.plan(op.fgraph).read:
        index = np.arange(n_steps, dtype=np.int64)
    try:
        if 0 < op.truncate_gradient < n_steps:
            finals, ys = _truncated(site, args, init, sequences, index, kept)
        else:
            finals, ys = _scan(site, step, init, sequences, index, n_steps, kept)
    except ChangesInLoop as error:
        if not 0 < n_steps <= _UNROLLED:
            limit = f" (A loop of up to {_UNROLLED} steps is unrolled; this one has {n_steps}.)"
            raise DynamicShapeError(str(error) + limit) from None
        try:
            finals, ys = _unroll(step, args, n_steps, kept, op)
        except ChangesInLoop:
            raise error from None
    traces: list[Any] = [None] * op.n_ys
    for k, y in zip(kept, ys, strict=True):
        traces[k] = y
    return (*finals, *traces)


def _if_legal(ok: Any, x: Any) -> Any:
    """``x``, but no number where a traced ``n_steps`` is negative: that cannot raise while it runs."""
    return jnp.where(ok, x, no_number(x.dtype)) if hasattr(x, "dtype") else x


def _scan(
    site: Site, step: Any, init: Any, sequences: Any, index: Any, n_steps: int, kept: Any
) -> Any:
    backwards = unflipped(site, site.op.split_inputs(site.node.inputs).sequences, n_steps)
    if backwards is not None:
        sequences, index = backwards, None if index is None else index[::-1]
    finals, ys = _lax_scan(
        step, init, sequences, index, kept, n_steps, reverse=backwards is not None
    )
    return finals, ys if backwards is None else [jnp.flip(y, 0) for y in ys]


def _lax_scan(
    step: Any, init: Any, sequences: Any, index: Any, kept: Any, n: int, reverse: bool = False
) -> Any:
    return jax.lax.scan(
        lambda states, x: step(x[0], x[1], states, kept),
        init,
        (index, sequences),
        length=n,
        reverse=reverse,
    )


def _truncated(site: Site, args: Any, init: Any, sequences: Any, index: Any, kept: Any) -> Any:
    """The loop in two parts, of which only the last ``truncate_gradient`` steps are differentiated."""

    def constant(xs: Any) -> list[Any]:
        return [jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x for x in xs]

    last, n = site.op.truncate_gradient, int(args.n_steps)
    first = n - last
    head, tail = (None, None) if index is None else (index[:first], index[first:])
    quiet, step = _step(site, constant(args.consts)), _step(site, args.consts)
    early = [x[:first] for x in sequences]
    states, before = _lax_scan(quiet, tuple(constant(init)), constant(early), head, kept, first)
    late = [x[first:] for x in sequences]
    finals, after = _lax_scan(step, tuple(constant(states)), late, tail, kept, last)
    return finals, [jnp.concatenate(pair) for pair in zip(constant(before), after, strict=True)]


def _unroll(step: Any, args: Any, n_steps: int, kept: Any, op: Scan) -> Any:
    """The loop step by step, each with the values that are static at that step."""
    states = tuple(args.states)
    rows = []
    for i in range(n_steps):
        states, ys = step(np.asarray(i), [x[i] for x in args.sequences], states, kept)
        rows.append(ys)
    try:
        return states, [jnp.stack(ys) for ys in zip(*rows, strict=True)]
    except ValueError as error:
        shapes = [tuple(y.shape for y in ys) for ys in zip(*rows, strict=True)]
        raise LoopTypeError(
            f"The rows of a trace of {op} have the shapes {shapes}: they cannot be stacked. Pad them "
            "to one length."
        ) from error


def _step(site: Site, consts: Any) -> Any:
    """``step(i, rows, states, kept) -> (next states, the ys at kept)``."""
    op: Scan = site.op
    inner = op.args
    outer = op.split_inputs(site.node.inputs)
    origins = [
        "the index of a loop's step",
        *["a sequence of a loop"] * op.n_seqs,
        *["a state of a loop"] * op.n_states,
        *outer.consts,
    ]

    def step(i: Any, rows: Any, states: Any, kept: Any) -> Any:
        given = [
            as_declared(x, v) if hasattr(v.type, "dtype") and x is not None else x
            for x, v in zip([i, *rows, *states, *consts], op.fgraph.inputs, strict=True)
        ]
        outs = op.split_body_outputs(site.run(op.fgraph, given, origins))
        nexts = [
            _as_state(x, before, v)
            for x, before, v in zip(outs.states, states, inner.states, strict=True)
        ]
        return tuple(nexts), tuple(as_declared(outs.ys[k], op.outs.ys[k]) for k in kept)

    return step


def _as_state(x: Any, before: Any, v: Any) -> Any:
    """A next state with the dtype of its variable; its shape must be that of the state before."""
    if not hasattr(v.type, "dtype"):
        return x
    x = as_declared(x, v)
    if x.shape != before.shape:
        raise LoopTypeError(
            f"A state of a loop changes its shape from {before.shape} to {x.shape}, for {describe(v)}: "
            "every step must return a state of the shape it got. Give the initial state the shape of "
            "the step's result, for instance pt.zeros(shape)."
        )
    return x
