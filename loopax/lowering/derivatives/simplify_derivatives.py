"""Rewrites of lazy derivatives.

    grad(f, [x]), grad(f, [y])  ->  grad(f, [x, y])    one pass back has both
    grad(f, x) where f(y)       ->  0                  it does not depend on x; nor does the gradient of
                                                       a function affine in x: its Hessian is 0
    grad(f + g(y), x)           ->  grad(f, x)         terms of a sum without x are not computed
    grad(c(y) * f, x)           ->  c(y) * grad(f, x)  so that gradients of multiples of f are one
    grad(f, [x, y])[0]          ->  grad(f, [x])[0]    unread derivatives are not requested

Condition: the third and the fourth rule change the value of the function, which nothing may read. An output
counts as dependent on every variable that its graph is connected to.

Reason: at this level a function is one object. In the expanded derivative the same simplification takes a
search through twice the nodes and more, and dead code in backward loops is not always found.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs

from loopax.base.upstream.pytensor import freeze
from loopax.facts.elementwise import is_elementwise
from loopax.ir import Derivative, Grad, Jacobian, Pullback, Pushforward
from loopax.ir.derivatives.inner_gradients import connections, zeros_for
from loopax.ir.replace import replaced


def simplify_derivatives(graph: FunctionGraph) -> None:
    """Run the rules on the ops of ``graph``, in place, but not inside the functions they differentiate."""
    _share(graph)
    for rule in (_drop_unread, _drop_independent, _drop_terms):
        for node in graph.toposort():
            if isinstance(node.op, Derivative):
                rule(graph, node, node.op)


def _replace(graph: FunctionGraph, pairs: list[tuple[Any, Any]], why: str) -> None:
    graph.replace_all(
        [(old, old.type.filter_variable(new)) for old, new in pairs if _is_read(graph, old)],
        import_missing=True,
        reason=why,
    )


def _share(graph: FunctionGraph) -> None:
    """Merge all gradients of one function at one point into one node."""
    groups: dict[Any, list[Apply]] = defaultdict(list)
    for node in graph.toposort():
        if isinstance(node.op, Grad | Pullback):
            groups[type(node.op), node.op.fgraph, tuple(node.inputs)].append(node)
    for nodes in groups.values():
        op: Any = nodes[0].op
        wrt = sorted({k for node in nodes for k in node.op.wrt})
        if len(nodes) == 1:
            continue
        new = op.with_wrt(wrt).make_node(*nodes[0].inputs).outputs
        by_input = dict(zip(wrt, new[op.n_outs :], strict=True))
        for node in nodes:
            mine: Any = node.op
            results = [*new[: op.n_outs], *(by_input[k] for k in mine.wrt)]
            _replace(graph, list(zip(node.outputs, results, strict=True)), "shared")


def _is_read(graph: FunctionGraph, v: Variable) -> bool:
    return bool(graph.clients.get(v))


def _drop_unread(graph: FunctionGraph, node: Apply, op: Derivative) -> None:
    if isinstance(op, Pushforward):  # it takes a tangent for each input
        return
    n = len(op.wrt)
    derived = node.outputs[op.n_outs :]
    read = [any(_is_read(graph, v) for v in derived[k::n]) for k in range(n)]
    if not all(read) and any(read):
        _keep(graph, node, op, read, zeros=False)


def _drop_independent(graph: FunctionGraph, node: Apply, op: Derivative) -> None:
    body = op.unfrozen()
    pattern = connections(body.inputs, body.outputs)
    kept = [any(pattern[k]) for k in op.wrt]
    if all(kept):
        return
    if any(kept):
        _keep(graph, node, op, kept, zeros=True)
        return
    outs = replaced(body.outputs, dict(zip(body.inputs, node.inputs, strict=False)))
    like = replaced(_zeros(op, body), dict(zip(body.inputs, node.inputs, strict=False)))
    _replace(graph, list(zip(node.outputs, [*outs, *like], strict=True)), "independent")


def _zeros(op: Derivative, body: Any) -> list[Any]:
    """Zeros of the shapes of the derivatives."""
    wrt = [body.inputs[k] for k in op.wrt]
    if isinstance(op, Jacobian):  # with the shape that the Jacobian would have
        lengths = [tuple(v.shape) if hasattr(v.type, "ndim") else None for v in body.inputs]
        node = op.make_node(*body.inputs)
        shapes = op.shapes_of(node, lengths)[op.n_outs :]
        derived = node.outputs[op.n_outs :]
        return [
            pt.zeros(shape, dtype=v.type.dtype) for v, shape in zip(derived, shapes, strict=True)
        ]
    if isinstance(op, Pushforward):
        derivatives = op.make_node(*body.inputs, *wrt).outputs[op.n_outs :]
        return [
            t.type.filter_variable(y.zeros_like(dtype=t.type.dtype))
            for t, y in zip(derivatives, body.outputs, strict=True)
        ]
    return [zeros_for(v) for v in wrt]


def _keep(graph: FunctionGraph, node: Apply, op: Derivative, kept: list[bool], zeros: bool) -> None:
    """Differentiate only with respect to the ``kept`` inputs; the others are zero, or unread."""
    n, m = len(op.wrt), op.n_outs
    new = op.with_wrt([k for k, keep in zip(op.wrt, kept, strict=True) if keep])
    inputs = list(node.inputs)
    if isinstance(op, Pushforward):
        seeds = zip(inputs[op.n_inputs :], kept, strict=True)
        inputs = [*inputs[: op.n_inputs], *(s for s, keep in seeds if keep)]
        results = new.make_node(*inputs).outputs
        _replace(graph, list(zip(node.outputs, results, strict=True)), "independent")
        return
    results = new.make_node(*inputs).outputs
    remaining = iter(results[m:])
    pairs = list(zip(node.outputs[:m], results[:m], strict=True))
    body = op.unfrozen()
    blank = replaced(_zeros(op, body), dict(zip(body.inputs, node.inputs, strict=False)))
    for k, (v, zero) in enumerate(zip(node.outputs[m:], blank, strict=True)):
        if kept[k % n]:
            pairs.append((v, next(remaining)))
        elif zeros:
            pairs.append((v, zero))
    _replace(graph, pairs, "kept")


def _drop_terms(graph: FunctionGraph, node: Apply, op: Derivative) -> None:
    """Drop the terms of a gradient's function that do not depend on its arguments, and pull out factors."""
    if not isinstance(op, Grad) or _is_read(graph, node.outputs[0]):
        return
    body = op.unfrozen()
    factors: list[Any] = []
    value = body.outputs[0]
    while is_elementwise(value.owner, ps.Add, ps.Mul):
        parts = value.owner.inputs
        moving = [p for p in parts if _depends(body, op, p)]
        if is_elementwise(value.owner, ps.Add) and 0 < len(moving) < len(parts):
            value = pt.add(*moving) if len(moving) > 1 else moving[0]
        elif is_elementwise(value.owner, ps.Mul) and len(moving) == 1 and len(parts) > 1:
            factors += [p for p in parts if p is not moving[0]]
            value = moving[0]
        else:
            break
    if value is body.outputs[0] or value.type.dtype != body.outputs[0].type.dtype:
        return
    outer = dict(zip(body.inputs, node.inputs, strict=True))
    of = set(graph_inputs([value])) | {body.inputs[k] for k in op.wrt}
    used = [v for v in body.inputs if v in of]  # an unused input would make equal functions differ
    function = freeze(FunctionGraph(used, [value], clone=True))
    slope = Grad(function, [used.index(body.inputs[k]) for k in op.wrt], op.name)
    slopes = slope.make_node(*(outer[v] for v in used)).outputs[1:]
    scale = replaced(factors, outer)
    terms = [pt.mul(*scale, g).astype(g.type.dtype) if scale else g for g in slopes]
    _replace(graph, list(zip(node.outputs[1:], terms, strict=True)), "terms")


def _depends(body: FunctionGraph, op: Derivative, v: Variable) -> bool:
    pattern = connections(body.inputs, [v])
    return any(pattern[k][0] for k in op.wrt)
