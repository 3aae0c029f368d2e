"""Arguments that are not arrays: which traces they share, and how long the traces keep them alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from types import MethodType
from typing import Any

from loopax.calling.instance_state import is_compared
from loopax.calling.method_traces import TracesByInstance


class TracesByObjects:
    """Caches the traces of a function by the objects that it reads and by their states.

    An object whose class has no hash of its own has a trace for each state, as the instance of a
    method of `loopax.jaxify` does. All other objects are known by their class and their value.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, Any] = {}

    def of_objects(
        self, instance: object, static: Sequence[object], name: str
    ) -> tuple[dict[Hashable, Any], tuple[object, ...]]:
        """The traces for the objects in their current states, and the key of ``static`` among them.

        ``instance`` is the object that the function itself reads (`instance_of`) or None, ``name`` is its
        name.
        """
        traces = self._entries if instance is None else _by_state(self._entries, instance, name)
        key: list[object] = []
        for x in static:
            owner = x.__self__ if isinstance(x, MethodType) else x
            if is_compared(owner):
                traces = _by_state(traces, owner, name)
                key.append(x.__func__ if isinstance(x, MethodType) else None)
                key.append(
                    None if _takes_references(owner) else id(owner)
                )  # a trace keeps it alive
            else:
                key += type(x), _with_sign(x)  # 2, 2.0 and True are equal
        return traces, tuple(key)


def _with_sign(x: Any) -> Any:
    """A value that tells 0.0 from -0.0, and equals itself for NaN."""
    if isinstance(x, complex):
        return x.real.hex(), x.imag.hex()
    return x.hex() if isinstance(x, float) else x


def _by_state(traces: dict[Hashable, Any], x: object, name: str) -> dict[Hashable, Any]:
    by_instance: TracesByInstance = traces.setdefault(TracesByInstance, TracesByInstance())
    return by_instance.traces_of(x).now(x, name, strict=False)


def reference(x: Any) -> Callable[[], Any]:
    """A function that returns ``x`` without keeping alive an object that its traces would outlive."""
    if isinstance(x, MethodType):
        function, owner = x.__func__, reference(x.__self__)
        return lambda: MethodType(function, owner())
    return weakref.ref(x) if is_compared(x) and _takes_references(x) else lambda: x


def _takes_references(x: object) -> bool:
    return type(x).__weakrefoffset__ != 0
