"""Search for ops that JAX cannot run, before anything is traced."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable

from loopax.facts.elementwise import scalar_op_of
from loopax.ir.derivatives.after_forward import AfterForward
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of
from loopax.jax_backend.ops.distributions.registry import has_sampler
from loopax.jax_backend.ops.scalars import has_function
from loopax.jax_backend.staging.callback import is_on_tensors, unsupported
from loopax.jax_backend.staging.registry import has_conversion


def unsupported_ops(graph: AbstractFunctionGraph, on_missing: str) -> list[str]:
    """Describe each op of ``graph``, bodies included, that cannot run, one line each.

    With ``on_missing="callback"`` an op on tensors can run: on the host.
    """
    lines = [
        unsupported(node)
        for node in _nodes(graph)
        if not _converted(node.op) and (on_missing == "raise" or not _on_host(node))
    ]
    return list(dict.fromkeys(lines))


def _nodes(graph: AbstractFunctionGraph) -> Any:
    for node in graph.toposort():
        yield node
        op = core_of(node.op)
        if isinstance(op, InnerGraphOp):
            yield from _nodes(op.fgraph)


def _converted(op: Op) -> bool:
    if isinstance(op, RandomVariable):  # PyTensor registered one function for all of them
        return has_sampler(op)
    if isinstance(op, Blockwise):
        return _converted(op.core_op)
    if (scalar_op := scalar_op_of(op)) is not None:
        return has_function(scalar_op)
    return has_conversion(op.op if isinstance(op, AfterForward) else op)


def _on_host(node: Apply) -> bool:
    return isinstance(node.op, RandomVariable) or is_on_tensors(node)
