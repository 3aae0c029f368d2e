"""Static arguments, `jaxify(..., static_argnames=)`: plain values for a Python function.

In a call they are marked as `Fixed`, which has no leaves and is part of the structure of a trace. Only the
function itself removes the mark, never a transformation of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from types import MethodType
from typing import Any

from pytensor.graph.basic import Variable

from loopax.base.errors import LoopTypeError, MissingInputError
from loopax.frontend.loops.fixed import Fixed, identity
from loopax.frontend.loops.trees import is_traced
from loopax.frontend.mistakes import name_of


def static_names(fn: Callable[..., Any], argnames: str | Sequence[str]) -> tuple[str, ...]:
    """The names in ``static_argnames``.

    Raises `MissingInputError` if a name is not an argument of ``fn``; `TypeError` if an entry is not a
    string.
    """
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    parameters = _parameters(fn)
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"static_argnames takes the names of arguments, got {name!r} of type {type(name).__name__}"
                ": jaxify(f, static_argnames='mode')."
            )
        kind = parameters[name].kind if name in parameters else None
        if kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) or (
            kind is None and not takes_any
        ):
            raise MissingInputError(
                f"static_argnames has {name!r}, which is not an argument of "
                f"{name_of(fn)}{signature(fn)}."
            )
    return names


def with_open_arguments(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fn`` so that it gets the values of marked arguments."""

    @wraps(fn)
    def opened(*args: object, **kwargs: object) -> Any:
        return fn(*map(_value, args), **{name: _value(x) for name, x in kwargs.items()})

    return opened


def with_static(
    fn: Callable[..., Any], names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Mark the arguments in ``names`` of a call of ``fn``.

    Raises `LoopTypeError` if an argument has no hash, or is traced.
    """
    numbered = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    positional_names = [p.name for p in _parameters(fn).values() if p.kind in numbered]
    static = [k for k, name in enumerate(positional_names[: len(args)]) if name in names]
    marked = list(args)
    for k in static:
        marked[k] = _marked(args[k], positional_names[k], fn)
    return tuple(marked), {
        name: _marked(x, name, fn) if name in names else x for name, x in kwargs.items()
    }


def _parameters(fn: Any) -> Mapping[str, Parameter]:
    # `inspect` would go on from a method, which a transformation has wrapped, to its function.
    while not isinstance(fn, MethodType) and "__wrapped__" in getattr(fn, "__dict__", {}):
        fn = fn.__wrapped__
    return signature(fn).parameters


def _marked(x: object, name: str, fn: Callable[..., Any]) -> Fixed:
    if isinstance(x, Fixed):  # marked by a caller
        return x
    label = f"The argument {name!r} of {name_of(fn)} is static"
    if is_traced(x):
        raise LoopTypeError(
            f"{label}, but a tracer was passed. Make it static where the trace is made: jax.jit(f, "
            f"static_argnames={name!r}), or functools.partial(f, {name}=...)."
        )
    if isinstance(x, Variable):
        raise LoopTypeError(f"{label}: it takes a value, a word or a number, not the variable {x}.")
    try:
        identity(x)
    except TypeError:
        raise LoopTypeError(
            f"{label}, with one trace for each of its values, but {x!r} of type {type(x).__name__} has "
            "no hash by which to find the trace. Pass a tuple in place of a list, and leave arrays "
            "out of static_argnames."
        ) from None
    return Fixed(x)


def _value(x: object) -> Any:
    return x.value if isinstance(x, Fixed) else x
