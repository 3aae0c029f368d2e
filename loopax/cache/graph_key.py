"""Keys of graphs: what two graphs with equal results of all passes have in common, in all processes."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.graph.utils import MetaObject
from pytensor.tensor.type import TensorType

from loopax.cache.environment import stamp, stamp_of_installed, versions

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.dtype)
_MEANT = ("is_padded",)  # by `loopax.ir.batching`


class KeyedGraph(NamedTuple):
    """The key of a graph, and its parts in an order that is the same for all graphs of that key."""

    key: str
    variables: list[Any]
    ops: list[Any]


class NotKnown(Exception):
    """Something in a graph is nothing of which two processes can say that it is the same."""


def keyed(inputs: Sequence[Any], outputs: Sequence[Any], *parts: Any) -> KeyedGraph | None:
    """The graph between ``inputs`` and ``outputs`` with its key.

    Parameters
    ----------
    parts
        What else a result depends on: plain values, tuples of them, and functions of installed packages.

    Returns
    -------
    None where there is no key: an op is a user's, whose code may change between two processes, or holds
    something of which nothing is known.
    """
    content = _Content()
    try:
        for part in (*versions(), stamp(Path(__file__).parent.parent), config.get_config_hash()):
            content.write(part)
        content.write(parts)
        variables, ops = content.write_graph(inputs, outputs)
    except Exception:  # `NotKnown`, or what an op's attributes raise: all works without a key
        return None
    return KeyedGraph(content.key, variables, ops)


def content_key(*parts: Any) -> str | None:
    """The key of plain values, classes, functions and modules; None as in `keyed`."""
    content = _Content()
    try:
        content.write(parts)
    except NotKnown:
        return None
    return content.key


class _Content:
    """Writes values into a hash, each in a form that is another for every other value."""

    def __init__(self, outer: _Content | None = None) -> None:
        self._digest = hashlib.sha256()
        # Of each object by its id, with the object, whose id it is for as long as that lives.
        self._keys: dict[int, tuple[Any, str | None]] = {} if outer is None else outer._keys
        self._types: dict[TensorType, str] = {} if outer is None else outer._types

    @property
    def key(self) -> str:
        return self._digest.hexdigest()[:40]

    def write(self, value: Any) -> None:
        """Raises `NotKnown` for what has no content that is known."""
        if isinstance(value, _PLAIN):
            self._token("plain", f"{type(value).__name__} {value!r}")
        elif isinstance(value, np.ndarray | np.generic):
            self._write_array(np.asarray(value))
        elif isinstance(value, tuple | list):
            self._token("row", f"{type(value).__qualname__} {len(value)}")
            for part in value:
                self.write(part)
        elif isinstance(value, Mapping):
            self._token("dict", str(len(value)))
            for name in sorted(value, key=str):
                self.write(name)
                self.write(value[name])
        elif isinstance(value, slice):
            self._token("slice", "")
            self.write((value.start, value.stop, value.step))
        elif isinstance(value, Enum):
            self._token("enum", f"{type(value).__qualname__} {value.name}")
        elif isinstance(value, type | FunctionType | BuiltinFunctionType | np.ufunc):
            self._write_named(value)
        elif isinstance(value, ModuleType):
            self._write_module(value.__name__)
        else:
            self._token("object", self._key_of(value))

    def write_graph(
        self, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The variables, the inputs first, and the op of each node, as they were written."""
        variables: list[Any] = []
        ops: list[Any] = []
        places: dict[Variable, int] = {}

        def add(v: Any) -> None:
            places[v] = len(variables)
            variables.append(v)
            self._token("variable", f"{self._key_of_type(v.type)} {v.name!r}")
            if tags := meant_tags(v):
                self.write(tags)

        def place(v: Any) -> int:
            if v not in places:
                if not isinstance(v, Constant):
                    raise NotKnown  # a shared variable that is no input
                self._token("constant", "")
                self.write(v.data)
                add(v)
            return places[v]

        self._token("graph", str(len(inputs)))
        for v in inputs:
            add(v)
        for node in toposort(outputs, blockers=list(inputs)):
            ops.append(node.op)
            given = [place(v) for v in node.inputs]
            self._token("node", f"{self._key_of(node.op)} {given} {len(node.outputs)}")
            for v in node.outputs:
                add(v)
        self._token("outputs", str([place(v) for v in outputs]))
        return variables, ops

    def _key_of(self, value: Any) -> str:
        """Of an object, wherever it stands: it does not count whether two equal ones are one."""
        if id(value) not in self._keys:
            self._keys[id(value)] = value, None
            content = _Content(self)
            content._write_object(value)
            self._keys[id(value)] = value, content.key
        key = self._keys[id(value)][1]
        if key is None:
            raise NotKnown  # it holds itself
        return key

    def _key_of_type(self, value: Any) -> str:
        """Of a type: tensors have theirs each, and few different ones."""
        if type(value) is not TensorType:
            return self._key_of(value)
        if value not in self._types:
            self._types[value] = self._key_of(value)
        return self._types[value]

    def _write_object(self, value: Any) -> None:
        if isinstance(value, AbstractFunctionGraph):
            self.write_graph(value.inputs, value.outputs)
            return
        if isinstance(value, Variable | Apply):
            raise NotKnown  # of another graph
        cls = type(value)
        self._write_named(cls)
        if _is_by_props(cls):
            self.write(tuple(getattr(value, name) for name in cls.__props__))
        elif isinstance(value, MetaObject) or is_dataclass(value) or _is_ours(cls):
            computed = {name for name in vars(value) if _is_computed(cls, name)}
            self.write({name: x for name, x in vars(value).items() if name not in computed})
        else:
            raise NotKnown

    def _write_named(self, value: Any) -> None:
        """A class or a function: by name, if that is all that is to be said of it."""
        module, name = str(getattr(value, "__module__", None)), getattr(value, "__qualname__", None)
        if isinstance(value, np.ufunc):
            module, name = "numpy", value.__name__
        if name is None or "<" in name:  # "<locals>": many have that name
            raise NotKnown
        self._write_module(module)
        self._token("named", name)

    def _write_module(self, name: str) -> None:
        known_by = stamp_of_installed(name)
        if known_by is None:
            raise NotKnown
        self._token("module", f"{known_by} {name}")

    def _write_array(self, value: np.ndarray) -> None:
        if value.dtype.kind not in "biufcSU":  # of objects; dates, which have no buffer
            raise NotKnown
        self._token("array", f"{value.dtype} {value.shape}")
        self._digest.update(np.ascontiguousarray(value).data if value.size else b"")

    def _token(self, kind: str, content: str) -> None:
        data = f"{kind} {content}".encode()
        self._digest.update(len(data).to_bytes(8, "little") + data)


def meant_tags(v: Any) -> dict[str, Any]:
    """What is written on a variable besides the user's lines, and says what it is.

    PyTensor writes on constants what it has found out about them.
    """
    return {name: x for name, x in vars(v.tag).items() if name in _MEANT}


def _is_by_props(cls: type) -> bool:
    """Whether two of the class are equal where their ``__props__`` are."""
    return hasattr(cls, "__props__") and not issubclass(cls, OpFromGraph)


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "loopax"


def _is_computed(cls: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(cls, name, None), cached_property)
