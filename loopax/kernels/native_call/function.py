"""The class ``NativeFunction``: a JAX function whose loops are native code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef
from jax.typing import ArrayLike

from loopax.calling.method_traces import instance_of
from loopax.kernels.native_call import partial_evaluation  # noqa: F401  (it registers its rules)
from loopax.kernels.native_call.calls import call
from loopax.kernels.native_call.finite_function import FiniteFunction, argument_names
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import traced_call
from loopax.kernels.native_call.static_arguments import TracesByObjects, reference

_NUMBERS = bool, int, float, complex, np.bool_, np.number, np.ndarray, jax.Array


class NativeFunction:
    """The result of `loopax.native`: ``f``, traced as by ``jax.jit``, with its loops as native code."""

    __wrapped__: Callable[..., Any]  # f
    __qualname__: str

    def __init__(self, f: Callable[..., Any], plan: Plan, checks: str | None = None) -> None:
        functools.update_wrapper(self, f)
        self.plan = plan
        self.checks = checks
        self._instance = instance_of(f)
        self._jitted = TracesByObjects()
        # By the structure and the classes of the leaves, where all of these are arrays: a small program
        # hardly runs longer than it takes to choose one. Not for tracers, whose values may not be arrays.
        self._of_arrays: dict[Any, Any] = {}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        if self._instance is not None:
            jitted, arrays = self._resolved(leaves, tree)
            return jitted(*arrays)
        classes = tree, *map(type, leaves)
        try:
            known = self._of_arrays.get(classes)
        except TypeError:  # a part of the structure has no hash
            jitted, arrays = self._resolved(leaves, tree)
            return jitted(*arrays)
        if known is None:
            known, arrays = self._resolved(leaves, tree)
            if len(arrays) < len(leaves) or any(isinstance(x, jax.core.Tracer) for x in leaves):
                return known(*arrays)
            self._of_arrays[classes] = known
        return known(*leaves)

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile the code that a call with these arguments runs, without running it."""
        jitted, arrays = self._resolved(*jax.tree.flatten((args, kwargs)))
        jitted.lower(*arrays)

    def _resolved(self, leaves: list[Any], tree: PyTreeDef) -> tuple[Any, list[Any]]:
        """The function of arrays that a call runs, and its arguments."""
        is_array = tuple(isinstance(x, _NUMBERS) for x in leaves)
        static = tuple(x for x, array in zip(leaves, is_array, strict=True) if not array)
        arrays = [x for x, array in zip(leaves, is_array, strict=True) if array]
        return self._jitted_for(tree, is_array, static), arrays

    @property
    def name(self) -> str:
        """The name of the function; of a ``functools.partial``, the name of the inner function."""
        f: Any = self.__wrapped__
        while isinstance(f, functools.partial):
            f = f.func
        return getattr(f, "__name__", type(f).__name__)

    @property
    def remarks(self) -> list[str]:
        """The form of each loop compiled so far, one line each."""
        return list(self.plan.remarks)

    def __reduce__(self) -> Any:
        is_global = getattr(sys.modules.get(self.__module__), self.__qualname__, None) is self
        options = self.plan.loops, self.plan.cache, self.checks
        return self.__qualname__ if is_global else (_rebuilt, (self.__wrapped__, *options))

    def __deepcopy__(self, memo: object) -> NativeFunction:
        return self  # as for a function

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _jitted_for(self, tree: PyTreeDef, is_array: Sequence[bool], static: Sequence[Any]) -> Any:
        """A function of the array leaves, under ``jax.jit``."""
        # The function outlives its first call; the objects of that call need not.
        references = [*map(reference, static)]

        def run(*arrays: ArrayLike) -> Any:
            values = iter(arrays), (object_of() for object_of in references)
            leaves = [next(values[0 if array else 1]) for array in is_array]
            args, kwargs = tree.unflatten(leaves)
            return self.__wrapped__(*args, **kwargs)

        def traced(*arrays: ArrayLike) -> Any:
            return with_native_loops(run, arrays, self.plan)

        def jitted() -> Any:
            if self.checks is not None:
                names = argument_names(self.__wrapped__, tree)
                array_names = [n for n, array in zip(names, is_array, strict=True) if array]
                return FiniteFunction(run, self.plan, self.name, array_names)
            traced.__name__ = traced.__qualname__ = self.name
            return jax.jit(traced)

        try:
            traces, other = self._jitted.of_objects(self._instance, static, self.name)
            key = tree, is_array, other
            if key not in traces:
                traces[key] = jitted()
            return traces[key]
        except TypeError:  # a static leaf has no hash: it is traced again
            return jitted()


def _rebuilt(f: Callable[..., Any], loops: str, cache: bool, checks: str | None) -> NativeFunction:
    return NativeFunction(f, Plan(loops, cache), checks)


def with_native_loops(f: Callable[..., Any], args: Sequence[Any], plan: Plan) -> Any:
    """Trace ``f(*args)`` for arrays, and run it with its loops in the form that ``plan`` chooses."""
    jaxpr, operands, shapes = traced_call(f, args)
    return jax.tree.unflatten(jax.tree.structure(shapes), call(jaxpr, operands, plan))
