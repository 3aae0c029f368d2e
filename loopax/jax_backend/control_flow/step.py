"""One step of a loop: its body and states, as all JAX loops run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.graph.basic import Variable
from pytensor.sparse.type import SparseTensorType
from pytensor.typed_list.type import TypedListType

from loopax.base.errors import DynamicShapeError, changes_shape, describe
from loopax.ir import Scan
from loopax.jax_backend.staging.evaluate import Site, refuse_lengths
from loopax.jax_backend.staging.frame import IndexOf, RowOf
from loopax.jax_backend.staging.symbolic import traced
from loopax.jax_backend.values.lists import StackedList, as_list, as_row
from loopax.jax_backend.values.padded_array import PaddedArray
from loopax.jax_backend.values.sparse import OrderedBCOO, carried
from loopax.jax_backend.values.x64 import as_declared
from loopax.numerics.arrays import Array

STATE = "a state of a loop"

Step = Callable[[Any, Any, Any, Any], tuple[tuple[Any, ...], tuple[Any, ...], Any]]


def scan_step(
    site: Site, consts: Sequence[Any], padded_rows: bool = False, unrolled: bool = False
) -> Step:
    """Build ``step(i, rows, states, kept) -> (next states, the ys at kept, stop)`` of ``site``'s Scan.

    With ``padded_rows`` a y may be a `PaddedArray`, whose stacked rows have their lengths beside them. In
    an ``unrolled`` loop the position of a row is known, and it is static if its sequence is.
    """
    op: Scan = site.op
    outer = op.split_inputs(site.node.inputs)
    rows_of_what = outer.sequences if unrolled else map(RowOf, outer.sequences)
    origins = [IndexOf(outer.n_steps), *rows_of_what, *[STATE] * op.n_states, *outer.consts]

    def step(
        i: Array | None, rows: Sequence[Any], states: Sequence[Any], kept: Sequence[int]
    ) -> Any:
        values = [
            x if x is None else as_row(x, v)
            for x, v in zip([i, *rows, *states, *consts], op.fgraph.inputs, strict=True)
        ]
        frame = site.frame_of(op.fgraph, values, origins)
        outs = op.split_body_outputs([traced(frame.read(v)) for v in frame.plan.outputs])
        for k in kept:
            if isinstance(outs.ys[k], PaddedArray) and not padded_rows:
                y = op.split_body_outputs(frame.plan.outputs).ys[k]
                refuse_lengths(frame, [y], f"{op}, which stacks a row {describe(y)} of each step, ")
        labels = op.options.origin.labels[: op.n_states] or [""] * op.n_states
        nexts = [
            next_state(x, before, v, label)
            for x, before, v, label in zip(outs.states, states, op.args.states, labels, strict=True)
        ]
        return tuple(nexts), tuple(as_row(outs.ys[k], op.outs.ys[k]) for k in kept), outs.stop

    return step


def initial_states(values: Sequence[Any], variables: Sequence[Any]) -> tuple[Any, ...]:
    """The initial states in the form in which JAX carries them."""
    return tuple(_initial(x, v) for x, v in zip(values, variables, strict=True))


def _initial(x: Any, v: Variable) -> Any:
    if isinstance(v.type, SparseTensorType):
        return carried(x)
    return jax.tree.map(jnp.asarray, as_row(x, v)) if hasattr(v.type, "dtype") else x


def next_state(x: Any, before: Any, v: Variable, label: str) -> Any:
    """Cast a next state to the dtype of its variable; its shape must equal that before the step.

    ``label`` is the user's name of the state, "" for none.
    """
    if isinstance(v.type, TypedListType):
        x, before = as_list(x, v.type), as_list(before, v.type)
        trees: list[Any] = [jax.tree.structure(x), jax.tree.structure(before)]
        if trees[0] != trees[1] or _shapes(x) != _shapes(before):
            raise DynamicShapeError(
                f"A list that is a state of a loop changes from {len(before)} rows of the shapes "
                f"{_shapes(before)} to {len(x)} of {_shapes(x)}, for {describe(v)}. JAX must know the "
                "shape of a state while it traces, and the shape must stay the same. Instead of "
                "appending the new row to the list, return it as a trace of the loop: final, rows = "
                "loopax.scan(lambda carry, x: (carry, row), init, xs)."
            )
        return x
    if not hasattr(v.type, "dtype"):
        return x
    if isinstance(x, PaddedArray) and isinstance(before, PaddedArray) and x.axis == before.axis:
        # The gradient of a trace that a step reads is accumulated in a state with the trace's length.
        fitted = x.fitted(before.bound)
        if fitted.data.shape == before.data.shape:
            return before.with_data(as_declared(fitted.data, v))
    if isinstance(x, PaddedArray) or isinstance(before, PaddedArray):
        raise DynamicShapeError(
            f"A state of a loop has as many rows as another loop takes steps, for {describe(v)}, "
            "either before a step or after it, but not both: every step must return a state of the "
            "shape that it received."
        )
    x = as_declared(x, v)
    if isinstance(v.type, SparseTensorType) and x.shape == before.shape:
        return _next_matrix(x, before, v)
    if x.shape != before.shape:
        raise changes_shape(label, before.shape, x.shape, v)
    return x


def _next_matrix(x: OrderedBCOO, before: OrderedBCOO, v: Variable) -> OrderedBCOO:
    if x.nse > before.nse:
        raise DynamicShapeError(
            f"A sparse matrix that is a state of a loop has {before.nse} entries before a step and up "
            f"to {x.nse} after it, for {describe(v)}. JAX must know their number while it traces, and "
            "the number must stay the same. Carry a dense matrix, "
            "pytensor.sparse.dense_from_sparse(x), or use only ops that leave the entries in place: x "
            "* 2.0, pytensor.sparse.add_s_s_data(x, y)."
        )
    return carried(x, before.nse)


def _shapes(x: object) -> list[tuple[int, ...]]:
    return [jnp.shape(leaf) for leaf in jax.tree.leaves(x)]


def rows_of(x: Array | PaddedArray | StackedList) -> Any:
    """View a stacked sequence as an array, or a pytree of arrays, with a leading axis."""
    return x.data if isinstance(x, PaddedArray | StackedList) else x
