"""Whose a function or a class is, by the code that it runs: name and module are only written on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from loopax.cache.environment import NotKnown, origin

_OF_UFUNCS = ("numpy", "scipy.special")  # which do not say where they are
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def named(value: Any) -> Iterator[str]:
    """A class, or what C has written, by its name, where that is the name of this one alone.

    Raises
    ------
    NotKnown
        Its module has something else under that name, or nothing, as for a class made by
        ``type(name, bases, ...)``; or somebody else has given it a method since.
    """
    module = getattr(value, "__module__", None)
    name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", None))
    for place in (module,) if module else _OF_UFUNCS:
        here: Any = sys.modules.get(place)
        for part in name.split("."):
            here = getattr(here, part, None)
        if here is value:
            yield f"{origin(place)} {place}.{name}"
            break
    else:
        raise NotKnown
    if isinstance(value, type):
        for cls in value.__mro__:
            for member in map(_bare, vars(cls).values()):
                if isinstance(member, FunctionType) and _is_from_elsewhere(member, cls):
                    origin(_name(member))


def function(value: FunctionType) -> Iterator[Any]:
    """A function of Python's by where its code stands, and by what it closes over: values for a key.

    ``functools.wraps`` copies the name and the module of another function, but not its globals.
    """
    module = _module(value)
    yield f"{origin(module)} {module}"
    yield from _code(value.__code__)
    yield value.__defaults__
    yield value.__kwdefaults__
    for cell in value.__closure__ or ():
        yield cell.cell_contents


def _module(value: FunctionType) -> str:
    name = _name(value)
    if value.__globals__ is not getattr(sys.modules.get(name), "__dict__", None):
        raise NotKnown  # run by `exec`, from anywhere
    return name


def _name(value: FunctionType) -> str:
    return str(value.__globals__.get("__name__"))


def _is_from_elsewhere(member: FunctionType, cls: type) -> bool:
    """Whether a method is not its class's package's. Named tuples have some of a module that is none."""
    name = _name(member)
    return name in sys.modules and name.partition(".")[0] != cls.__module__.partition(".")[0]


def _code(code: CodeType) -> Iterator[str]:
    """With the file of a function this tells it from every other in it, two on one line too."""
    yield f"{code.co_qualname} {code.co_firstlineno} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, _PLAIN):
            yield f"{constant!r}"


def _bare(member: Any) -> Any:
    """The function of a method, a property and the like."""
    for name in ("__func__", "fget", "func"):
        member = getattr(member, name, member)
    return member
