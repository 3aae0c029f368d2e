"""Keys of native functions, equal for functions with equal code in all processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from pytensor.graph.basic import Apply, Constant
from pytensor.link.numba.dispatch.basic import (
    numba_funcify,
    numba_funcify_and_cache_key,
    numba_funcify_default_op_cache_key,
)

from loopax.cache.environment import NotKnown, environment, native_environment
from loopax.cache.graph_key import Content

# Globals that the code does not depend on.
_UNWRITTEN = {"__name__", "__builtins__", "__source__", "__file__"}
_REGISTRIES = (numba_funcify, numba_funcify_and_cache_key, numba_funcify_default_op_cache_key)
_CONVERSIONS_OF = ("pytensor", "loopax")


def content_key(function: Callable[..., Any], *parts: object) -> str | None:
    """Hash all dependencies of the native code of ``function``; None where one is unknown.

    Parameters
    ----------
    function
        A Python function with its ``__source__``, made by `Emitter.function`.
    parts
        Further dependencies of the code; see `Content.write`.
    """
    content = Content()
    try:
        content.write([*environment(), *native_environment()])
        content.write(parts)
        content.write(list(_contents(function)))
    except NotKnown:
        return None
    return content.key


def conversion_key(node: Apply, key: str | None) -> str | None:
    """The key of PyTensor's conversion of the op of ``node``; None where a dependency is unknown.

    Parameters
    ----------
    key
        PyTensor's key: the *name* of the class and its properties. PyTensor expects users to change it
        when they edit a class or a conversion of their own.
    """
    if key is None:
        return None
    content = Content()
    try:
        content.write((key, node.op, *(v.type for v in (*node.inputs, *node.outputs))))
        content.write([v.data for v in node.inputs if isinstance(v, Constant)])
        for cls in sorted(content.op_classes, key=str):  # of the op, and of ops inside of it
            for registry in _REGISTRIES:
                conversion = registry.dispatch(cls)
                if _package_of(conversion) not in _CONVERSIONS_OF:
                    return None
                content.write(conversion)
    except NotKnown:
        return None
    return content.key


def _package_of(conversion: Callable[..., Any]) -> str | None:
    """The package that defines a function, whatever name `functools.wraps` has given it."""
    if not isinstance(conversion, FunctionType):
        return None
    return str(conversion.__globals__.get("__name__")).partition(".")[0]


def _contents(function: Any) -> Iterator[Any]:
    yield function.__source__
    keys = function.__keys__
    for name, value in sorted(function.__globals__.items()):
        if name not in _UNWRITTEN:
            yield name
            yield keys[name] if name in keys else _global_content(value)


def _global_content(value: object) -> Any:
    function = getattr(value, "py_func", None)
    if hasattr(function, "__keys__"):
        return list(_contents(function))
    if isinstance(value, type) and issubclass(value, BaseException):
        return f"{value.__module__}.{value.__qualname__}"  # raised by name
    return value
