"""A cost in the step of a loop, its derivatives in every form, and what their native programs call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise

import loopax
from loopax.importer.import_graph import import_graph
from loopax.ir import Grad, Pushforward
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.ops.inner_graph_op import core_of
from loopax.ir.replace import replaced
from loopax.kernels import derivative_graphs
from loopax.lowering import lower_to_loops
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from loopax.numba_backend.callable.program import native_variants
from loopax.numba_backend.emit.emitter import ForeignCall

Forms = Iterator[tuple[str, Callable[[], FunctionGraph]]]


def in_a_step(cost: Any, floats: Any) -> Any:
    """``cost`` at each of two steps, of ``floats`` that are others at each: nothing can leave the loop."""

    def step(carry: Any, index: Any) -> Any:
        factor = 1.0 + 0.01 * carry
        (inside,) = replaced([cost], {v: v * factor.astype(v.dtype) for v in floats})
        return pt.tanh(0.1 * inside).astype("float64") + 0.1 * index, None

    return loopax.scan(step, pt.zeros(()), pt.arange(2, dtype="float64"))[0]


def forms(inputs: Any, cost: Any) -> Forms:
    """A number and its first and second derivatives, of native code in JAX and of native code alone.

    Each is made when it is asked for, and raises where an op has no such derivative.
    """
    graph = FunctionGraph(list(inputs), [cost], clone=True)
    import_graph(graph)
    ins, outs = graph.inputs, graph.outputs
    wrt = tuple(k for k, v in enumerate(ins) if is_float(v))
    floats = [ins[k] for k in wrt]
    slopes = tuple(range(1, 1 + len(wrt)))

    def in_jax(derive: Any) -> FunctionGraph:
        first = derivative_graphs.with_gradient(ins, outs, 0, wrt)
        return derive(first.inputs, first.outputs, slopes, wrt)

    def alone(outputs: Any, *more: Any) -> FunctionGraph:
        later = FunctionGraph([*ins, *more], outputs, clone=True)
        take_derivatives(later)
        return later

    def gradient() -> list[Any]:
        return Grad.of(ins, ins, floats, outs)

    def product() -> FunctionGraph:
        tangents = [v.type() for v in floats]
        return alone(Pushforward.of(ins, ins, floats, gradient()[1:], tangents), *tangents)

    yield "value", graph.clone
    yield "gradient in JAX", lambda: derivative_graphs.with_gradient(ins, outs, 0, wrt)
    yield "pushforward in JAX", lambda: derivative_graphs.with_pushforward(ins, outs, (0,), wrt)
    yield "gradient pushed forward in JAX", lambda: in_jax(derivative_graphs.pushforward)
    yield "gradient pulled back in JAX", lambda: in_jax(derivative_graphs.pullback)
    yield "gradient", lambda: alone(gradient())
    yield "gradient pushed forward", product


def calls_in_steps(graph: FunctionGraph) -> list[ForeignCall]:
    """What the native program of ``graph`` calls at each step of its loops."""
    graph = graph.clone()
    lower_to_loops(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what runs as Python: it is counted here
        actual = native_variants(graph, on_missing="callback").foreign_calls
    return [call for call in actual if call.in_step]


def class_of(call: ForeignCall) -> type:
    """Of the op that is called; of an elementwise one that of its scalars."""
    op: Any = core_of(call.node.op)
    return type(op.scalar_op if isinstance(op, Elemwise) else op)


def steps_calls(inputs: Any, cost: Any, wanted: Any = None) -> dict[str, list[ForeignCall]]:
    """By form, what each step calls. A form that has no derivative is left out, as native code does."""
    actual = {}
    for form, make in forms(inputs, cost):
        if wanted is None or form in wanted:
            try:
                graph = make()
            except Exception:
                continue
            actual[form] = calls_in_steps(graph)
    return actual
