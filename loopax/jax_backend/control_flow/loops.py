"""Choose a JAX loop for a ``Scan``.

A loop with a known trip count becomes a ``lax.scan`` (`for_loops`). A loop that can stop, or whose trip
count is traced, becomes a ``lax.while_loop`` (`while_loops`); its traces are `PaddedArray`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import DynamicShapeError, describe
from loopax.ir import Scan
from loopax.ir.derivatives.expand import expanded
from loopax.ir.evaluation.run_scan import check_lengths
from loopax.ir.ops.bounds import is_unbounded
from loopax.ir.ops.calling_convention import UNBOUNDED, ScanArgs
from loopax.ir.sequences import with_items
from loopax.jax_backend.control_flow.for_loops import for_loop, remark_unknown_steps
from loopax.jax_backend.control_flow.while_loops import while_loop
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.intervals import known_interval
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.staging.symbolic import as_length
from loopax.jax_backend.values.lists import as_list, with_padded_rows
from loopax.jax_backend.values.padded_array import PaddedArray


@rule(Scan)
def scan_rule(site: Site, *values: object) -> tuple[Any, ...]:
    with jax.named_scope(str(site.op)):  # the name in profilers
        return _loop(site, *values)


def _loop(site: Site, *values: object) -> tuple[Any, ...]:
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
    bound = _bound(site, args, kept)
    if bound is None and (args.sequences or kept) and not is_unbounded(outer.n_steps):
        # A sequence and a trace have n_steps rows, and JAX must know how many while it traces.
        args = args._replace(n_steps=site.static(0))
        bound = as_length(args.n_steps)
    ended: Sequence[Any] = ()
    rows_are_traced = any(map(_is_padded_along_steps, args.sequences))
    stops = op.stops or is_traced(args.n_steps) or rows_are_traced
    truncated = op.options.truncate_gradient
    in_rows = args._replace(sequences=[with_padded_rows(x) for x in args.sequences])
    cut = bound is not None and truncated >= 0 and truncated < bound
    if cut or (not stops and op.options.checkpoint not in (None, 1)):
        finals, ys, *ended = _expanded(site, args, kept)
    elif stops:
        if bound is None and kept:
            raise DynamicShapeError(no_trace(op, site.node.outputs[op.n_states + kept[0]]))
        remark_unknown_steps(site, args)
        finals, ys, *ended = while_loop(site, in_rows, bound, kept)
    else:
        finals, ys = for_loop(site, in_rows, kept)
    return (*finals, *with_items([None] * op.n_ys, kept, ys), *(ended if op.stops else ()))


def _expanded(site: Site, args: ScanArgs, kept: Sequence[int]) -> tuple[Any, ...]:
    """Expand a loop with ``checkpoint`` or ``truncate_gradient`` to plainer loops, and run these."""
    op: Scan = site.op
    inputs = [v.type() for v in site.node.inputs]
    if not is_traced(args.n_steps):
        check_lengths(op, as_length(args.n_steps), args.sequences)
    graph_inputs = inputs if is_traced(args.n_steps) else [pt.constant(args.n_steps), *inputs[1:]]
    outs = expanded(op, op.split_inputs(graph_inputs))
    wanted = [*outs.finals, *(outs.traces[k] for k in kept)]
    wanted += [outs.n_done, outs.stopped] if op.stops else []
    graph = FunctionGraph(inputs, wanted, clone=False)
    outputs = site.run(graph, args.flat(), site.node.inputs)
    n, m = op.n_states, op.n_states + len(kept)
    return outputs[:n], outputs[n:m], *outputs[m:]


def _bound(site: Site, args: ScanArgs, kept: Sequence[int]) -> int | None:
    """The greatest possible number of steps; None if it is not known.

    If the trip count depends on the index of an enclosing loop, and there are rows, no bound is taken from
    that index: the enclosing loop is unrolled if it is short, and the rows are arrays then, not a
    `PaddedArray`.
    """
    in_rows = bool(args.sequences or kept)
    known = known_interval(site.frame, site.node.inputs[0], indices=not in_rows)
    bounds = [x.bound for x in args.sequences if _is_padded_along_steps(x)]
    if known is not None and known[1] < UNBOUNDED:
        bounds.append(max(known[1], 0))
    return min(bounds, default=None)


def _is_padded_along_steps(x: object) -> bool:
    return isinstance(x, PaddedArray) and not x.axis


def no_trace(op: Scan, trace: Variable) -> str:
    """The reason why ``trace``, an output of the unbounded loop ``op``, cannot be made."""
    return (
        f"{op} has no bound on its steps, and its trace, {describe(trace)}, is read: it has as many "
        "rows as steps are taken, and JAX must know while it traces how many there can be. Read final "
        "states only, or give the loop a bound: loopax.scan(step, init, length=1000), whose step returns "
        "(carry, y, stop)."
    )
