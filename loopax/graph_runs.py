"""Conversion of one call of a function, of any kind, to a graph with the values of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import DenseTensorType

from loopax.base.lock import TRACING
from loopax.builders import Builder
from loopax.by_backend import rebuilt
from loopax.calling import BackendFunction, ProgramFunction, StatefulFunction, TracedFunction
from loopax.chunks import InChunks
from loopax.diagnosis.graph import GraphRun
from loopax.diagnosis.numbers import is_bad
from loopax.frontend.loops.trees import flatten
from loopax.ir import Derivative
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.sequences import partial_at
from loopax.jax_backend.values.generators import bits_of
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from loopax.transforms import grad


def call_of(fn: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GraphRun:
    """Convert one call of ``fn``, which has a program, to a graph with the values of its inputs."""
    return _Call.bound(fn, args, kwargs).run()


def unwrapped(fn: object) -> Any:
    """The loopax function inside of the wrappers of ``fn``."""
    if isinstance(fn, StatefulFunction):
        return unwrapped(fn.__wrapped__)
    if isinstance(fn, InChunks):
        return unwrapped(fn.whole)
    inner = getattr(fn, "__wrapped__", None)
    if isinstance(inner, BackendFunction) and not isinstance(fn, BackendFunction):
        if hasattr(fn, "lower"):  # jax.jit
            return unwrapped(inner)
        raise TypeError(
            f"{fn!r} was made by a JAX transformation, which hides the original function. Diagnose "
            "that function: loopax.diagnose(f, *args, grad=True) for gradients, and "
            "loopax.diagnose(loopax.vmap(f), *args) for batches."
        )
    return fn


@dataclass(frozen=True)
class _Call:
    """A function with a program, and the values of its inputs, with their names."""

    function: ProgramFunction
    values: Sequence[Any]
    names: Sequence[str]

    @classmethod
    def bound(cls, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call:
        if isinstance(fn, TracedFunction):
            function, leaves, _ = fn.specialized(args, dict(kwargs))
            names = _parameter_names(
                fn.__wrapped__, [i.name or "" for i in function.program.inputs]
            )
            return cls(function, leaves, names)
        arguments = fn._arguments.in_order(args, kwargs)
        return cls(
            fn, arguments, [i.name or f"argument {k}" for k, i in enumerate(fn.program.inputs)]
        )

    def run(self) -> GraphRun:
        """Call the function, and return the program before all passes with its values and results."""
        function, program = self.function, self.function.program
        if program.as_read is None:
            function.as_read()  # raises, with the reason why there is none
        assert program.as_read is not None
        inputs, outputs = program.as_read
        shared = [
            (name, s.value) for name, s in zip(program.shared_names, program.shared, strict=True)
        ]
        values = [_as_value(x, v) for x, v in zip(self.values, inputs, strict=False)]
        values += [_as_value(x, v) for (_, x), v in zip(shared, inputs[len(values) :], strict=True)]
        labels = [*self.names, *(name for name, _ in shared)]
        graph = FunctionGraph(inputs, outputs[: program.n_returned], clone=False)
        names = dict(zip(inputs, labels, strict=True))
        if any(isinstance(node.op, Derivative) for node in graph.apply_nodes):
            old, graph = graph.inputs, graph.clone()
            take_derivatives(graph)
            names = {v: names[x] for v, x in zip(graph.inputs, old, strict=True)}
        error, result = None, None
        try:
            result, _ = flatten(_called(function, self.values))
        except Exception as raised:  # any error is a finding
            error = raised
        is_native = function.backend_name != "jax" or any(
            line.startswith("native code") for line in function.remarks
        )
        options = dict(function.options)
        if "checks" in options:  # the diagnosis makes its own checks
            options["checks"] = function.backend.choices["checks"][0]
        if function.backend_name == "jax":
            options["loops"] = "native" if is_native else "xla"
        return GraphRun(
            function.__name__,
            graph,
            values,
            len(self.values),
            names,
            Builder(function.backend, options),
            flushes=not is_native,
            gradient=lambda: _gradient(function, self.values),
            results=None
            if result is None
            else [np.asarray(x) if is_bad(bits_of(x)) else x for x in result],
            error=error,
            remarks=tuple(function.remarks),
        )


def _called(function: Any, values: Sequence[Any]) -> Any:
    """Call a function, and drop the new context of one with updates."""
    copies = [np.array(x) if isinstance(x, np.ndarray) else x for x in values]
    with TRACING:
        if function.program.updates:
            return function.apply(function.init_context(), *copies)[1]
        return function(*copies)


def _gradient(function: Any, values: Sequence[Any]) -> list[Any]:
    """The gradient of the sum of the float outputs by each float input, in the user's form."""
    program = function.program
    at = [k for k, i in enumerate(program.inputs) if is_float(i.variable)]
    if not at or not any(map(is_float, program.graph.outputs)):
        return [np.zeros_like(values[k]) for k in at]
    by_backend = function.backend.transformations.get("grad")
    if by_backend is not None:
        total = partial_at(lambda *args: _total(function(*args)), values, at)
        gradients = by_backend(total, argnums=tuple(range(len(at))))(*(values[k] for k in at))
    else:
        gradients = grad(rebuilt(function, _summed), argnums=tuple(at))(*values)
    return [np.asarray(g) for g in gradients]


def _total(result: object) -> Any:
    """The sum of all float entries of a result."""
    leaves, _ = flatten(result)
    return sum(x.sum() for x in leaves if np.dtype(x.dtype).kind in "fc")


def _summed(f: Callable[..., Any]) -> Any:
    def total(*args: object) -> Any:
        leaves, _ = flatten(f(*args))
        return sum(x.sum() for x in leaves if is_float(x))

    return total


def _parameter_names(fn: Callable[..., Any], names: Sequence[str]) -> list[str]:
    """Replace ``arg0`` in ``arg0['a']`` by the name of the function's parameter."""
    try:
        parameters = list(signature(fn).parameters)
    except (TypeError, ValueError):
        return list(names)
    labels = []
    for name in names:
        digits = len(name.removeprefix("arg")) - len(name.removeprefix("arg").lstrip("0123456789"))
        number, path = name[3 : 3 + digits], name[3 + digits :]
        is_parameter = name.startswith("arg") and number and int(number) < len(parameters)
        labels.append(f"{parameters[int(number)]}{path}" if is_parameter else name)
    return labels


def _as_value(x: object, v: Variable) -> Any:
    """Convert an argument to a NumPy value of the variable's type."""
    if isinstance(v.type, RandomGeneratorType):
        return (
            x if isinstance(x, np.random.Generator) else np.random.default_rng(bits_of(x).ravel())
        )
    if isinstance(v.type, DenseTensorType):
        return np.asarray(x).astype(v.type.dtype)
    return x
