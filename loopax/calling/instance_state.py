"""The state of an instance that a method may read, compared between calls, so that no stale trace is used.

A method is traced with the numbers of its instance, which are compared at each call: immutable values
by value; NumPy arrays with a copy, because they change in place; containers and objects by their
contents; PyTensor's variables, JAX's arrays and tracers, functions (those that an object wraps, too),
modules and classes of other modules by identity; anything else by the bytes of its pickle. Attributes
of the classes count.

Not compared, as for any traced function: globals, closures, and what `__getattr__` or a property
reads elsewhere.
"""

from __future__ import annotations

import logging
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterator
from enum import Enum
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
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
from loopax.calling.memo import same_bits

_BY_VALUE = frozenset({type(None), bool, int, str, bytes, range, type(...), type(NotImplemented)})
# Types without numbers, or whose numbers each call reads again.
_BY_IDENTITY = (
    Variable,
    BackendFunction,
    Function,
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    np.ufunc,
    logging.Logger,
    type(threading.Lock()),
    type(threading.RLock()),
)
_CODE = (FunctionType, classmethod, staticmethod, property, MemberDescriptorType, BackendFunction)
_IS_HEAP_TYPE = 1 << 9  # a flag of classes: the class was made in Python, not in C


class State:
    """The contents of an instance: equal to another state if a method cannot tell the two apart.

    ``parts`` has the attributes by name, in the form in which they are compared.
    """

    def __init__(self, parts: tuple[tuple[str, Any], ...], arrays: list[_Numbers]) -> None:
        self.parts, self._arrays = parts, arrays
        self._hash = hash(parts)

    def keep(self) -> None:
        """Copy the arrays, since the instance may change them."""
        for numbers in self._arrays:
            numbers.array = numbers.array.copy()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._hash == other._hash and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash


def state_of(instance: object, method: str, strict: bool = True) -> State:
    """The state of an instance, or of a class. ``method`` is for messages.

    An attribute that cannot be compared raises `LoopTypeError`; it counts by identity if not ``strict``.
    """
    reader = _Reader(instance, method, strict)
    return State(tuple(reader.attributes()), reader.arrays)


