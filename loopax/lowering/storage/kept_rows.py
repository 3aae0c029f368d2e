"""A few rows of a trace kept as states of its loop, for `read_last` and `read_rows`.

    the last rows   y' = y, before' = y, ...        each state takes what the next one was
    the first rows  first' = switch(i == 0, y, first), ...

The last row of a next state is its final. With ``reverse`` the steps fill a trace from its end, so that
the last steps make its first rows. Until a state has its row it is zeros, which no read reaches: the rows
are cut to the number of steps where there may have been fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape
from pytensor.tensor.variable import TensorVariable

from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.sizes import Dims
from loopax.lowering.access.trace_reads import Read, Reads, has_rows
from loopax.lowering.open_loop import Input, OpenLoop, State, Y, replace_outputs


def keep_in_states(
    graph: FunctionGraph,
    node: Apply,
    reads: dict[int, Reads],
    shapes: Sequence[Any],
    dims: Dims,
    why: str,
) -> Apply:
    """Replace the traces in ``reads``, keyed by position, by states; nothing else reads the traces.

    ``shapes`` are the `trailing_shapes` of all traces. Returns the new loop.
    """
    loop = OpenLoop.of(node)
    kept = {
        k: _states_of_rows(loop, loop.ys[k], asked_for, shapes[k]) for k, asked_for in reads.items()
    }
    loop.ys = [y for k, y in enumerate(loop.ys) if k not in reads]
    pairs: dict[Any, Any] = loop.close()
    n = loop.n_steps if loop.stop is None else pairs[loop.n_done]
    for k, asked_for in reads.items():
        ends = {back: [s.new for s in states] for back, states in kept[k].items()}
        for read in asked_for.rows:
            pairs[read.out] = _value(read, ends[read.back], partial(has_rows, node, dims), n)
        for asked in asked_for.shapes:
            pairs[asked.outputs[0]] = shape_of(asked, n, shapes[k])
    replace_outputs(graph, pairs, why)
    return (loop.states or loop.ys)[0].new.owner


def _states_of_rows(
    loop: OpenLoop, y: Y, reads: Reads, shape: Sequence[TensorVariable]
) -> dict[bool, list[State]]:
    """The states that hold the rows at each end, outermost row first."""
    last_is_back = not loop.options.reverse
    return {
        last_is_back: _last(loop, y, reads.most(last_is_back), shape),
        not last_is_back: _first(loop, y, reads.most(not last_is_back), shape),
    }


def _last(loop: OpenLoop, y: Y, rows: int, shape: Sequence[Variable]) -> list[State]:
    """States whose final values are the rows of the last steps, the very last one first."""
    states: list[State] = []
    nexts = {s.next: s for s in loop.states}
    value = y.inner
    for _ in range(rows):
        state = nexts.get(value)
        if state is None:
            init = states[-1].init if states else _zeros(y.inner, shape)
            state = _added(loop, value, init, value)
        states.append(state)
        value = state.inner
    return states


def _first(loop: OpenLoop, y: Y, rows: int, shape: Sequence[Variable]) -> list[State]:
    """States whose final values are the rows of the first steps, the very first one first."""
    states: list[State] = []
    end: Any = None
    if rows and loop.options.reverse:
        end = INDEX_TYPE("n_steps")
        loop.consts.append(Input(end, loop.n_steps))
    for k in range(rows):
        state = _added(loop, y.inner, _zeros(y.inner, shape), y.inner)
        at = k if end is None else end - 1 - k
        new = pt.switch(pt.eq(loop.i, at), y.inner, state.inner)
        state.next = state.inner.type.filter_variable(new)
        states.append(state)
    return states


def _added(loop: OpenLoop, row: Variable, init: Variable, new: Variable) -> State:
    kind = row.type
    state = State(kind(), kind.filter_variable(init), kind.filter_variable(new))
    loop.states.append(state)
    return state


def _zeros(row: Variable, shape: Sequence[Variable]) -> Any:
    return pt.zeros(shape, dtype=row.type.dtype)


def _value(read: Read, rows: Sequence[Variable], has: Callable[[int], bool], n: Variable) -> Any:
    """The value of a read, from ``rows``, the kept rows at its end of ``n`` rows, outermost first."""
    if read.row is not None and has(read.rows):
        return read.on_row(rows[read.rows - 1])
    stack = pt.stack(list(reversed(rows)) if read.back else list(rows))
    if not has(len(rows)):
        n_rows = pt.minimum(n, len(rows))
        stack = stack[len(rows) - n_rows :] if read.back else stack[:n_rows]
    return read.on(stack)


def shape_of(asked: Apply, n: Variable, trailing: Sequence[Any]) -> Any:
    """The value of ``asked``, a Shape node or one that reads an element of it, for ``n`` rows."""
    op: Any = asked.op
    dims = [n, *(pt.as_tensor(d).astype("int64") for d in trailing)]
    return pt.stack(dims) if isinstance(op, Shape) else dims[op.i]
