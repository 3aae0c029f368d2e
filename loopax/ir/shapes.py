"""The trailing shapes of a loop's traces, which an empty trace must have too.

A state keeps its shape, so every shape in the body follows from those of the first step. What hangs
on a *value* inside the body is not known from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType

from loopax.base.upstream.pytensor import IfElse
from loopax.ir.ops.calling_convention import ScanArgs
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.ops.trace import stacked
from loopax.ir.replace import replaced

_ASK = object()


def trace_shapes(scan: ScanGrammar, outer: ScanArgs, shapes: ScanArgs) -> list[Any]:
    """The trailing shape of each trace, as scalars over ``outer``; None where it is not known.

    ``shapes`` are those of ``outer``, one tuple of scalars (or None) for each.
    """
    found = [_without_inference(scan, y, shapes) for y in scan.outs.ys]
    if any(f is _ASK for f in found):  # the body is only unfrozen where it has to be
        inferred = _inferred(scan, outer, shapes)
        found = [i if f is _ASK else f for f, i in zip(found, inferred, strict=True)]
    return found


def trailing_shapes(scan: ScanGrammar, args: ScanArgs) -> list[Any]:
    """The trailing shape of each trace, over what the loop is given; None where it is not known."""
    groups = [[symbolic_shape(x) for x in group] for group in args[1:]]
    found = trace_shapes(scan, args, ScanArgs((), *groups))
    return [
        shape
        and [
            n if known is None else pt.constant(known, dtype="int64")
            for n, known in zip(shape, y.type.shape, strict=True)
        ]
        for y, shape in zip(scan.outs.ys, found, strict=True)
    ]


def lengths(x: Any) -> list[Any]:
    """The lengths of a tensor: numbers where its type has them, else scalars."""
    return [x.shape[k] if n is None else n for k, n in enumerate(x.type.shape)]


def symbolic_shape(x: Any) -> Any:
    """The shape of ``x`` as scalars, None of what is no tensor."""
    ndim = getattr(x.type, "ndim", None)
    return None if ndim is None else tuple(x.shape[k] for k in range(ndim))


def _without_inference(scan: ScanGrammar, y: Any, shapes: ScanArgs) -> Any:
    """The shape of ``y`` where it is static, or that of a state."""
    if not isinstance(y.type, DenseTensorType):
        return None
    if None not in y.type.shape:
        return tuple(pt.constant(n, dtype="int64") for n in y.type.shape)
    for k, state in enumerate(scan.outs.states):
        if y is state:
            return shapes.states[k]
    return _ASK


def _inferred(scan: ScanGrammar, outer: ScanArgs, shapes: ScanArgs) -> list[Any]:
    found: list[Any] = [None] * scan.n_ys
    # The rows of a trace have one shape, whichever branch a `Cond` takes: whichever tells it, does.
    for branch in (0, 1):
        body = scan.unfrozen()
        has_branches = _take_branches(body, branch)
        inner = scan.split_body_inputs(body.inputs)
        lengths = _Lengths()
        inner_shapes = inner._replace(
            i=(),
            rows=[None if s is None else lengths.roots(s[1:]) for s in shapes.sequences],
            states=[lengths.roots(s) for s in shapes.states],
            consts=[lengths.roots(s) for s in shapes.consts],
        )
        dummies = {*inner.flat()} - {*inner.consts}
        told = _shapes(body, inner_shapes.flat())[scan.n_states : scan.n_states + scan.n_ys]
        outside = {**dict(zip(inner.consts, outer.consts, strict=True)), **lengths.given}
        told = [_outside(shape, outside, dummies) for shape in told]
        found = [t if f is None else f for f, t in zip(found, told, strict=True)]
        if not has_branches or None not in found:
            break
    return found


def _shapes(body: FunctionGraph, given: Sequence[Any]) -> list[Any]:
    """The shapes of the outputs of ``body``, given those of its inputs.

    PyTensor's inference takes ``zeros(x.shape)`` at its word: the length of the result is an element of
    ``x.shape``, a value inside. What such values are is asked in turn.
    """
    told = infer_shape(body.outputs, body.inputs, given)
    sizes = [0 if shape is None else len(shape) for shape in told]
    dims = [pt.as_tensor(n) for shape in told if shape is not None for n in shape]
    unknown: set[Any] = set()
    while True:  # ends: what tells a shape is further up in the body each time
        nodes = [n for n in toposort(dims) if _asks(n) and n.inputs[0] not in unknown]
        if not nodes:
            break
        known: dict[Any, Any] = {}
        asked = [node.inputs[0] for node in nodes]
        for node, shape in zip(nodes, infer_shape(asked, body.inputs, given), strict=True):
            new = [pt.as_tensor(n) for n in shape]
            if any(_asks(n) and _one_op(n.inputs[0], node.inputs[0]) for n in toposort(new)):
                unknown.add(node.inputs[0])  # its op does not say
                continue
            op: Any = node.op
            known[node.outputs[0]] = new[op.i] if isinstance(op, Shape_i) else _vector(new)
        dims = replaced(dims, known)
    found = iter(dims)
    return [
        None if shape is None else tuple(next(found) for _ in range(n))
        for shape, n in zip(told, sizes, strict=True)
    ]


def _asks(node: Any) -> bool:
    return isinstance(node.op, Shape | Shape_i)


def _one_op(a: Any, b: Any) -> bool:
    """Whether both come from one op on the same inputs. (The inference clones; roots stay.)"""
    if a.owner is None or b.owner is None:
        return a is b
    return a.owner.op == b.owner.op and equal_computations(a.owner.inputs, b.owner.inputs)


def _vector(dims: Sequence[Any]) -> Any:
    return pt.stack(dims) if dims else pt.zeros(0, dtype="int64")


class _Lengths:
    """Roots in the place of the lengths from outside.

    With the lengths themselves PyTensor's inference would look at all that they follow from, other
    loops and what is inside of those too, once more for each loop: 11 s in place of 2 for the fourth
    derivative of a loop over a vector.
    """

    def __init__(self) -> None:
        self.given: dict[Any, Any] = {}
        self._roots: dict[Any, Any] = {}

    def roots(self, shape: Any) -> Any:
        if shape is None:
            return None
        return tuple(self._root(pt.as_tensor(n)) for n in shape)

    def _root(self, n: Any) -> Any:
        if isinstance(n, Constant):
            return n
        if n not in self._roots:
            root = self._roots[n] = n.type()
            self.given[root] = n
        return self._roots[n]


def _take_branches(graph: FunctionGraph, branch: int) -> bool:
    """Put one branch of each `Cond` and IfElse, nested ones too, in its place; whether there was any."""
    chosen = [node for node in graph.toposort() if isinstance(node.op, Cond | IfElse)]
    for node in chosen:
        op: Any = node.op
        if isinstance(op, Cond):
            taken = op.branches[branch]
            new = replaced(taken.outputs, dict(zip(taken.inputs, node.inputs[1:], strict=True)))
        else:
            first = 1 + op.n_outs * branch
            new = node.inputs[first : first + op.n_outs]
        graph.replace_all(list(zip(node.outputs, new, strict=True)), import_missing=True)
    return bool(chosen) and (_take_branches(graph, branch) or True)


def _outside(shape: Any, outside: dict[Any, Any], dummies: set[Any]) -> Any:
    """``shape`` with what is inside replaced by what is outside, None if it needs more."""
    if shape is None:
        return None
    dims = [pt.as_tensor(d) for d in shape]
    if any(v in dummies for v in ancestors(dims)):
        return None
    return tuple(replaced(dims, outside))


def empty_traces(scan: ScanGrammar, args: ScanArgs) -> list[Any]:
    """The traces of a loop that took no step: zero rows of the trailing shape the body implies.

    ``args`` are values. A dimension that hangs on a value inside the body has length 0.
    """
    rows = [stacked(x.type)() for x in scan.args.rows]
    outer = args._replace(
        n_steps=pt.constant(0, dtype="int64"),
        sequences=rows,
        states=[s.type() for s in scan.args.states],
        consts=[c.type() for c in scan.args.consts],
    )
    values = dict(zip(outer.flat()[1:], args.flat()[1:], strict=True))
    shapes = args._replace(
        n_steps=(),
        sequences=[_constant_shape(x) for x in args.sequences],
        states=[_constant_shape(x) for x in args.states],
        consts=[_constant_shape(x) for x in args.consts],
    )
    traces: list[Any] = []
    for y, dims in zip(scan.outs.ys, trace_shapes(scan, outer, shapes), strict=True):
        if not isinstance(y.type, DenseTensorType):
            traces.append([])
            continue
        if dims is None:
            shape = [0 if n is None else n for n in y.type.shape]
        else:
            shape = [_number(d, values) for d in dims]
        traces.append(np.empty((0, *shape), dtype=y.type.dtype))
    return traces


def _constant_shape(x: Any) -> Any:
    dims = getattr(x, "shape", None)
    return None if dims is None else tuple(pt.constant(n, dtype="int64") for n in dims)


def _number(dim: Variable, values: dict[Any, Any]) -> int:
    needed: dict[Any, Any] = {v: values[v] for v in graph_inputs([dim]) if v in values}
    return int(dim.eval(needed, mode="FAST_COMPILE", on_unused_input="ignore"))
