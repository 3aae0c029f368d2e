"""A lazy derivative -> the derivative of the function after PyTensor's rewrites.

    grad(log(1 - exp(x)))  ->  grad(log1mexp(x))  ->  the gradient as a graph

Condition: none; afterwards there are no lazy derivatives left, not even in bodies.

Reason: stabilizing rewrites recognise patterns of the function, which are no longer there in its
derivative; and a function has half the nodes of its derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pytensor.graph.fg import FunctionGraph

from loopax.base.upstream.pytensor import freeze
from loopax.importer.import_graph import import_graph
from loopax.ir import Derivative
from loopax.ir.derivatives.after_forward import run_after_forward
from loopax.ir.derivatives.lazy_grammar import has_derivatives
from loopax.ir.replace import replaced
from loopax.lowering.bodies import map_bodies
from loopax.lowering.derivatives.jacobian_reads import read_jacobians
from loopax.lowering.derivatives.simplify_derivatives import simplify_derivatives
from loopax.lowering.derivatives.stable_form import of_stable_form


def take_derivatives(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place."""
    if not has_derivatives(graph):
        return
    read_jacobians(graph)
    simplify_derivatives(graph)
    for node in graph.toposort():
        op = node.op
        if not isinstance(op, Derivative):
            continue
        body = op.unfrozen()
        take_derivatives(body)  # of functions that are derivatives themselves
        new = of_stable_form(body.inputs, body.outputs, partial(_imported, op, node.inputs))
        pairs = [
            (old, old.type.filter_variable(v))
            for old, v in zip(node.outputs, new, strict=True)
            if graph.clients.get(old)
        ]
        graph.replace_all(pairs, import_missing=True, reason="take_derivatives")
    run_after_forward(graph)  # as the importer does with gradients that are there before
    map_bodies(graph, take_derivatives, has_derivatives)


def _imported(op: Derivative, inputs: Sequence[Any], body: FunctionGraph) -> list[Any]:
    """The derivative ``op`` of ``body`` as a graph in the IR; PyTensor's rules may use any of its ops.

    Nothing else is imported, as this pass runs in PyTensor's own modes too.
    """
    roots = [v.type() for v in inputs]
    graph = FunctionGraph(roots, op.with_body(freeze(body)).expanded(roots), clone=False)
    import_graph(graph)
    return replaced(graph.outputs, dict(zip(graph.inputs, inputs, strict=True)))
