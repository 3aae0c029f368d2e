"""The trailing shapes of a loop's traces, including empty traces.

The shapes at the first step determine every shape in the body, as the rows of a trace are equally long.
Shapes that depend on a *value* inside the body are not known outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor import TensorLike
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import IfElse
from loopax.ir.matrices import sources_of_length
from loopax.ir.ops.bounds import known_number
from loopax.ir.ops.calling_convention import ScanArgs
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.ops.trace import stacked
from loopax.ir.replace import replaced
from loopax.ir.sizes.bodies import body_dims, may_change

_ASK = object()


def trace_shapes(scan: ScanGrammar, outer: ScanArgs, shapes: ScanArgs) -> list[Any]:
    """The trailing shape of each trace, as scalars over ``outer``; None where it is not known.

    ``shapes`` are the shapes of ``outer``, a tuple of scalars (or None) for each.
    """
    trailing = [_without_inference(scan, y, shapes) for y in scan.outs.ys]
    if any(f is _ASK for f in trailing):  # unfreeze the body only where necessary
        inferred = _inferred(scan, outer, shapes)
        trailing = [i if f is _ASK else f for f, i in zip(trailing, inferred, strict=True)]
    return trailing


def final_shapes(node: Apply, shapes: Sequence[Any]) -> list[Any]:
    """The shapes of the final states of the loop ``node``, whose initial states have ``shapes``.

    A length that the steps may change is read from the final state itself.
    """
    return [
        shape
        if shape is None
        else tuple(
            Shape_i(axis)(x) if x.type.shape[axis] is None and may_change(node, k, axis) else n
            for axis, n in enumerate(shape)
        )
        for k, (x, shape) in enumerate(zip(node.outputs, shapes, strict=False))
    ]


def trailing_shapes(scan: ScanGrammar, args: ScanArgs) -> list[Any]:
    """The trailing shape of each trace, as scalars over the inputs; None where it is not known."""
    groups = [[symbolic_shape(x) for x in group] for group in args[1:]]
    trailing = trace_shapes(scan, args, ScanArgs((), *groups))
    return [
        shape
        and [
            n if static is None else pt.constant(static, dtype="int64")
            for n, static in zip(shape, y.type.shape, strict=True)
        ]
        for y, shape in zip(scan.outs.ys, trailing, strict=True)
    ]


def lengths(x: TensorVariable) -> list[Any]:
    """The lengths of a tensor: numbers where they are static, else scalars."""
    return [x.shape[k] if n is None else n for k, n in enumerate(x.type.shape)]


def filled(value: TensorLike, dims: Sequence[Variable | int]) -> Any:
    """Build ``pt.alloc(value, *dims)`` without its search for hidden static lengths.

    The search rewrites the graph of the lengths: it took a third of `simplify_gradients`.
    """
    value = pt.as_tensor(value)
    sizes = [pt.as_tensor(n) for n in dims]
    scalars = [
        pt.constant(int(n.data), dtype="int64") if isinstance(n, Constant) else n.astype("int64")
        for n in sizes
    ]
    static = [*map(known_number, scalars)]
    out = value.type.clone(shape=static)()
    return Apply(pt.alloc, [value, *scalars], [out]).outputs[0]


def repeated(x: TensorVariable, n: Variable) -> Any:
    """Repeat ``x`` as ``n`` equal rows."""
    return filled(x, [n, *lengths(x)])


def symbolic_shape(x: Any) -> Any:
    """The shape of ``x`` as scalars; None for a value that is not a tensor."""
    ndim = getattr(x.type, "ndim", None)
    return None if ndim is None else tuple(x.shape[k] for k in range(ndim))


def _without_inference(scan: ScanGrammar, y: Variable, shapes: ScanArgs) -> Any:
    """The shape of ``y`` if it is static, or the shape of a state; else None."""
    if not isinstance(y.type, DenseTensorType):
        return None
    if None not in y.type.shape:
        return tuple(pt.constant(n, dtype="int64") for n in y.type.shape)
    for k, state in enumerate(scan.outs.states):
        if y is state and all(
            body_dims(scan).keeps(k, axis) is not False for axis in range(y.type.ndim)
        ):
            return shapes.states[k]
    return _ASK


def _inferred(scan: ScanGrammar, outer: ScanArgs, shapes: ScanArgs) -> list[Any]:
    trailing: list[Any] = [None] * scan.n_ys
    # The rows of a trace have one shape, whichever branch a `Cond` takes: either branch may show it.
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
        branch_shapes = _shapes(body, inner_shapes.flat())[
            scan.n_states : scan.n_states + scan.n_ys
        ]
        outside = {**dict(zip(inner.consts, outer.consts, strict=True)), **lengths.length_of}
        branch_shapes = [_outside(shape, outside, dummies) for shape in branch_shapes]
        trailing = [t if f is None else f for f, t in zip(trailing, branch_shapes, strict=True)]
        if not has_branches or None not in trailing:
            break
    return trailing


def _shapes(body: FunctionGraph, in_shapes: Sequence[Sequence[Variable] | None]) -> list[Any]:
    """The shapes of the outputs of ``body``, from the shapes of its inputs.

    For ``zeros(x.shape)`` PyTensor infers an element of ``x.shape``, a value inside the body: such
    values are inferred, too.
    """
    out_shapes = infer_shape(body.outputs, body.inputs, in_shapes)
    sizes = [0 if shape is None else len(shape) for shape in out_shapes]
    dims = [pt.as_tensor(n) for shape in out_shapes if shape is not None for n in shape]
    unknown: set[Any] = set()
    while True:  # terminates: each round goes further up in the body
        nodes = [n for n in toposort(dims) if _asks(n) and n.inputs[0] not in unknown]
        if not nodes:
            break
        replacements: dict[Any, Any] = {}
        arrays = [node.inputs[0] for node in nodes]
        for node, shape in zip(nodes, infer_shape(arrays, body.inputs, in_shapes), strict=True):
            lengths = [pt.as_tensor(n) for n in shape]
            if any(_asks(n) and _one_op(n.inputs[0], node.inputs[0]) for n in toposort(lengths)):
                lengths = _by_signature(node.inputs[0])  # its op has no shape inference
            if None in lengths:
                unknown.add(node.inputs[0])
                continue
            op: Any = node.op
            replacements[node.outputs[0]] = (
                lengths[op.i] if isinstance(op, Shape_i) else _vector(lengths)
            )
        dims = replaced(dims, replacements)
    remaining = iter(dims)
    return [
        None if shape is None else tuple(next(remaining) for _ in range(n))
        for shape, n in zip(out_shapes, sizes, strict=True)
    ]


def _by_signature(x: Any) -> list[Any]:
    """The lengths of ``x`` that its op's signature gives, others None."""
    sources: list[Any] = [sources_of_length(x, axis) for axis in range(x.type.ndim)]
    return [reduce(pt.minimum, [v.shape[k] for v, k in s]) if s else None for s in sources]


