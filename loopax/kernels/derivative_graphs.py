"""Derivatives of a graph, as graphs: JAX's where a function has a kink, the IR's otherwise."""

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
from loopax.lowering.redundancy.merge_equal import merge_equal
from loopax.lowering.rewritten import rewritten

Variables = Sequence[Any]


def with_gradient(
    inputs: Variables, outputs: Variables, scalar: int, wrt: Sequence[int]
) -> FunctionGraph:
    """``inputs -> [*outputs, *gradient]``, that of output ``scalar``, a number, by the inputs at ``wrt``.

    Raises
    ------
    NotImplementedError, pytensor.gradient.NullTypeGradError
        PyTensor has no derivative of an op.
    """

    def derive(graph: FunctionGraph) -> tuple[Variables, Variables]:
        one = graph.outputs[scalar].ones_like()
        cotangents = [one if k == scalar else None for k in range(len(outputs))]
        gradient = _pulled_back(graph, cotangents, wrt)
        return graph.inputs, [*graph.outputs, *gradient]

    return _derived(inputs, outputs, len(inputs), derive, with_gradient, scalar, tuple(wrt))


def with_pushforward(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """``[*inputs, *tangents of those at wrt] -> [*outputs, *tangents of the outputs at moving]``.

    Raises as `with_gradient` does.
    """

    def derive(graph: FunctionGraph) -> tuple[Variables, Variables]:
        tangents = {k: graph.inputs[k].type() for k in wrt}
        every = [tangents.get(k) for k in range(len(inputs))]
        moved = push_forward(graph.inputs, graph.outputs, every)
        chosen = [graph.outputs[k] for k in moving]
        new = _complete(chosen, [moved[k] for k in moving])
        return [*graph.inputs, *tangents.values()], [*graph.outputs, *new]

    n = len(inputs) + len(wrt)
    return _derived(inputs, outputs, n, derive, with_pushforward, tuple(moving), tuple(wrt))


def pushed_forward(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """``[*inputs, *tangents of those at wrt] -> tangents of the outputs at moving``.

    Raises as `with_gradient` does.
    """
    return _without_outputs(with_pushforward(inputs, outputs, moving, wrt), len(outputs))


def pulled_back(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """``[*inputs, *cotangents of the outputs at moving] -> cotangents of the inputs at wrt``.

    Raises as `with_gradient` does.
    """
    return _without_outputs(_with_pullback(inputs, outputs, moving, wrt), len(outputs))


def pulled_back_in_two(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> Partition | None:
    """The outputs, and `pulled_back`, which gets what the first graph keeps for it; see `partition`.

    Raises as `with_gradient` does.
    """
    joint = _with_pullback(inputs, outputs, moving, wrt)
    run_passes(joint, CANONICAL_PASSES)
    merge_equal(joint)  # what is there twice would be kept twice
    n, m = len(inputs), len(outputs)
    return partition(joint.inputs[:n], joint.outputs[:m], joint.inputs[n:], joint.outputs[m:])


def _with_pullback(
    inputs: Variables, outputs: Variables, moving: Sequence[int], wrt: Sequence[int]
) -> FunctionGraph:
    """``[*inputs, *cotangents] -> [*outputs, *cotangents that arrive at the inputs at wrt]``."""

    def derive(graph: FunctionGraph) -> tuple[Variables, Variables]:
        cotangents = {k: graph.outputs[k].type() for k in moving}
        every = [cotangents.get(k) for k in range(len(outputs))]
        arrived = _pulled_back(graph, every, wrt)
        return [*graph.inputs, *cotangents.values()], [*graph.outputs, *arrived]

    n = len(inputs) + len(moving)
    return _derived(inputs, outputs, n, derive, pulled_back, tuple(moving), tuple(wrt))


def _without_outputs(joint: FunctionGraph, n: int) -> FunctionGraph:
    """The derivatives of a graph that has ``n`` outputs before them."""
    return FunctionGraph(joint.inputs, joint.outputs[n:], clone=True)


def _derived(
    inputs: Variables,
    outputs: Variables,
    n_inputs: int,
    derive: Callable[[FunctionGraph], tuple[Variables, Variables]],
    *parts: Any,
) -> FunctionGraph:
    """What ``derive`` makes of a graph: it has ``n_inputs``, and ``parts`` say which derivative it is."""

    def variables() -> list[Any]:
        graph = with_own_kinks(*derive(with_jax_kinks(inputs, outputs)))
        import_graph(graph)  # the rules of PyTensor's ops are written in any op
        return [*graph.inputs, *graph.outputs]

    every = rewritten(inputs, outputs, variables, *parts)
    return FunctionGraph(every[:n_inputs], every[n_inputs:], clone=False)


def _pulled_back(graph: FunctionGraph, cotangents: Variables, wrt: Sequence[int]) -> list[Any]:
    arrived = pull_back(graph.inputs, graph.outputs, cotangents)
    if any(is_null(arrived[k]) for k in wrt):
        raise NotImplementedError("an op has no derivative in PyTensor")
    return _complete([graph.inputs[k] for k in wrt], [arrived[k] for k in wrt])


def _complete(variables: Variables, derivatives: Variables) -> list[Any]:
    """The derivatives of these variables: zeros where none arrives."""
    return [zeros_for(v) if d is None else d for v, d in zip(variables, derivatives, strict=True)]
