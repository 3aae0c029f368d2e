"""The class ``NativeFunction``: a JAX function whose loops are native code."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.tree_util import PyTreeDef
from jax.typing import ArrayLike
from pytensor.graph.basic import Variable

from loopax.base.errors import LoopTypeError
from loopax.calling.method_traces import instance_of
from loopax.kernels.native_call import partial_evaluation  # noqa: F401  (it registers its rules)
from loopax.kernels.native_call.calls import call
from loopax.kernels.native_call.finite_function import FiniteFunction, argument_names
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import traced_call
from loopax.kernels.native_call.static_arguments import TracesByObjects, reference

_NUMBERS = bool, int, float, complex, np.bool_, np.number, np.ndarray, jax.Array
# Python's numbers are arrays, as for ``jax.jit``. A function whose tracing needs the value of one, as
# ``range`` does, is traced again with integers fixed, then with all of them.
_FIXED = (), (bool, int), (bool, int, float, complex)

T = TypeVar("T")


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
        self._has_warned = False
        # By the same: how many of `_FIXED` fix too few numbers.
        self._n_refused: dict[Any, int] = {}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        classes: Any = tree, *map(type, leaves)
        try:
            known = self._of_arrays.get(classes)
        except TypeError:  # a part of the structure has no hash
            known = classes = None
        if known is not None:
            return known(*leaves)
        jitted, arrays, out = self._run(leaves, tree, classes, lambda f, arrays: f(*arrays))
        is_plain = len(arrays) == len(leaves) and self._instance is None and classes is not None
        if is_plain and not any(isinstance(x, jax.core.Tracer) for x in leaves):
            self._of_arrays[classes] = jitted
        return out

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile the code that a call with these arguments runs, without running it."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        self._run(leaves, tree, None, lambda f, arrays: f.lower(*arrays))

    def _run(
        self,
        leaves: Sequence[Any],
        tree: PyTreeDef,
        classes: Any,
        run: Callable[[Any, Sequence[Any]], T],
    ) -> tuple[Any, list[Any], T]:
        """``run`` a function of arrays with its arguments, which are both returned with the result.

        ``classes``, the structure and the classes of the leaves, or None: under it is kept which numbers
        have to be fixed.
        """
        if any(isinstance(x, Variable) for x in leaves):
            raise LoopTypeError(
                f"{self.name} is a JAX function, which loopax.native returned: it takes arrays, but got a "
                "PyTensor variable. In a graph, write loopax.from_jax(f)(x). To differentiate or batch "
                "f, use jax.grad and jax.vmap; to examine it, loopax.explain(f) and "
                "native(f, checks='nan')."
            )
        variants = list(dict.fromkeys(tuple(_are_arrays(leaves, fixed)) for fixed in _FIXED))
        first = 0 if classes is None else self._n_refused.get(classes, 0)
        for k, is_array in enumerate(variants[first:], first):
            static = tuple(x for x, array in zip(leaves, is_array, strict=True) if not array)
            arrays = [x for x, array in zip(leaves, is_array, strict=True) if array]
            jitted = self._jitted_for(tree, is_array, static)
            try:
                out = run(jitted, arrays)
            except (TypeError, IndexError, ValueError, AttributeError) as error:
                if k == len(variants) - 1 or not _may_need_value(error):
                    raise
                continue
            if k and classes is not None:
                self._n_refused[classes] = k
            return jitted, arrays, out
        raise AssertionError("unreachable: the last variant returns or raises")

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
        except TypeError:
            self._warn_of_no_hash(static)
            return jitted()

    def _warn_of_no_hash(self, static: Sequence[Any]) -> None:
        """Say once that each call is traced again, because an argument that is no array has no hash."""
        if not self._has_warned:
            self._has_warned = True
            kinds = ", ".join(sorted({type(x).__name__ for x in static if not _has_hash(x)}))
            warnings.warn(
                f"Each call of {self.name} is traced and compiled again, because a static argument has "
                f"no hash: {kinds}. Pass an argument that has one, such as a frozenset or a tuple.",
                UserWarning,
                stacklevel=5,
            )


def _has_hash(x: object) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


def _may_need_value(error: Exception) -> bool:
    """Whether tracing may have failed because the value of a tracer is needed.

    Mostly JAX raises a `TypeError` then. It raises an `IndexError` for a bound of a slice, a `ValueError`
    for a static argument of a jitted function, and an `AttributeError` for ``n.bit_length()``; these name
    the tracer.
    """
    return isinstance(error, TypeError) or "Tracer" in str(error)


def _are_arrays(leaves: Sequence[Any], fixed: tuple[type, ...]) -> Iterator[bool]:
    return (
        isinstance(x, _NUMBERS) and (isinstance(x, np.generic) or not isinstance(x, fixed))
        for x in leaves
    )


def _rebuilt(f: Callable[..., Any], loops: str, cache: bool, checks: str | None) -> NativeFunction:
    return NativeFunction(f, Plan(loops, cache), checks)


def with_native_loops(f: Callable[..., Any], args: Sequence[Any], plan: Plan) -> Any:
    """Trace ``f(*args)`` for arrays, and run it with its loops in the form that ``plan`` chooses."""
    jaxpr, operands, shapes = traced_call(f, args)
    return jax.tree.unflatten(jax.tree.structure(shapes), call(jaxpr, operands, plan))
