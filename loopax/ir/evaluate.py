"""What a graph means: the reference that every backend is tested against.

`evaluate` runs a graph node by node with each op's own ``perform``; `run_scan` is the meaning of
`Scan`. Both are written to be read, not to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.ir.compat import IfElse, LazyIfElse
from loopax.ir.errors import LoopTypeError
from loopax.ir.records import UNBOUNDED, ScanOuts

if TYPE_CHECKING:
    from loopax.ir.scan import Scan


def evaluate(graph: AbstractFunctionGraph, *inputs: Any) -> list[Any]:
    """The values of ``graph``'s outputs for ``inputs`` (NumPy values, one for each graph input).

    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x = pt.dvector("x")
    >>> evaluate(FunctionGraph([x], [x.sum()]), np.arange(4.0))
    [array(6.)]
    """
    env: dict[Variable, Any] = dict(zip(graph.inputs, inputs, strict=True))

    def read(v: Variable) -> Any:
        return v.data if isinstance(v, Constant) else env[v]

    for node in graph.toposort():
        env.update(zip(node.outputs, apply(node, [read(v) for v in node.inputs]), strict=True))
    return [read(v) for v in graph.outputs]


def apply(node: Apply, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of one node. ``inputs`` are left as they are, also where the op destroys them."""
    op: Any = node.op
    if isinstance(op, IfElse):  # it has no perform: linkers treat it apart
        return list(inputs[1 : 1 + op.n_outs] if inputs[0] else inputs[1 + op.n_outs :])
    if isinstance(op, LazyIfElse):
        branch = op.true_branch if inputs[0] else op.false_branch
        return evaluate(branch.fgraph, *inputs[1:])
    if (inner := getattr(op, "fgraph", None)) is not None and _is_call(op):
        return evaluate(inner, *inputs)
    destroyed = {i for positions in op.destroy_map.values() for i in positions}
    given = [own(x) if i in destroyed else x for i, x in enumerate(inputs)]
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    op.prepare_node(node, storage_map={}, compute_map={}, impl="py")
    op.perform(node, given, storage)
    return [
        # a ufunc on 0-d arrays gives a NumPy scalar, not the array that the type asks for
        v.type.filter(cell[0], allow_downcast=True)
        for v, cell in zip(node.outputs, storage, strict=True)
    ]


def _is_call(op: Any) -> bool:
    """Whether ``op`` is its inner graph, as OpFromGraph and `Call` are."""
    from pytensor.compile.builders import OpFromGraph

    from loopax.ir.call import Call

    return isinstance(op, OpFromGraph | Call)


def run_scan(scan: Scan, step: Callable[..., Sequence[Any]], inputs: Sequence[Any]) -> ScanOuts:
    """The meaning of `Scan`: ``step`` is its body, ``inputs`` its inputs, in order.

    The step that raises ``stop`` is counted and its rows are kept.
    """
    from loopax.ir.shapes import empty_traces

    args = scan.split_inputs(inputs)
    check_lengths(scan, args.n_steps, args.sequences)
    order = range(int(args.n_steps))
    states, rows, stop = list(args.states), [], False
    for i in reversed(order) if scan.options.reverse else order:
        slices = [x[i] for x in args.sequences]
        outs = scan.split_body_outputs(step(np.int64(i), *slices, *states, *args.consts))
        states, stop = list(outs.states), bool(outs.stop)
        rows.append(outs.ys)
        if stop:
            break
    ended = (np.asarray(len(rows)), np.asarray(stop)) if scan.stops else ()
    if not rows:
        return ScanOuts([own(s) for s in states], empty_traces(scan, args), *ended)
    if scan.options.reverse:
        rows.reverse()
    traces = [
        _stacked(scan, ys) if isinstance(y.type, DenseTensorType) else list(ys)
        for ys, y in zip(zip(*rows, strict=True), scan.outs.ys, strict=True)
    ]
    return ScanOuts([own(s) for s in states], traces, *ended)


def _stacked(scan: Scan, rows: Sequence[Any]) -> Any:
    shapes = list(dict.fromkeys(np.shape(row) for row in rows))
    if len(shapes) > 1:
        raise LoopTypeError(
            f"The rows of a trace of {scan} have the shapes {shapes}: they cannot be stacked. Pad them to "
            "one length."
        )
    return np.stack(rows)


def own(value: Any) -> Any:
    """A copy of ``value``: an output of a node must not be one of its inputs.

    A scalar, which a ufunc returns for 0-d arrays, becomes the array that its type asks for.
    """
    return np.asarray(value) if isinstance(value, np.generic) else deepcopy(value)


def check_lengths(scan: Scan, n_steps: Any, sequences: Sequence[Any]) -> None:
    """Raise ValueError unless ``n_steps >= 0`` and every sequence has that many rows."""
    if n_steps < 0:
        raise ValueError(f"{scan} was asked for {n_steps} steps: a loop takes 0 or more.")
    if n_steps == UNBOUNDED and not scan.stops:
        # The gradient of a loop in a loop, whose number of steps came in from outside.
        raise ValueError(
            f"{scan} never ends: the loop that it is a derivative of has no bound on its number of steps. "
            "Give it one, while_loop(cond, body, init, max_steps=1000), or use forward mode "
            "(pushforward, jax.jvp)."
        )
    for k, x in enumerate(sequences):
        if len(x) != n_steps:
            raise ValueError(
                f"{scan} takes {n_steps} steps, but its sequence {k} has {len(x)} rows. "
                "Slice the sequence, or lower n_steps."
            )