def _asks(node: Apply) -> bool:
    return isinstance(node.op, Shape | Shape_i)


def _one_op(a: Variable, b: Variable) -> bool:
    """Whether both are outputs of equal ops on equal inputs, since the inference clones nodes."""
    if a.owner is None or b.owner is None:
        return a is b
    return a.owner.op == b.owner.op and equal_computations(a.owner.inputs, b.owner.inputs)


def _vector(dims: Sequence[Variable]) -> Any:
    return pt.stack(dims) if dims else pt.zeros(0, dtype="int64")


class _Lengths:
    """Root variables that stand for lengths from outside.

    With the actual lengths PyTensor's inference would visit all their ancestors, including other loops and
    their bodies, once for each loop: 11 s instead of 2 for the fourth derivative of a loop over a vector.
    """

    def __init__(self) -> None:
        self.length_of: dict[Any, Any] = {}
        self._roots: dict[Any, Any] = {}

    def roots(self, shape: Sequence[Variable] | None) -> Any:
        if shape is None:
            return None
        return tuple(self._root(pt.as_tensor(n)) for n in shape)

    def _root(self, n: Variable) -> Any:
        if isinstance(n, Constant):
            return n
        if n not in self._roots:
            root = self._roots[n] = n.type()
            self.length_of[root] = n
        return self._roots[n]


def _take_branches(graph: FunctionGraph, branch: int) -> bool:
    """Replace each `Cond` and IfElse, nested ones too, by one branch; return whether there was any."""
    chosen = [node for node in graph.toposort() if isinstance(node.op, Cond | IfElse)]
    for node in chosen:
        op: Any = node.op
        if isinstance(op, Cond):
            body = op.branches[branch]
            outputs = replaced(body.outputs, dict(zip(body.inputs, node.inputs[1:], strict=True)))
        else:
            start = 1 + op.n_outs * branch
            outputs = node.inputs[start : start + op.n_outs]
        graph.replace_all(list(zip(node.outputs, outputs, strict=True)), import_missing=True)
    return bool(chosen) and (_take_branches(graph, branch) or True)


def _outside(
    shape: Sequence[Variable], outside: dict[Variable, Variable], dummies: set[Variable]
) -> Any:
    """Express ``shape`` in the variables ``outside``; None if it depends on ``dummies``."""
    if shape is None:
        return None
    dims = [pt.as_tensor(d) for d in shape]
    if any(v in dummies for v in ancestors(dims)):
        return None
    return tuple(replaced(dims, outside))


def empty_traces(scan: ScanGrammar, args: ScanArgs) -> list[Any]:
    """The traces of a loop that took no step: zero rows, with the trailing shape that the body implies.

    ``args`` are values. A dimension that depends on a value inside the body has length 0.
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


def _constant_shape(x: object) -> Any:
    dims = getattr(x, "shape", None)
    return None if dims is None else tuple(pt.constant(n, dtype="int64") for n in dims)


def _number(dim: Variable, values: dict[Variable, Any]) -> int:
    root_values: dict[Any, Any] = {v: values[v] for v in graph_inputs([dim]) if v in values}
    return int(dim.eval(root_values, mode="FAST_COMPILE", on_unused_input="ignore"))
