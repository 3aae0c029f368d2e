"""What a method may read of its instance, compared from call to call, so that no trace outlives it.

A method is traced with the numbers that its instance has. At each call these are looked at: an immutable
value, or an array, is compared by its contents, with a copy, because arrays are changed in place; a
container and an object by what is in it; a variable of PyTensor, an array of JAX, a function, a module or
a class by whether it is the same; anything else by the bytes that it pickles to. Attributes of the classes
count.

Not seen: globals, closures, and what `__getattr__` or a property takes from elsewhere, as of any function
that is traced.
"""

from __future__ import annotations

import logging
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
from pytensor.compile.executor import Function
from pytensor.graph.basic import Variable

from loopax.base.errors import LoopTypeError
from loopax.calling.backend import BackendFunction
from loopax.calling.kept import same

_VALUES = frozenset({type(None), bool, int, str, bytes, range, type(...), type(NotImplemented)})
# What has no numbers in it, or takes them from where a call finds them.
_THE_SAME = (
    Variable,
    BackendFunction,
    Function,
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    np.ufunc,
    weakref.ReferenceType,
    logging.Logger,
    type(threading.Lock()),
    type(threading.RLock()),
)
_CODE = (FunctionType, classmethod, staticmethod, property, MemberDescriptorType, BackendFunction)
_IS_HEAP_TYPE = 1 << 9  # of a class's flags: it was made by a class statement, say


class State:
    """What an instance holds: equal to another if a method cannot tell the two apart.

    ``parts`` has the attributes with what they are compared by.
    """

    def __init__(self, parts: tuple[tuple[str, Any], ...], arrays: list[_Numbers]) -> None:
        self.parts, self._arrays = parts, arrays
        self._hash = hash(parts)

    def keep(self) -> None:
        """Take copies of the arrays, that of the instance may change."""
        for numbers in self._arrays:
            numbers.array = numbers.array.copy()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._hash == other._hash and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash


def state_of(instance: Any, method: str) -> State:
    """The state of an instance, or of a class. ``method`` is for messages.

    Raises
    ------
    LoopTypeError
        It has an attribute that cannot be compared.
    """
    reader = _Reader(instance, method)
    return State(tuple(reader.attributes()), reader.arrays)


class _Numbers:
    """An array by its numbers, bit by bit."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Numbers) and same(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.dtype.str, self.array.shape))


class _Same:
    """An object by whether it is that one."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class _Reader:
    """What is read of one instance: each object once, and then by the number that it has."""

    def __init__(self, instance: Any, method: str) -> None:
        self.instance, self.method = instance, method
        self.arrays: list[_Numbers] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # an object made on the way could leave its address to another
        self._at = ""

    def attributes(self) -> Iterator[tuple[str, Hashable]]:
        """The attributes by their names, of the instance and of its classes."""
        self._is_new(self.instance)
        if not isinstance(self.instance, type):
            for name, x in _own(self.instance):
                self._at = name
                yield name, self.read(x)
        yield from self._of_class(class_of(self.instance))

    def read(self, x: Any) -> Hashable:
        """What ``x`` is compared by."""
        kind = type(x)
        if kind in _VALUES:
            return kind, x
        if kind is float or kind is complex:
            return kind, repr(x)  # of 0.0 and -0.0, and of nan
        if isinstance(x, np.ndarray):
            return self._array(x)
        if isinstance(x, np.generic | np.dtype | Enum):
            return kind, x.tobytes() if isinstance(x, np.generic) else x
        if isinstance(x, _THE_SAME) or kind.__module__.startswith("jaxlib"):
            return _Same(x)  # an array of JAX never changes
        if (number := self._is_new(x)) is not None:
            return "again", number
        return kind, self._entries(x), self._contents(x, kind)

    def _array(self, x: np.ndarray) -> Hashable:
        kind = type(x)
        if kind is not np.ndarray:  # masked ones have more
            return kind, self._array(np.asarray(x)), self._named(_own(x))
        if x.dtype.hasobject:
            return kind, x.dtype.str, x.shape, tuple(map(self.read, x.ravel().tolist()))
        numbers = _Numbers(x)
        self.arrays.append(numbers)
        return numbers

    def _entries(self, x: Any) -> Hashable:
        """The entries of a container."""
        if isinstance(x, dict):
            return tuple((self.read(k), self.read(v)) for k, v in x.items())
        if isinstance(x, tuple | list | deque):
            return tuple(map(self.read, x))
        if isinstance(x, set | frozenset):
            return frozenset(map(self.read, x))
        return None

    def _contents(self, x: Any, kind: type) -> Hashable:
        """The parts of an object that are no entries."""
        if isinstance(x, MethodType):
            return self.read(x.__func__), self.read(x.__self__)
        if isinstance(x, partial):
            return self.read(x.func), self.read(x.args), self.read(x.keywords)
        if _is_open(kind):
            own = self._named(_own(x))
            return own, tuple(self._of_class(kind)) if self._is_new(kind) is None else None
        if isinstance(x, dict | tuple | list | deque | set | frozenset):
            return None
        return self._pickled(x)

    def _named(self, attributes: Iterator[tuple[str, Any]]) -> Hashable:
        return tuple((name, self.read(x)) for name, x in attributes)

    def _of_class(self, kind: type) -> Iterator[tuple[str, Hashable]]:
        """What is no code in a class; of what cannot be compared there, whether it is the same."""
        for c in kind.__mro__[:-1]:
            if not c.__flags__ & _IS_HEAP_TYPE:
                continue
            for name, x in list(vars(c).items()):
                if isinstance(x, _CODE) or (name.startswith("__") and name.endswith("__")):
                    continue
                try:
                    yield f"{c.__name__}.{name}", self.read(x)
                except LoopTypeError:
                    yield f"{c.__name__}.{name}", _Same(x)

    def _pickled(self, x: Any) -> Hashable:
        try:
            return pickle.dumps(x)
        except Exception as error:
            kind, owner = type(x), class_of(self.instance).__name__
            raise LoopTypeError(
                f"{owner}.{self.method} is traced with what its instance holds, which is compared at "
                "each call, so that none is answered by an old trace. In the attribute "
                f"{self._at!r} there is {x!r} of type {kind.__module__}.{kind.__qualname__}, which "
                f"cannot be compared: {error}. Keep it out of the instance, or jaxify a function that is "
                f"traced once, whatever changes: jaxify(lambda x: model.{self.method}(x)), of a method "
                "without jaxify."
            ) from None

    def _is_new(self, x: Any) -> int | None:
        """The number of an object that was met before; None of a new one, which gets its own."""
        number = self._numbers.setdefault(id(x), len(self._numbers))
        if number < len(self._alive):
            return number
        self._alive.append(x)
        return None


def _own(x: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an instance, in its dict and in slots."""
    yield from list(getattr(x, "__dict__", {}).items())
    for c in type(x).__mro__:
        slots = vars(c).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            read: Callable[..., Any] = getattr(vars(c).get(name), "__get__", _missing)
            try:
                yield f"{c.__name__}.{name}", read(x, c)
            except AttributeError:
                continue


def _missing(*_: Any) -> Any:
    raise AttributeError


def _is_open(kind: type) -> bool:
    """Whether the attributes of an object are all that there is in it, but for entries."""
    closed = next(c for c in kind.__mro__ if not c.__flags__ & _IS_HEAP_TYPE)
    has_attributes = any({"__dict__", "__slots__"} & vars(c).keys() for c in kind.__mro__)
    return closed in (object, dict, tuple, list, set, frozenset, deque) and has_attributes


def class_of(instance: Any) -> Any:
    return instance if isinstance(instance, type) else type(instance)