class _Numbers:
    """An array, compared bit by bit."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Numbers) and same_bits(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.dtype.str, self.array.shape))


class _Same:
    """An object, compared by identity."""

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class _Reader:
    """Walks over one instance and reads each object once; further references are its number."""

    def __init__(self, instance: object, method: str, strict: bool) -> None:
        self.instance, self.method, self.strict = instance, method, strict
        self.arrays: list[_Numbers] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # a temporary object could leave its address to another
        self._attribute = ""

    def attributes(self) -> Iterator[tuple[str, Hashable]]:
        """The attributes of the instance and of its classes, by name; entries, if it is a container."""
        self._is_new(self.instance)
        if not isinstance(self.instance, type):
            if (entries := self._entries(self.instance)) is not None:
                yield "entries", entries
            if isinstance(self.instance, partial):
                yield "function and arguments", self._contents(self.instance, partial)
            for name, x in _attributes_of(self.instance):
                self._attribute = name
                yield name, self.read(x)
        yield from self._class_attributes(class_of(self.instance))

    def read(self, x: object) -> Hashable:
        """A hashable value by which ``x`` is compared."""
        kind = type(x)
        if kind in _BY_VALUE:
            return kind, x
        if kind is float or kind is complex:
            return kind, repr(x)  # tells 0.0 from -0.0, and equates nan
        if isinstance(x, np.ndarray):
            return self._array(x)
        if isinstance(x, weakref.ReferenceType):
            return kind, self._leniently(x())
        if isinstance(x, type) and x.__module__ == class_of(self.instance).__module__:
            is_new = self._is_new(x) is None
            return _Same(x), tuple(self._class_attributes(x)) if is_new else None
        if isinstance(x, np.generic | np.dtype | Enum):
            return kind, x.tobytes() if isinstance(x, np.generic) else x
        if _is_known_by_identity(x):
            return _Same(x)
        if (number := self._is_new(x)) is not None:
            return "again", number
        return kind, self._entries(x), self._contents(x, kind)

    def _array(self, x: np.ndarray) -> Hashable:
        kind = type(x)
        if kind is not np.ndarray:  # masked ones have more
            return kind, self._array(np.asarray(x)), self._named(_attributes_of(x))
        if x.dtype.hasobject:
            return kind, x.dtype.str, x.shape, tuple(map(self.read, x.ravel().tolist()))
        numbers = _Numbers(x)
        self.arrays.append(numbers)
        return numbers

    def _entries(self, x: object) -> Hashable:
        if isinstance(x, dict | MappingProxyType):
            return tuple((self.read(k), self.read(v)) for k, v in x.items())
        if isinstance(x, tuple | list | deque):
            return tuple(map(self.read, x))
        if isinstance(x, set | frozenset):
            return frozenset(map(self.read, x))
        return None

    def _contents(self, x: object, kind: type) -> Hashable:
        """The parts of an object that are not entries of a container."""
        if isinstance(x, MethodType):
            return self.read(x.__func__), self.read(x.__self__)
        if isinstance(x, partial):
            return self.read(x.func), self.read(x.args), self.read(x.keywords)
        if _is_open(kind):
            attributes = self._named(_attributes_of(x))
            return attributes, tuple(self._class_attributes(kind)) if self._is_new(
                kind
            ) is None else None
        if isinstance(x, dict | MappingProxyType | tuple | list | deque | set | frozenset):
            return None
        return self._pickled(x)

    def _named(self, attributes: Iterator[tuple[str, Any]]) -> Hashable:
        return tuple((name, self.read(x)) for name, x in attributes)

    def _class_attributes(self, kind: type) -> Iterator[tuple[str, Hashable]]:
        """The attributes of a class except code; those that cannot be compared count by identity."""
        for c in kind.__mro__[:-1]:
            if not c.__flags__ & _IS_HEAP_TYPE:
                continue
            for name, x in list(vars(c).items()):
                if isinstance(x, _CODE) or (name.startswith("__") and name.endswith("__")):
                    continue
                yield f"{c.__name__}.{name}", self._leniently(x)

    def _leniently(self, x: object) -> Hashable:
        """Apply `read`; anything that cannot be compared counts by identity."""
        strict, self.strict = self.strict, False
        try:
            return self.read(x)
        finally:
            self.strict = strict

    def _pickled(self, x: object) -> Hashable:
        try:
            return pickle.dumps(x)
        except Exception as error:
            if not self.strict:
                return _Same(x)
            kind, owner = type(x), class_of(self.instance).__name__
            raise LoopTypeError(
                f"A trace of {owner}.{self.method} is valid only while the attributes of its instance "
                "stay the same, so loopax compares them at each call. The attribute "
                f"{self._attribute!r} holds {x!r} of type {kind.__module__}.{kind.__qualname__}, which "
                f"cannot be compared: {error}. Keep it out of the instance, or trace the method once, "
                f"whatever changes: jaxify(lambda x: model.{self.method}(x)), without jaxify on the "
                "method."
            ) from None

    def _is_new(self, x: object) -> int | None:
        """The number of an object seen before; None for a new one, which gets a number."""
        number = self._numbers.setdefault(id(x), len(self._numbers))
        if number < len(self._alive):
            return number
        self._alive.append(x)
        return None


def _attributes_of(x: object) -> Iterator[tuple[str, Any]]:
    """The attributes of an instance, in its dict and in slots."""
    yield from list(getattr(x, "__dict__", {}).items())
    for c in type(x).__mro__:
        if not c.__flags__ & _IS_HEAP_TYPE:
            continue
        for name, slot in list(vars(c).items()):
            if not isinstance(slot, MemberDescriptorType):
                continue
            try:
                yield f"{c.__name__}.{name}", slot.__get__(x, c)
            except AttributeError:  # it has no value
                continue


def is_compared(x: object) -> bool:
    """Whether the attributes of ``x`` are its state, and its class has no hash of its own for them.

    A class has the state of its attributes.
    """
    if isinstance(x, type):
        return bool(x.__flags__ & _IS_HEAP_TYPE) and not _is_of_library(x)
    has_hash = type(x).__hash__ not in (object.__hash__, None)
    return not has_hash and _is_open(type(x)) and not _is_known_by_identity(x)


def _is_known_by_identity(x: object) -> bool:
    """Whether ``x`` has no state, never changes, or is read again at each call."""
    if isinstance(x, _BY_IDENTITY) or (callable(x) and "__wrapped__" in getattr(x, "__dict__", ())):
        return True
    return _is_of_library(type(x)) and not isinstance(x, partial)


def _is_of_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("jax", "jaxlib", "loopax")


def _is_open(kind: type) -> bool:
    """Whether an object's attributes and entries are its whole contents."""
    closed = next(c for c in kind.__mro__ if not c.__flags__ & _IS_HEAP_TYPE)
    has_attributes = any({"__dict__", "__slots__"} & vars(c).keys() for c in kind.__mro__)
    return closed in (object, dict, tuple, list, set, frozenset, deque) and has_attributes


def class_of(instance: object) -> Any:
    return instance if isinstance(instance, type) else type(instance)
