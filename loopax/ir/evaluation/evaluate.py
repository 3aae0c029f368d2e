"""The reference semantics of a graph, against which every backend is tested.

`evaluate` runs a graph node by node, and the bodies of its loops, branches and calls in the same way:
an op with bodies by `InnerGraphOp.run`, every other op by its ``perform``. Nothing is compiled. The code is
written to be read, not to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.scalar.basic import Composite
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from loopax.base.upstream.pytensor import IfElse, LazyIfElse, check_batch_shapes, core_node
from loopax.ir.derivatives.after_forward import perform
from loopax.ir.ops.inner_graph_op import InnerGraphOp


def evaluate(graph: AbstractFunctionGraph, *inputs: object) -> list[Any]:
    """The values of ``graph``'s outputs for ``inputs`` (NumPy values, one for each graph input).

    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x = pt.dvector("x")
    >>> evaluate(FunctionGraph([x], [x.sum()]), np.arange(4.0))
    [array(6.)]
    """
    return run_nodes(_evaluated, graph, *inputs)


def perform_nodes(graph: AbstractFunctionGraph, *inputs: object) -> list[Any]:
    """`evaluate` with each loop and branch compiled, as its ``perform`` does."""
    return run_nodes(apply, graph, *inputs)


def apply(node: Apply, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of one node, by its ``perform``, which compiles the bodies of a loop.

    ``inputs`` are left unchanged, even where the op destroys them.
    """
    return node_outputs(apply, node, inputs)


def own(value: object) -> Any:
    """A copy of ``value``: an output of a node must not be one of its inputs.

    A scalar, which a ufunc returns for 0-d arrays, becomes the array of its type.
    """
    return np.asarray(value) if isinstance(value, np.generic) else deepcopy(value)


_MOST_OPERANDS = 32  # of a ufunc
_OfNode = Callable[[Apply, Sequence[Any]], list[Any]]


def run_nodes(of_node: _OfNode, graph: AbstractFunctionGraph, *inputs: object) -> list[Any]:
    """Evaluate ``graph`` with ``of_node``, which evaluates a node at values of its inputs."""
    env: dict[Variable, Any] = dict(zip(graph.inputs, inputs, strict=True))

    def read(v: Variable) -> Any:
        return v.data if isinstance(v, Constant) else env[v]

    for node in graph.toposort():
        outs = of_node(node, [read(v) for v in node.inputs])
        env.update(zip(node.outputs, outs, strict=True))
    return [read(v) for v in graph.outputs]


def _evaluated(node: Apply, inputs: Sequence[Any]) -> list[Any]:
    op = node.op
    if isinstance(op, InnerGraphOp):
        return op.run(inputs, *[partial(evaluate, body) for body in op.bodies])
    return node_outputs(_evaluated, node, inputs)


def node_outputs(of_node: _OfNode, node: Apply, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a node of PyTensor; ``of_node`` evaluates the nodes inside it."""
    op: Any = node.op
    if isinstance(op, IfElse):  # it has no perform: linkers treat it specially
        return list(inputs[1 : 1 + op.n_outs] if inputs[0] else inputs[1 + op.n_outs :])
    if isinstance(op, LazyIfElse):
        branch = op.true_branch if inputs[0] else op.false_branch
        return run_nodes(of_node, branch.fgraph, *inputs[1:])
    if isinstance(op, OpFromGraph):
        return run_nodes(of_node, op.fgraph, *inputs)
    if isinstance(op, Blockwise) and isinstance(op.core_op, InnerGraphOp | OpFromGraph | IfElse):
        return _row_by_row(of_node, node, inputs)
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Composite):
        return _by_parts(of_node, op.scalar_op, inputs)
    if isinstance(op, Elemwise) and len(inputs) + len(node.outputs) > _MOST_OPERANDS:
        return _element_by_element(op, node, inputs)
    destroyed = {i for positions in op.destroy_map.values() for i in positions}
    values = [own(x) if i in destroyed else x for i, x in enumerate(inputs)]
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    op.prepare_node(node, storage_map={}, compute_map={}, impl="py")
    perform(node, values, storage)
    return [
        # a ufunc on 0-d arrays returns a NumPy scalar, not an array of the type
        v.type.filter(cell[0], allow_downcast=True)
        for v, cell in zip(node.outputs, storage, strict=True)
    ]


def _element_by_element(op: Elemwise, node: Apply, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate an elementwise op of too many operands for a ufunc: PyTensor refuses it (3.3.8)."""
    check_batch_shapes(node, inputs)
    arrays = np.broadcast_arrays(*inputs)
    outs: Any = [np.empty(arrays[0].shape, v.type.dtype) for v in node.outputs]
    for at in np.ndindex(arrays[0].shape):
        results = op.scalar_op.impl(*(x[at] for x in arrays))
        for out, result in zip(outs, results if len(outs) > 1 else [results], strict=True):
            out[at] = result
    return [*outs]


def _by_parts(of_node: _OfNode, op: Composite, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a composite function op by op on whole arrays.

    PyTensor computes with Python's numbers, which do not wrap around: ``x**3`` of an ``int8`` raises
    an OverflowError there (3.3.8).
    """
    ndim = max(np.ndim(x) for x in inputs)

    def elementwise(node: Apply, values: Sequence[Any]) -> list[Any]:
        arrays = [np.reshape(x, (1,) * (ndim - np.ndim(x)) + np.shape(x)) for x in values]
        return of_node(Elemwise(node.op).make_node(*map(pt.constant, arrays)), arrays)

    return run_nodes(elementwise, op.fgraph, *inputs)


def _row_by_row(of_node: _OfNode, node: Apply, inputs: Sequence[np.ndarray]) -> list[Any]:
    """Evaluate a Blockwise of an op with inner graphs, or of an IfElse, row by row."""
    op: Any = node.op
    check_batch_shapes(node, inputs)
    core, n = core_node(op, node.inputs), op.batch_ndim(node)
    batch = np.broadcast_shapes(*(x.shape[:n] for x in inputs))
    batches = [np.broadcast_to(x, (*batch, *x.shape[n:])) for x in inputs]
    rows = [of_node(core, [np.array(x[index]) for x in batches]) for index in np.ndindex(*batch)]
    if not rows:
        raise NotImplementedError(f"{op} of no rows: the shape of a row is unknown.")
    return [np.stack(outs).reshape(*batch, *outs[0].shape) for outs in zip(*rows, strict=True)]
