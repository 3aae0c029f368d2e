"""A ``Scan`` with a known trip count -> ``lax.scan``.

If a shape *inside* the step depends on the step's index, or on a static row or state, a short loop is
unrolled: each step is then traced with its own shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import DynamicShapeError, LoopTypeError
from loopax.base.extensions import provided, required
from loopax.ir import Scan
from loopax.ir.evaluation.run_scan import check_lengths
from loopax.ir.ops.calling_convention import ScanArgs
from loopax.ir.shapes import empty_traces
from loopax.jax_backend.control_flow.failing import RAISED, is_of_program
from loopax.jax_backend.control_flow.step import initial_states, rows_of, scan_step
from loopax.jax_backend.staging import kept_rules
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.frame import ChangesInLoop
from loopax.jax_backend.staging.legal import refused_rows
from loopax.jax_backend.staging.symbolic import as_length, require_one
from loopax.jax_backend.values.lists import RaggedList, StackedList, from_rows
from loopax.jax_backend.values.padded_array import PaddedArray
from loopax.numerics.arrays import Array

_UNROLLED = 64  # steps; a longer loop is not traced step by step


def for_loop(site: Site, args: ScanArgs, kept: Sequence[int]) -> tuple[Any, list[Any]]:
    """The final states, and the traces at ``kept``, of ``args.n_steps`` steps."""
    op: Scan = site.op
    n = as_length(args.n_steps)
    check_lengths(op, n, args.sequences)
    if n == 0 and any(isinstance(x.type, TypedListType) for x in op.args.rows):
        # The length of a list without rows is unknown, so a step on it cannot be traced.
        return _no_step(op, args, kept)
    index = None
    # JAX accepts a symbolic trip count only as the length of a scan's xs.
    counts_rows = not isinstance(n, int) and not args.sequences
    if counts_rows or op.args.i in site.context.plan(op.fgraph).read:
        arange = np.arange if isinstance(n, int) else jnp.arange
        index = arange(n, dtype=np.int64)
    if not isinstance(n, int):
        require_one(n)  # JAX traces a step, and asks for its row when the program is lowered
    try:
        in_parallel = loop_in_parallel(site, args, index, kept)
        finals, ys = _scan(site, args, index, kept) if in_parallel is None else in_parallel
    except ChangesInLoop as error:
        if n == 0:
            return _no_step(op, args, kept)
        if not isinstance(n, int) or n > _UNROLLED:
            limit = f" (A loop of up to {_UNROLLED} steps is unrolled; this one has {n}.)"
            raise DynamicShapeError(str(error) + limit) from None
        try:
            return _unroll(site, args, kept)
        except ChangesInLoop:
            raise error from None
    except RAISED as error:
        if n != 0 or not is_of_program(error):
            raise
        return _no_step(op, args, kept)
    return finals, [_trace(site, y, op.outs.ys[k]) for k, y in zip(kept, ys, strict=True)]


def _trace(site: Site, rows: object, y: Variable) -> Any:
    """The trace of ``rows``, stacked by lax.scan; `no_number` if their lengths differ."""
    if not isinstance(y.type, DenseTensorType):
        return StackedList(rows)
    if not isinstance(rows, PaddedArray):
        return rows
    length = jnp.max(rows.length, initial=0)
    trace = PaddedArray(rows.data, length, rows.axis + 1)
    return refused_rows(site.context, jnp.all(rows.length == length), trace)


def _no_step(op: Scan, args: ScanArgs, kept: Sequence[int]) -> tuple[Any, list[Any]]:
    traces = empty_traces(op, args)
    return initial_states(args.states, op.args.states), [traces[k] for k in kept]


def _scan(site: Site, args: ScanArgs, index: Array | None, kept: Sequence[int]) -> Any:
    op: Scan = site.op
    n = as_length(args.n_steps)
    if any(isinstance(x, RaggedList) for x in args.sequences):
        raise ChangesInLoop(
            f"{op} takes one row of a list at each step, but the rows of the list have unequal shapes, "
            "and lax.scan runs one step on all rows. Pad them to one shape."
        )
    init = initial_states(args.states, op.args.states)
    sequences = [rows_of(x) for x in args.sequences]
    step = scan_step(site, args.consts, padded_rows=True)

    def body(states: tuple[Any, ...], x: tuple[jax.Array | None, Sequence[Any]]) -> Any:
        return step(x[0], x[1], states, kept)[:2]

    if op.options.checkpoint == 1:
        # Inside a scan XLA cannot merge the recomputation with the original: no barrier is needed.
        body = jax.checkpoint(body, prevent_cse=False)
    xs = jax.tree.map(jnp.asarray, (index, sequences))
    reverse, unroll = op.options.reverse, op.options.unroll
    length = n if isinstance(n, int) else None
    return kept_rules.scan(body, init, xs, length=length, reverse=reverse, unroll=unroll)


def _unroll(site: Site, args: ScanArgs, kept: Sequence[int]) -> Any:
    """Unroll the loop: each step has its own static values."""
    op: Scan = site.op
    step = scan_step(site, args.consts, unrolled=True)
    states, rows = tuple(args.states), []
    order = range(int(args.n_steps))
    for k in reversed(order) if op.options.reverse else order:
        states, ys, _ = step(np.asarray(k), [x[k] for x in args.sequences], states, kept)
        rows.append(ys)
    if op.options.reverse:
        rows.reverse()
    types = [op.outs.ys[k].type for k in kept]
    return states, [
        _joined(op, ys, t) for ys, t in zip(zip(*rows, strict=True), types, strict=True)
    ]


def _joined(op: Scan, ys: Sequence[Any], row_type: Type) -> Any:
    """Join the rows ``ys``, one for each step, to a trace."""
    if not isinstance(row_type, DenseTensorType):
        return from_rows(ys, row_type)
    try:
        return jnp.stack(ys)
    except ValueError as error:
        shapes = [jnp.shape(y) for y in ys]
        raise LoopTypeError(
            f"The rows of a trace of {op} have the shapes {shapes} and cannot be stacked. Pad them to "
            "one length."
        ) from error


# -- all steps at once -----------------------------------------------------------------------------

# Without the extension ``parallel`` all loops take their steps one by one, with the same values, and
# options that ask for more are refused, here too: a function may have been pickled where the extension was.
_ONE_BY_ONE = "steps one by one, without the option"


def loop_in_parallel(
    site: Site, args: ScanArgs, index: Array | None, kept: Sequence[int]
) -> tuple[Any, list[Any]] | None:
    """The final states, and the traces at ``kept``; None if the steps must run sequentially."""
    run = _part(site, "loop_in_parallel")
    return None if run is None else run(site, args, index, kept)


def remark_unknown_steps(site: Site, args: ScanArgs) -> None:
    """Record why a loop that becomes a ``lax.while_loop`` takes its steps one by one."""
    remark = _part(site, "remark_unknown_steps")
    if remark is not None:
        remark(site, args)


def _part(site: Site, name: str) -> Any:
    if site.op.options.parallel is not None:
        required("parallel", "parallel='newton'", _ONE_BY_ONE)
    if site.context.parallel is True:
        required("parallel", "parallel=True", _ONE_BY_ONE)
    return provided("parallel", name)
