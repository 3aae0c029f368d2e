"""A ``Scan`` that stops, or whose trip count is traced -> ``lax.while_loop``.

JAX batches a ``lax.while_loop`` by keeping the states of the rows that are done: under ``jax.vmap``
each row stops on its own. Their derivatives are in `bounded`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import DynamicShapeError, UnsupportedOpError
from loopax.base.upstream.jax import Primitive, ad, batching, mlir
from loopax.ir import Scan
from loopax.ir.evaluation.run_scan import check_lengths, row_count
from loopax.ir.ops.bounds import no_bound
from loopax.ir.ops.calling_convention import ScanArgs
from loopax.ir.sequences import with_items
from loopax.ir.shapes import empty_traces
from loopax.jax_backend.bounded_while import bounded_steps
from loopax.jax_backend.bounded_while.bounded import finals, with_traces
from loopax.jax_backend.bounded_while.bounded_steps import Given, Steps, counted
from loopax.jax_backend.control_flow.failing import RAISED, is_of_program, without_numbers
from loopax.jax_backend.control_flow.step import initial_states, rows_of, scan_step
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.legal import or_refused, refused_rows
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.staging.symbolic import as_length, is_symbolic
from loopax.jax_backend.values.lists import RaggedList
from loopax.jax_backend.values.padded_array import PaddedArray, of_steps


def while_loop(site: Site, args: ScanArgs, bound: int | None, kept: Sequence[int]) -> Any:
    """The final states, the traces at ``kept``, the number of steps, and whether the body stopped.

    ``bound`` is the greatest possible number of steps; None if it is not known.
    """
    op: Scan = site.op
    if any(isinstance(x, RaggedList) for x in args.sequences):
        raise DynamicShapeError(
            f"{op} takes one row of a list at each step, but the rows of the list have unequal shapes, "
            "and lax.while_loop runs one step on all rows. Pad them to one shape."
        )
    asked = args.n_steps
    # In 32-bit mode a loop without a bound is bounded by the range of its counter.
    if not is_traced(asked) and not is_symbolic(asked):
        # A Python number: while JAX traces, a comparison of arrays is a tracer.
        asked = min(int(asked), np.iinfo(jax.dtypes.canonicalize_dtype("int64")).max)
    if not is_traced(asked) and bound is not None:
        arrays = [x for x in args.sequences if not isinstance(x, PaddedArray)]
        check_lengths(op, as_length(asked), arrays)
        asked = None if as_length(asked) == bound else asked
    states = initial_states(args.states, op.args.states)
    if bound == 0:  # lax would trace a step, and there is no row to give it
        nothing = states, _no_rows(op, args, kept), counted(0), jnp.asarray(False)
        return _checked(site, args, asked, bound, kept, nothing)
    try:
        return _run(site, args, asked, bound, states, kept)
    except RAISED as error:
        limits = [x.length for x in args.sequences if isinstance(x, PaddedArray)]
        limits += [] if asked is None else [asked]
        if not limits or not is_of_program(error):
            raise
        none = jnp.any(jnp.asarray([n <= 0 for n in limits]))
        states, n_done = without_numbers(site, (states, counted(0)), error, none)
        return states, _no_rows(op, args, kept), n_done, jnp.asarray(False)


def _run(
    site: Site,
    args: ScanArgs,
    asked: jax.Array | int | None,
    bound: int | None,
    states: tuple[Any, ...],
    kept: Sequence[int],
) -> Any:
    steps, inputs = _steps(site, args, asked, bound, states, kept)
    traces: list[Any] = []
    if bound is None:
        states, n_done, stopped = bounded_steps.while_loop(steps, inputs)
        states = forward_only(states, no_bound(site.op))
    elif kept:
        (states, n_done, stopped), ys = with_traces(steps, inputs)
        traces = [of_steps(y, n_done, bound, steps.reverse) for y in ys]
    else:
        states, n_done, stopped = finals(steps, inputs)
    return _checked(site, args, asked, bound, kept, (states, traces, n_done, stopped))


def _checked(
    site: Site,
    args: ScanArgs,
    asked: jax.Array | int | None,
    bound: int | None,
    kept: Sequence[int],
    results: tuple[Any, Any, Any, Any],
) -> tuple[Any, Any, Any, Any]:
    """The results of a loop, refused if it cannot take as many steps as it is asked for."""
    if asked is None and not any(isinstance(x, PaddedArray) for x in args.sequences):
        return results
    states, traces, n_done, stopped = results
    legal = _is_legal(args, bound if asked is None else asked)

    def checked(x: Any, v: Variable) -> Any:
        if not isinstance(v.type, DenseTensorType):
            return x
        refused = refused_rows if isinstance(x, PaddedArray) else or_refused
        return refused(site.context, legal, x)

    states = tuple(map(checked, states, site.op.args.states))
    traces = [checked(x, site.op.outs.ys[k]) for k, x in zip(kept, traces, strict=True)]
    return states, traces, or_refused(site.context, legal, n_done), stopped


def _steps(
    site: Site,
    args: ScanArgs,
    asked: jax.Array | int | None,
    bound: int | None,
    states: tuple[Any, ...],
    kept: Sequence[int],
) -> tuple[Steps, Given]:
    """The loop in the form of `bounded`: traced values become arguments, known ones stay constants."""
    op: Scan = site.op
    traced = [k for k, x in enumerate(args.consts) if is_traced(x)]

    def step(
        consts: Sequence[Any], i: jax.Array, rows: Sequence[Any], states: tuple[Any, ...]
    ) -> Any:
        step = scan_step(site, with_items(args.consts, traced, consts))
        states, ys, stop = step(i, rows, states, kept)
        return states, ys, jnp.asarray(op.stops and stop, bool)

    if asked is not None:
        asked = counted(asked)
        # More steps than rows are illegal (see `_is_legal`), so they need not be counted.
        counts = [row_count(x) for x in args.sequences if not isinstance(x, PaddedArray)]
        counts += [] if bound is None else [bound]
        asked = jnp.minimum(asked, min(counts)) if counts else asked
    sequences = [jax.tree.map(jnp.asarray, rows_of(x)) for x in args.sequences]
    inputs = Given(asked, sequences, states, [args.consts[k] for k in traced])
    return Steps(step, bound, op.options.reverse), inputs


def _is_legal(args: ScanArgs, n_steps: jax.Array | int | None) -> jax.Array:
    """Whether the requested number of steps is not negative and equals the length of each sequence.

    If not, the results are NaN: a running program cannot raise.
    """
    legal = jnp.asarray(n_steps) >= 0
    for x in args.sequences:
        legal &= (x.length if isinstance(x, PaddedArray) else row_count(x)) == n_steps
    return legal


def _no_rows(op: Scan, args: ScanArgs, kept: Sequence[int]) -> list[PaddedArray]:
    if not kept:
        return []
    traces = empty_traces(op, args)
    return [PaddedArray(jax.tree.map(jnp.asarray, rows_of(traces[k])), counted(0)) for k in kept]


# -- forward mode alone ----------------------------------------------------------------------------

# ``lax.while_loop`` without a bound has no reverse mode: the number of states to keep is unknown. JAX's own
# error does not say what to do; this primitive takes the loop's results, and its transpose names the
# missing argument. (``jax.custom_derivatives.linear_call`` would do, but it has no batching rule.)
_forward_only = Primitive("forward_only")


def forward_only(tree: object, message: str) -> Any:
    """Return ``tree``; a reverse derivative of its floats raises `UnsupportedOpError` with ``message``."""

    def leaf(x: object) -> Any:
        inexact = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)
        return _forward_only.bind(x, message=message) if inexact else x

    return jax.tree.map(leaf, tree)


def _refuse(cotangent: object, x: object, *, message: str) -> Any:
    raise UnsupportedOpError(message)


_forward_only.def_impl(lambda x, message: x)
_forward_only.def_abstract_eval(lambda x, message: x)
ad.deflinear2(_forward_only, _refuse)
batching.defvectorized(_forward_only)
mlir.register_lowering(_forward_only, lambda context, x, message: [x])
