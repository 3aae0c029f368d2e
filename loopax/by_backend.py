"""Transformations of `jaxify`'s results, by the backend or by a rebuilt graph of the program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from loopax.base.errors import NonFiniteError, StatefulFunctionError
from loopax.base.lock import TRACING
from loopax.builders import Builder, builder_of
from loopax.calling import BackendFunction, ProgramFunction, TracedFunction
from loopax.chunks import InChunks
from loopax.frontend.loops.trees import flatten, mapped_axes
from loopax.frontend.programs.program_transforms import batched_types, transformed
from loopax.ir.sequences import with_items
from loopax.lowering.canonical.if_else_to_cond import with_conds

Transform = Callable[[Callable[..., Any]], Callable[..., Any]]
F = TypeVar("F", bound=ProgramFunction)
A = ParamSpec("A")


class OfFunctions(Protocol[A]):
    """The static type of a transformation that returns the kind of program it gets."""

    @overload
    def __call__(self, f: F, /, *args: A.args, **kwargs: A.kwargs) -> F: ...
    @overload
    def __call__(
        self, f: Callable[..., Any], /, *args: A.args, **kwargs: A.kwargs
    ) -> Callable[..., Any]: ...


def of_functions(transform: Callable[Concatenate[Callable[..., Any], A], Any]) -> OfFunctions[A]:
    """Type ``transform`` as a transformation of functions."""
    return transform  # type: ignore[return-value]


def as_function(f: object, name: str) -> Any:
    """Convert ``f`` to the argument of ``name``, a transformation; a log-density to its `of_point`.

    Raises `TypeError` if it is not a function, but an argument of PyTensor's functions.
    """
    if not callable(f) or isinstance(f, Variable):
        raise TypeError(
            f"loopax.{name} takes a function and returns a function; got {f!r} of type "
            f"{type(f).__name__}. Differentiate a variable with pytensor.grad(y, x), or write a Python "
            f"function of variables: loopax.{name}(lambda x: (x**2).sum())(x)."
        )
    return getattr(f, "of_point", f)


def with_lazy_branches(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make gradients and batches of ``f`` compute only the branches that are taken."""

    @wraps(f)
    def lazy(*args: object, **kwargs: object) -> Any:
        leaves, tree = flatten(f(*args, **kwargs))
        at = [k for k, x in enumerate(leaves) if isinstance(x, Variable)]
        return tree.build(with_items(leaves, at, with_conds([leaves[k] for k in at])))

    return lazy


def by_backend(f: BackendFunction, transform: Callable[..., Any], **options: object) -> Any:
    """Apply ``transform(f, **options)`` by the backend of ``f``, or rebuild its program as a graph."""
    f = f.whole if isinstance(f, InChunks) else f
    own = f.backend.transformations.get(transform.__name__)
    if own is not None:
        return own(f, **options)
    new = rebuilt(f, lambda g: transform(g, **options), options.get("in_axes"))
    if transform.__name__ == "vmap" and builder_of(f).options.get("checks") == "nan":
        new.error_in_rows = RowErrors(f, options["in_axes"])
    return new


def rebuilt(f: Any, of_variables: Transform, in_axes: object = None) -> Any:
    """Apply ``of_variables`` to the function that ``f`` computes; return a callable like ``f``."""
    f = f.whole if isinstance(f, InChunks) else f
    if isinstance(f, TracedFunction):  # its graph is known when it is called
        new = of_variables(f.__wrapped__)
        if f.build.static:  # by the names that the arguments of f have
            vars(new).setdefault("__wrapped__", f.__wrapped__)
        build = Builder(f.backend, f.build.options, static=f.build.static)
        return type(f)(new, build, new.__name__, f.instance)
    program = program_of(f)
    with TRACING:
        types = batched_types(program, in_axes)
        return builder_of(f)(transformed(program, of_variables, types))


def program_of(f: BackendFunction) -> Any:
    """The program of ``f``, which must have no updates.

    Raises `StatefulFunctionError` if it has updates; `TypeError` if JAX has made ``f``.
    """
    program = getattr(f, "program", None)
    if program is None:
        f.as_read()  # says why there is none
    assert program is not None
    if program.updates:
        names = ", ".join(program.shared_names[k] for k in program.updates)
        raise StatefulFunctionError(
            f"{program.name} updates the shared variables {names}, so it has no derivative and takes "
            "no batch. Make a function of the outputs alone: jaxify([x], y)."
        )
    return program


# -- of the arguments of a call ----------------------------------------------------------------------

_KEPT: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def made_once(f: object, key: Hashable, make: Callable[[], Any]) -> Any:
    """Call ``make()`` once for ``f`` and a key, and cache the result."""
    functions = _KEPT.setdefault(f, {})
    if key not in functions:
        functions[key] = make()
    return functions[key]


def at_lengths(f: BackendFunction, of_variables: Transform, key: Hashable) -> Callable[..., Any]:
    """Apply `rebuilt` for each set of argument lengths, if the result depends on these."""

    @wraps(of_variables(lambda *args: None), updated=())
    def sized(*args: object, **kwargs: object) -> Any:
        if isinstance(f, TracedFunction):
            args, kwargs = f.marked(args, kwargs)
        leaves, _ = flatten((args, kwargs))
        shapes = tuple(np.shape(x) for x in leaves)

        def with_lengths(g: Callable[..., Any]) -> Callable[..., Any]:
            new = of_variables(g)

            @wraps(new)
            def known(*args: object, **kwargs: object) -> Any:
                symbols, tree = flatten((args, kwargs))
                args, kwargs = tree.build(list(map(_of_shape, symbols, shapes)))
                return new(*args, **kwargs)

            return known

        return made_once(f, (key, shapes), lambda: rebuilt(f, with_lengths))(*args, **kwargs)

    sized.__name__ = sized.__qualname__ = f.__name__
    sized.__doc__ = f.__doc__
    return sized


def _of_shape(x: Any, shape: Sequence[int]) -> Any:
    return pt.specify_shape(x, tuple(shape)) if getattr(x.type, "ndim", 0) else x


# -- errors of rows --------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowErrors:
    """Finds the error of the first failing row of ``vmap(f, in_axes)``, by calling ``f`` row by row."""

    f: Any
    in_axes: Any

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NonFiniteError | None:
        leaves, tree = flatten((tuple(args), dict(kwargs)))
        axes = mapped_axes(self.in_axes, tuple(args), len(leaves))
        mapped = [k for k, axis in enumerate(axes) if axis is not None]
        for row in range(np.shape(leaves[mapped[0]])[axes[mapped[0]]]):
            of_row = [np.take(leaves[k], row, axis=axes[k]) for k in mapped]
            some, named = tree.build(with_items(leaves, mapped, of_row))
            try:
                self.f(*some, **named)
            except NonFiniteError as error:
                return error.in_row(row)
        return None
