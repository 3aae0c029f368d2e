"""Derivatives of a graph as graphs: with JAX's conventions at kinks, otherwise from the IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.fg import FunctionGraph

from loopax.importer.import_graph import import_graph
from loopax.ir.derivatives.inner_gradients import is_null, zeros_for
from loopax.ir.derivatives.traversal import pull_back, push_forward
from loopax.kernels.kinks import with_jax_kinks, with_own_kinks
from loopax.kernels.partition import Partition, partition
from loopax.lowering import CANONICAL_PASSES, run_passes
from loopax.lowering.derivatives.stable_form import of_stable_form
from loopax.lowering.redundancy.merge_equal import merge_equal
from loopax.lowering.rewritten import rewritten

Variables = Sequence[Any]


def with_gradient(
    inputs: Variables, outputs: Variables, scalar: int, wrt: Sequence[int]
) -> FunctionGraph:
    """Build ``inputs -> [*outputs, *gradient]``, the gradient of output ``scalar`` for inputs ``wrt``.

    Raises `NotImplementedError` or `pytensor.gradient.NullTypeGradError` if PyTensor has no
    derivative of an op.
    """

    def derive(graph: FunctionGraph) -> tuple[Variables, Variables]:
        total: Any = graph.outputs[scalar]
        seed = total.ones_like()
        cotangents = [seed if k == scalar else None for k in range(len(outputs))]
        gradient = _cotangents_of_inputs(graph, cotangents, wrt)
        return graph.inputs, [*graph.outputs, *gradient]

    return _derived(inputs, outputs, len(inputs), derive, with_gradient, scalar, tuple(wrt))


def with_pushforward(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """Build ``[*inputs, *tangents of wrt] -> [*outputs, *tangents of the outputs at moving]``.

    Raises as `with_gradient` does.
    """

    def derive(graph: FunctionGraph) -> tuple[Variables, Variables]:
        tangents = {k: graph.inputs[k].type() for k in wrt}
        in_tangents = [tangents.get(k) for k in range(len(inputs))]
        out_tangents = push_forward(graph.inputs, graph.outputs, in_tangents)
        chosen = [graph.outputs[k] for k in moving]
        dense = _complete(chosen, [out_tangents[k] for k in moving])
        return [*graph.inputs, *tangents.values()], [*graph.outputs, *dense]

    n = len(inputs) + len(wrt)
    return _derived(inputs, outputs, n, derive, with_pushforward, tuple(moving), tuple(wrt))


def pushforward(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """Build ``[*inputs, *tangents of wrt] -> tangents of the outputs at moving``.

    Raises as `with_gradient` does.
    """
    return _without_outputs(with_pushforward(inputs, outputs, moving, wrt), len(outputs))


def pullback(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """Build ``[*inputs, *cotangents of the outputs at moving] -> cotangents of the inputs at wrt``.

    Raises as `with_gradient` does.
    """
    return _without_outputs(_with_pullback(inputs, outputs, moving, wrt), len(outputs))


def partitioned_pullback(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> Partition | None:
    """Build two graphs: the outputs with residuals, and the `pullback` that reads them; see `partition`.

    Raises as `with_gradient` does.
    """
    joint = _with_pullback(inputs, outputs, moving, wrt)
    run_passes(joint, CANONICAL_PASSES)
    merge_equal(joint)  # equal values would be kept as residuals twice
    n, m = len(inputs), len(outputs)
    return partition(joint.inputs[:n], joint.outputs[:m], joint.inputs[n:], joint.outputs[m:])


def _with_pullback(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """``[*inputs, *cotangents] -> [*outputs, *cotangents of the inputs at wrt]``."""

    def derive(graph: FunctionGraph) -> tuple[Variables, Variables]:
        cotangents = {k: graph.outputs[k].type() for k in moving}
        out_cotangents = [cotangents.get(k) for k in range(len(outputs))]
        in_cotangents = _cotangents_of_inputs(graph, out_cotangents, wrt)
        return [*graph.inputs, *cotangents.values()], [*graph.outputs, *in_cotangents]

    n = len(inputs) + len(moving)
    return _derived(inputs, outputs, n, derive, pullback, tuple(moving), tuple(wrt))


def _without_outputs(joint: FunctionGraph, n: int) -> FunctionGraph:
    """Drop the first ``n`` outputs of the graph, which leaves the derivatives."""
    return FunctionGraph(joint.inputs, joint.outputs[n:], clone=True)


def _derived(
    inputs: Variables,
    outputs: Variables,
    n_inputs: int,
    derive: Callable[[FunctionGraph], tuple[Variables, Variables]],
    *key: object,
) -> FunctionGraph:
    """Build the graph of ``derive``, with ``n_inputs`` inputs; ``key`` identifies the derivative."""

    def derivative_of(graph: FunctionGraph) -> list[Any]:
        derivative = with_own_kinks(*derive(with_jax_kinks(graph.inputs, graph.outputs)))
        import_graph(derivative)  # the rules of PyTensor's ops may create any op
        return [*derivative.inputs, *derivative.outputs]

    derived = rewritten(
        inputs, outputs, lambda: of_stable_form(inputs, outputs, derivative_of), *key
    )
    return FunctionGraph(derived[:n_inputs], derived[n_inputs:], clone=False)


def _cotangents_of_inputs(
    graph: FunctionGraph, cotangents: Variables, wrt: Sequence[int]
) -> list[Any]:
    in_cotangents = pull_back(graph.inputs, graph.outputs, cotangents)
    if any(is_null(in_cotangents[k]) for k in wrt):
        raise NotImplementedError("an op has no derivative in PyTensor")
    return _complete([graph.inputs[k] for k in wrt], [in_cotangents[k] for k in wrt])


def _complete(variables: Variables, derivatives: Variables) -> list[Any]:
    """The derivatives of ``variables``, with zeros in place of None."""
    return [zeros_for(v) if d is None else d for v, d in zip(variables, derivatives, strict=True)]
