"""The class ``FiniteFunction``: a function of arrays that raises at a nonfinite value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef
from jax.typing import ArrayLike

from loopax.jax_backend.callable.looking import Looking
from loopax.jax_backend.staging.static import is_traced
from loopax.kernels.native_call.calls import call
from loopax.kernels.native_call.finite_values import Inspection
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import trace_jaxpr, traced_call


class FiniteFunction:
    """Call ``f``, a function of arrays, and raise a `NonFiniteError` at the first nonfinite value.

    A direct call computes a flag too, and searches for the value if it is set. Under a transformation the
    program itself raises.
    """

    def __init__(
        self, f: Callable[..., Any], plan: Plan, name: str, argument_names: Sequence[str]
    ) -> None:
        self._f = f
        self._plan = plan
        self._name = name
        self._argument_names = argument_names
        self._inspections: dict[Any, Inspection] = {}
        self._direct = jax.jit(_named(self._flagged, name))
        self._transformed = jax.jit(_named(self._raising, name))
        self._report = jax.jit(_named(self._reported, name))

    def __call__(self, *args: ArrayLike) -> Any:
        if not any(map(is_traced, args)):
            results, flag = self._direct(*args)
            if not is_traced(flag):  # it is one where the function closes over a tracer
                if flag:
                    report = np.asarray(self._report(*args))
                    raise self._inspections[_types(args)].error(report)
                return results
        return self._transformed(*args)

    def lower(self, *args: ArrayLike) -> Any:
        """The program of a direct call, lowered as by ``jax.jit``."""
        return self._direct.lower(*args)

    def _flagged(self, *args: ArrayLike) -> tuple[Any, Any]:
        """The results, and whether a value was not finite."""
        inspection, operands, shapes = self._inspected(args)
        return self._results(inspection, operands, shapes)

    def _raising(self, *args: ArrayLike) -> Any:
        """The results; the running program raises if a value, or a gradient, is not finite."""
        looking: Any = Looking(
            lambda operands: inspection.report(*operands),
            lambda reports: inspection.error(reports),
            self._name,
            self._argument_names,
        )
        args = tuple(looking.at_gradient(x, k) for k, x in enumerate(args))
        inspection, operands, shapes = self._inspected(args)
        results, flag = self._results(inspection, operands, shapes)
        leaves, tree = jax.tree.flatten(results)
        return jax.tree.unflatten(tree, looking.at_values(leaves, flag, operands))

    def _reported(self, *args: ArrayLike) -> Any:
        inspection, operands, _ = self._inspected(args)
        self._inspections[_types(args)] = inspection
        return inspection.report(*operands)

    def _inspected(self, args: Sequence[ArrayLike]) -> tuple[Inspection, list[Any], Any]:
        jaxpr, operands, shapes = traced_call(self._f, args)
        paths, _ = jax.tree_util.tree_flatten_with_path(shapes)
        names = [jax.tree_util.keystr(path) or "of the program" for path, _ in paths]
        return Inspection(jaxpr, self._name, names), operands, shapes

    def _results(self, inspection: Inspection, operands: list[Any], shapes: object) -> Any:
        jaxpr = trace_jaxpr(inspection.flagged, list(map(jax.typeof, operands)))
        *outs, flag = call(jaxpr, operands, self._plan)
        return jax.tree.unflatten(jax.tree.structure(shapes), outs), flag


def argument_names(f: Callable[..., Any], tree: PyTreeDef) -> list[str]:
    """Name each leaf of the arguments ``(args, kwargs)`` by the parameters of ``f``."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # a function written in C
        parameters = []
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, [0] * tree.num_leaves))
    names = []
    for (kind, argument, *keys), _ in paths:
        key = argument.idx if kind.idx == 0 else argument.key
        if kind.idx == 0:
            key = positional[key] if key < len(positional) else f"argument {key}"
        names.append(f"{key}{jax.tree_util.keystr(tuple(keys))}")
    return names


def _types(args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(jax.typeof, args))


def _named(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    def function(*args: ArrayLike) -> Any:
        return method(*args)

    function.__name__ = function.__qualname__ = name
    return function
