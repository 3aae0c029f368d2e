"""Keys of graphs, equal in all processes: graphs with one key have equal results of all passes."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cached_property
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.graph.type import Type
from pytensor.graph.utils import MetaObject
from pytensor.misc.frozendict import frozendict
from pytensor.tensor.type import TensorType

from loopax.cache import code
from loopax.cache.environment import NotKnown, environment, origin

_PLAIN = {bool, int, float, complex, str, bytes, type(None), type(Ellipsis)}
_CONTAINERS = {tuple, list, dict, frozendict, MappingProxyType}
_SEMANTIC_TAGS = ("is_padded",)  # tags of `loopax.ir.batching` that mean something


class KeyedGraph(NamedTuple):
    """The key of a graph, with variables and ops in an order that all graphs of that key share."""

    key: str
    variables: list[Any]
    ops: list[Any]


def keyed(
    inputs: Sequence[Variable], outputs: Sequence[Variable], *key_parts: object
) -> KeyedGraph | None:
    """Compute the key of the graph between ``inputs`` and ``outputs``.

    Parameters
    ----------
    key_parts
        Further inputs of a result: plain values, tuples of them, and functions of installed packages.

    Returns ------- None if there is no key: an op is the user's, whose code may change between two
    processes, or holds an object without a key.
    """
    content = Content()
    try:
        surroundings = environment()
    except NotKnown:
        return None
    try:
        content.write((surroundings, key_parts))
        variables, ops = content.write_graph(inputs, outputs)
    except NotKnown:
        return None
    return KeyedGraph(content.key, variables, ops)


def content_key(*values: object) -> str | None:
    """The key of plain values, classes, functions, ops and sequences of these; None without one."""
    content = Content()
    try:
        content.write(values)
    except NotKnown:
        return None
    return content.key


class Content:
    """A hash of values, each written in a form that no other value has."""

    def __init__(self, outer: Content | None = None) -> None:
        self._digest = hashlib.sha256()
        # The key of each object by its id, with the object, which keeps the id unique.
        self._keys: dict[int, tuple[Any, str | None]] = {} if outer is None else outer._keys
        self._types: dict[TensorType, str] = {} if outer is None else outer._types
        self.op_classes: set[type] = set() if outer is None else outer.op_classes

    @property
    def key(self) -> str:
        return self._digest.hexdigest()[:40]

    def write(self, value: object) -> None:
        """Add ``value`` to the hash. Raises `NotKnown` for a value without a key."""
        kind = type(value)
        if kind in _PLAIN or isinstance(value, np.dtype):
            self._token("plain", f"{kind.__name__} {value!r}")
        elif isinstance(value, np.ndarray | np.generic):
            self._write_array(np.asarray(value))
        elif isinstance(value, tuple | list):
            self._write_kind("row", kind, len(value))
            for element in value:
                self.write(element)
        elif isinstance(value, dict | MappingProxyType | frozendict):
            self._write_kind("dict", kind, len(value))
            for name in sorted(value, key=str):
                self.write(name)
                self.write(value[name])
        elif isinstance(value, slice):
            self._token("slice", "")
            self.write((value.start, value.stop, value.step))
        elif isinstance(value, Enum):
            self._token("enum", value.name)
            self.write(kind)
        elif isinstance(value, ModuleType):
            self._token("module", f"{origin(value.__name__)} {value.__name__}")
        else:
            self._token("object", self._key_of(value))

    def _write_kind(self, token: str, kind: type, length: int) -> None:
        self._token(token, f"{kind.__name__} {length}")
        if kind not in _CONTAINERS:
            self.write(kind)

    def write_graph(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable]
    ) -> tuple[list[Any], list[Any]]:
        """Add a graph to the hash; return its variables, inputs first, and its ops, in order."""
        variables: list[Any] = []
        ops: list[Any] = []
        positions: dict[Variable, int] = {}

        def add(v: Variable) -> None:
            positions[v] = len(variables)
            variables.append(v)
            self._token("variable", f"{self._key_of_type(v.type)} {v.name!r}")
            if tags := semantic_tags(v):
                self.write(tags)

        def place(v: Variable) -> int:
            if v not in positions:
                if not isinstance(v, Constant):
                    raise NotKnown  # a shared variable that is not an input
                self._token("constant", "")
                self.write(v.data)
                add(v)
            return positions[v]

        self._token("graph", str(len(inputs)))
        for v in inputs:
            add(v)
        for node in toposort(outputs, blockers=list(inputs)):
            ops.append(node.op)
            operands = [place(v) for v in node.inputs]
            self._token("node", f"{self._key_of(node.op)} {operands} {len(node.outputs)}")
            for v in node.outputs:
                add(v)
        self._token("outputs", str([place(v) for v in outputs]))
        return variables, ops

    def _key_of(self, value: object) -> str:
        """The key of an object by its contents; its identity does not count."""
        if id(value) not in self._keys:
            self._keys[id(value)] = value, None
            content = type(self)(self)
            try:
                content._write_object(value)
            except Exception as error:  # its attributes may raise anything; all works without a key
                raise NotKnown from error
            self._keys[id(value)] = value, content.key
        key = self._keys[id(value)][1]
        if key is None:
            raise NotKnown  # the object contains itself
        return key

    def _key_of_type(self, value: Type) -> str:
        """The key of a type, cached for tensor types, since a program has few distinct ones."""
        if type(value) is not TensorType:
            return self._key_of(value)
        if value not in self._types:
            self._types[value] = self._key_of(value)
        return self._types[value]

    def _write_object(self, value: Any) -> None:
        if isinstance(value, AbstractFunctionGraph):
            self.write_graph(value.inputs, value.outputs)
            return
        if getattr(type(value), "is_for_messages", False):
            return  # lines move whenever text is added above them
        if isinstance(value, Variable | Apply):
            raise NotKnown  # a variable of another graph
        cls = type(value)
        is_object = isinstance(value, MetaObject) or is_dataclass(value) or _is_ours(cls)
        if cls is FunctionType:
            self.write(list(code.function(value)))
        elif isinstance(value, type) or not is_object:
            self.write(list(code.named(value)))
        else:
            self.write(cls)
            self.write(_attributes(value))
            if isinstance(value, Op):
                self.op_classes.add(cls)

    def _write_array(self, value: np.ndarray) -> None:
        if value.dtype.kind not in "biufcSU":  # objects; dates, which have no buffer
            raise NotKnown
        self._token("array", f"{value.dtype} {value.shape}")
        self._digest.update(np.ascontiguousarray(value).data if value.size else b"")

    def _token(self, kind: str, content: str) -> None:
        data = f"{kind} {content}".encode()
        self._digest.update(len(data).to_bytes(8, "little") + data)


def semantic_tags(v: Variable) -> dict[str, Any]:
    """The tags of a variable that carry meaning, without the user's lines and PyTensor's caches."""
    return {name: x for name, x in vars(v.tag).items() if name in _SEMANTIC_TAGS}


def _attributes(value: object) -> dict[str, Any]:
    """The attributes that distinguish objects of a class: ``__props__``, if it has these."""
    cls = type(value)
    if hasattr(cls, "__props__") and not isinstance(value, OpFromGraph):
        return {name: getattr(value, name) for name in cls.__props__}
    return {name: x for name, x in vars(value).items() if not _is_computed(cls, name)}


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "loopax"


def _is_computed(cls: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(cls, name, None), cached_property)
