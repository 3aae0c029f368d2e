"""States and sequences that count the steps  ->  functions of the index.

    s' = s + 2,  s starts at k            ->  s = k + 2 * i,  after the loop k + 2 * n_steps
    a row of the constant [3, 5, 7, ...]  ->  3 + 2 * i

Condition: integers, which wrap around alike, and a constant increment. A loop that may be asked for fewer
than 0 steps, which is an error, keeps a state whose final value is read.

Reason: the index of a step is known to lie in its range, the value of a state is not. ``fori_loop`` of JAX
carries its counter, and a scan over positions reads them: each step checked both ends for ``x[i]``, which
cannot leave the array.

In the literature: induction variable recognition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType, integer_dtypes
from pytensor.tensor.variable import TensorVariable

from loopax.facts.elementwise import is_elementwise
from loopax.ir import Scan
from loopax.ir.replace import replaced
from loopax.ir.sizes import unconditional_dims_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import Input, OpenLoop, State, replace_outputs


def recognise_counters(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    for node in graph.toposort():
        if isinstance(node.op, Scan) and _counts(node):
            _rewrite(graph, node)
    map_bodies(graph, recognise_counters)


def _counts(node: Apply) -> bool:
    loop = OpenLoop.on(node, node.op.fgraph)
    return any(_increment(s) is not None for s in loop.states) or any(
        _affine(r) is not None for r in loop.rows
    )


def _rewrite(graph: FunctionGraph, node: Apply) -> None:
    loop = OpenLoop.of(node)
    functions: dict[Any, Any] = {}  # functions of the index
    finals: dict[Any, Any] = {}
    for s in loop.states:
        if (increment := _increment(s)) is not None:
            start = _constant_inside(loop, s.init)
            functions[s.inner] = _at(start, increment, _steps_before(loop))
            if loop.stop is not None:
                finals[s.final] = _at(s.init, increment, loop.n_done)
            elif not (graph.clients[s.final] and _may_be_negative(graph, loop)):
                finals[s.final] = _at(s.init, increment, loop.n_steps)
    for r in loop.rows:
        if (line := _affine(r)) is not None:
            first, increment = line
            functions[r.inner] = _at(first, increment, loop.i)
    loop.states = [s for s in loop.states if s.final not in finals]
    loop.rows = [r for r in loop.rows if r.inner not in functions]
    loop.set_outputs(replaced(loop.outputs(), functions))
    loop.drop_unread()
    n_done = loop.n_done  # an output of the old node, which the finals may read
    new = loop.close()
    if n_done is not None:
        finals = dict(
            zip(finals, replaced(list(finals.values()), {n_done: new[n_done]}), strict=True)
        )
    replace_outputs(graph, {**finals, **new}, "recognise_counters")


def _may_be_negative(graph: FunctionGraph, loop: OpenLoop) -> bool:
    dims = unconditional_dims_of(graph)
    return not dims.at_least(dims.value(loop.n_steps))


def _increment(s: State) -> Any:
    """The constant that each step adds to an integer state; None for any other state."""
    if not _is_integer(s.inner) or s.inner.type.ndim or not is_elementwise(s.next.owner, ps.Add):
        return None
    terms = list(s.next.owner.inputs)
    if s.inner not in terms or len(terms) != 2 or s.next.type.dtype != s.inner.type.dtype:
        return None
    terms.remove(s.inner)
    is_plain = isinstance(terms[0], Constant) and terms[0].type.dtype in integer_dtypes
    return terms[0].data if is_plain else None


def _affine(r: Input) -> tuple[Any, Any] | None:
    """The first entry and the increment of a constant arithmetic sequence of integers."""
    if not isinstance(r.outer, Constant) or not _is_integer(r.outer) or r.outer.type.ndim != 1:
        return None
    data = np.asarray(r.outer.data)
    if len(data) < 2:
        return None
    increment = data[1:2] - data[:1]
    is_line = np.array_equal(data, data[0] + increment * np.arange(len(data)).astype(data.dtype))
    return (data[0], increment[0]) if is_line else None


def _is_integer(v: Variable) -> bool:
    return isinstance(v.type, DenseTensorType) and v.type.dtype in integer_dtypes


def _at(
    first: Variable | np.integer, increment: np.integer | np.ndarray, step: TensorVariable
) -> Any:
    """The value of a counter at a step, in the dtype of ``first``, with the overflow of a sum."""
    first = pt.as_tensor(first)
    dtype = first.type.dtype
    position = step.astype(dtype)
    scaled = position if increment == 1 else position * np.asarray(increment).astype(dtype)
    is_zero = isinstance(first, Constant) and not np.any(first.data)
    return scaled if is_zero else scaled + first


def _steps_before(loop: OpenLoop) -> Any:
    """The number of steps before this one; the index of a reverse loop counts from the other end."""
    if not loop.options.reverse:
        return loop.i
    return _constant_inside(loop, loop.n_steps) - 1 - loop.i


def _constant_inside(loop: OpenLoop, outer: Variable) -> Any:
    """The variable by which the step reads ``outer``."""
    if isinstance(outer, Constant):
        return outer
    port = Input(outer.type(), outer)
    loop.consts.append(port)
    return port.inner
