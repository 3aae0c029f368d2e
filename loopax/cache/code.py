"""Keys of functions and classes by the code that they run, since names and modules can be changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from loopax.cache.environment import NotKnown, origin

_OF_UFUNCS = ("numpy", "scipy.special")  # modules of ufuncs, which do not name theirs
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def named(value: object) -> Iterator[str]:
    """The key of a class, or of a function written in C, by the name under which its module has it.

    Raises `NotKnown` if the module has another object or none under that name, as for a class made
    by ``type(name, bases, ...)``; or another package has added a method to the class.
    """
    module = getattr(value, "__module__", None)
    name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", None))
    for module_name in (module,) if module else _OF_UFUNCS:
        candidate: Any = sys.modules.get(module_name)
        for attribute in name.split("."):
            candidate = getattr(candidate, attribute, None)
        if candidate is value:
            yield f"{origin(module_name)} {module_name}.{name}"
            break
    else:
        raise NotKnown
    if isinstance(value, type):
        for cls in value.__mro__:
            for member in map(_bare, vars(cls).values()):
                if isinstance(member, FunctionType) and _is_from_elsewhere(member, cls):
                    origin(_name(member))


def function(value: FunctionType) -> Iterator[Any]:
    """The key of a Python function: the place of its code, and the values in its closure.

    ``functools.wraps`` copies the name and the module of another function, but not its globals.
    """
    module = _module(value)
    yield f"{origin(module)} {module}"
    yield from _code(value.__code__)
    yield value.__defaults__
    yield value.__kwdefaults__
    for cell in value.__closure__ or ():
        yield cell.cell_contents


def own_code(value: FunctionType) -> Iterator[str]:
    """The code of a function alone, wherever it is defined, without the functions that it calls."""
    yield from _code(value.__code__)


def _module(value: FunctionType) -> str:
    name = _name(value)
    if value.__globals__ is not getattr(sys.modules.get(name), "__dict__", None):
        raise NotKnown  # code of `exec`, from anywhere
    return name


def _name(value: FunctionType) -> str:
    return str(value.__globals__.get("__name__"))


def _is_from_elsewhere(member: FunctionType, cls: type) -> bool:
    """Whether a method comes from another package than its class; methods of named tuples do not."""
    name = _name(member)
    return name in sys.modules and name.partition(".")[0] != cls.__module__.partition(".")[0]


def _code(code: CodeType) -> Iterator[str]:
    """The key of a code object, unique in its file even for two functions on one line."""
    yield f"{code.co_qualname} {code.co_firstlineno} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, _PLAIN):
            yield f"{constant!r}"


def _bare(member: object) -> Any:
    """The function inside a method, a property and the like."""
    for name in ("__func__", "fget", "func"):
        member = getattr(member, name, member)
    return member
