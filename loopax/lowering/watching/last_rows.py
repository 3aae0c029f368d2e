"""The last rows of watched values, in a buffer that the steps of a loop shift.

A loop whose trip count depends on values cannot have a trace outside of the enclosing loop, since that
would have rows of several lengths: the rows are in an additional state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from loopax.base.errors import LoopTypeError
from loopax.lowering.open_loop import OpenLoop, State
from loopax.lowering.watching.exposed import Exposed


def last_rows(loop: OpenLoop, items: Sequence[Exposed], last: int) -> Any:
    """Collect the last rows of a loop that may take fewer steps than rows are wanted."""
    buffers = []
    for item in items:
        value, *fields = item.with_present().with_axis().flat()
        step = pt.broadcast_to(loop.i, value.shape[:1])
        buffers.append([_buffer(loop, x, last) for x in (value, step, *fields)])
    loop.states += [s for states in buffers for s in states]
    loop.options = loop.options._replace(parallel=None)  # which supports no float states
    change = loop.close()
    exposed = []
    for item, states in zip(items, buffers, strict=True):
        value, step, *fields = [s.new for s in states]
        if loop.options.reverse:
            step = loop.n_steps - 1 - step
        new = replace(item, steps=[None, *item.steps], present=fields[-1], has_axis=True)
        exposed.append(new.with_flat([value, step, *fields]))
    return change, exposed


def _buffer(loop: OpenLoop, rows: Variable, last: int) -> State:
    """A state that holds ``last`` rows: each step appends ``rows`` and drops the oldest."""
    static = rows.type.shape[1:]
    before = TensorType(rows.type.dtype, (last, *static))()
    both = pt.concatenate([before, rows])
    after = pt.specify_shape(both[-last:], (last, *static))
    init = pt.zeros((last, *_shape_before(loop, rows)), dtype=rows.type.dtype)
    return State(before, before.type.filter_variable(init), before.type.filter_variable(after))


def _shape_before(loop: OpenLoop, rows: Variable) -> list[Any]:
    """The shape of one of the ``rows`` that a step makes, computed outside of the loop."""
    static = rows.type.shape[1:]
    if None not in static:
        return list(static)
    shapes = [
        (),
        *(shape_of(r.outer)[1:] for r in loop.rows),
        *(shape_of(s.init) for s in loop.states),
        *(shape_of(c.outer) for c in loop.consts),
    ]
    inputs = loop.inner.flat()
    (shape,) = infer_shape([rows], inputs, shapes)
    lengths = list(shape[1:])
    if not set(inputs).isdisjoint(ancestors(lengths)):
        raise LoopTypeError(
            "The shape of a watched value is only known in each step of a loop whose number of steps is "
            f"not known either ({loop.options.origin.line}). Watch a value with a fixed shape, for "
            "example a sum."
        )
    return lengths


def shape_of(v: Any) -> Any:
    """The shape of a tensor as scalars; None for anything else."""
    return tuple(v.shape[k] for k in range(v.type.ndim)) if hasattr(v.type, "ndim") else None
