"""A Jacobian of which only products or the diagonal are read -> pushforwards and pullbacks.

    jacobian(f)(x) @ v    ->  pushforward(f)(x, v)
    v @ jacobian(f)(x)    ->  pullback(f)(x, v)
    diag(jacobian(f)(x))  ->  pushforward(f)(x, seeds)[colours, elements]

Condition: ``f`` takes a vector to a vector; for the diagonal it is square. The Hessian is the Jacobian of
a gradient.

Reason: the Jacobian takes a product for each of its columns, and room for all of them. For the diagonal,
one product serves two columns unless one has an entry in the row of the other: a band of half-width b needs
at most b + 1 products, an elementwise function one. Where each column needs its own, or the structure is
unknown (`loopax/extensions/sparse_jacobians` computes the colours), a loop over them keeps one at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot

from loopax.base.extensions import provided
from loopax.base.upstream.pytensor import freeze
from loopax.ir import Jacobian, Pullback, Pushforward, Scan
from loopax.ir.derivatives.graph_derivatives import over_rows
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs
from loopax.ir.ops.inner_graph_op import core_of


def read_jacobians(graph: FunctionGraph) -> None:
    """Replace the reads of Jacobians in ``graph``, in place."""
    if not any(isinstance(node.op, Jacobian) for node in graph.apply_nodes):
        return
    for node in graph.toposort():
        new = None
        op = core_of(node.op)
        if isinstance(op, Dot):
            new = _product(*node.inputs)
        elif isinstance(op, ExtractDiag) and (op.offset, op.axis1, op.axis2) == (0, 0, 1):
            new = _diagonal(node.inputs[0])
        if new is not None:
            old = node.outputs[0]
            new = old.type.filter_variable(new.astype(old.type.dtype))
            graph.replace_all([(old, new)], import_missing=True, reason="read_jacobians")


def _block(v: Variable) -> tuple[Apply, int, int] | None:
    """The Jacobian node and the indices of its vector-by-vector block ``v``; None for anything else."""
    node = v.owner
    if node is None or not isinstance(node.op, Jacobian):
        return None
    i, j = divmod(node.outputs.index(v) - node.op.n_outs, len(node.op.wrt))
    if i < 0:
        return None
    y, x = node.op.fgraph.outputs[i], node.op.fgraph.inputs[node.op.wrt[j]]
    return (node, i, j) if y.type.ndim == x.type.ndim == 1 else None


def _product(a: Variable, b: Variable) -> Any:
    for matrix, other, axis in ((a, b, 1), (b, a, 0)):
        vector = _squeezed(other, axis)
        of, is_turned = _turned(matrix)
        block = _block(of)
        if vector is None or block is None or matrix.type.ndim != 2:
            continue
        # J @ v and v @ J.T are pushforwards of v; v @ J and J.T @ v are pullbacks.
        forward = (axis == 1) != is_turned
        return pt.expand_dims(_pushed(*block, vector) if forward else _pulled(*block, vector), axis)
    return None


def _squeezed(v: Variable, axis: int) -> Any:
    """The vector that ``v`` expands to a column (axis 1) or to a row (axis 0)."""
    node = v.owner
    order = (0, "x") if axis == 1 else ("x", 0)
    if node is None or not isinstance(node.op, DimShuffle) or node.op.new_order != order:
        return None
    return node.inputs[0]


def _turned(v: Variable) -> tuple[Any, bool]:
    """The operand of the transpose ``v`` and True, or ``v`` itself and False."""
    op = None if v.owner is None else core_of(v.owner.op)
    if isinstance(op, DimShuffle) and op.new_order == (1, 0):
        return v.owner.inputs[0], True
    return v, False


def _pushed(node: Apply, i: int, j: int, tangent: Variable) -> Any:
    return Pushforward(*_part(node, i, j)).make_node(*node.inputs, tangent).outputs[1]


def _pulled(node: Apply, i: int, j: int, cotangent: Variable) -> Any:
    return Pullback(*_part(node, i, j)).make_node(*node.inputs, cotangent).outputs[1]


def _part(node: Apply, i: int, j: int) -> tuple[Any, Any, str]:
    """The function with the output ``i`` alone, differentiated by its variable ``j``."""
    op: Any = node.op
    body = op.unfrozen()
    one = freeze(FunctionGraph(body.inputs, [body.outputs[i]], clone=False))
    return one, [op.wrt[j]], op.name


def _diagonal(v: Variable) -> Any:
    block = _block(v)
    if block is None:
        return None
    node, i, j = block
    x = node.inputs[node.op.wrt[j]]
    colour = _colours(node, i, j)
    if colour is not None and colour.max(initial=-1) + 1 < len(colour):
        seeds = np.zeros((colour.max(initial=-1) + 1, len(colour)), dtype=x.type.dtype)
        seeds[colour, np.arange(len(colour))] = 1
        seed = x.type()
        (products,) = over_rows([_pushed(node, i, j, seed)], {seed: pt.constant(seeds)})
        return products[colour, np.arange(len(colour))]
    inner = [v.type() for v in node.inputs]
    at = node.op.make_node(*inner)
    k = pt.lscalar("k")
    tangent = pt.zeros_like(inner[node.op.wrt[j]])[k].set(1)
    body = BodyArgs(k, [], [], inner)
    loop = Scan.from_body(body, BodyOuts([], [_pushed(at, i, j, tangent)[k]]))
    return loop.bind(ScanArgs(x.shape[0], [], [], list(node.inputs)))[0]


def _colours(node: Apply, i: int, j: int) -> Any:
    """Colours of the columns: columns of one colour have no entries in the rows of one another.

    None where every column may need a product of its own.
    """
    diagonal_colours = provided("sparse_jacobians", "diagonal_colours")
    op: Any = node.op
    return None if diagonal_colours is None else diagonal_colours(op.fgraph, i, op.wrt[j])
