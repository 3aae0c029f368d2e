"""Traces of methods: for each instance, and for each state in which it was called."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from functools import partial
from types import MethodType
from typing import Any

from loopax.base.lock import TRACING
from loopax.calling.instance_state import State, class_of, is_compared, state_of

_MOST_STATES = 32  # states of an instance whose traces are kept
_MANY_STATES = 16  # states after which a warning says that a method is traced again and again


class TracesByState:
    """The traces of a method: a dict for each state of its instance in which it was called."""

    def __init__(self) -> None:
        self._by_state: OrderedDict[State, dict[Hashable, Any]] = OrderedDict()
        self._n_states = 0

    @property
    def count(self) -> int:
        return sum(map(len, self._by_state.values()))

    def now(self, instance: object, method: str, strict: bool = True) -> dict[Hashable, Any]:
        """The traces for the current state of the instance, by `state_of`."""
        state = state_of(instance, method, strict)
        with TRACING:
            if state not in self._by_state:
                self._n_states += 1
                if self._n_states == _MANY_STATES:
                    warnings.warn(
                        f"{method} of a {class_of(instance).__name__} has been traced {_MANY_STATES} "
                        f"times, because {self._changed(state)} changed between its calls. Make the "
                        "part that changes an argument of the method. In PyTensor programs, a "
                        "pytensor.shared does as well: it is read at every call.",
                        stacklevel=5,
                    )
                state.keep()
                self._by_state[state] = {}
                if len(self._by_state) > _MOST_STATES:
                    self._by_state.popitem(last=False)
            self._by_state.move_to_end(state)
            return self._by_state[state]

    def _changed(self, state: State) -> str:
        """Describe the attributes in which a state differs from the last one."""
        previous, current = dict(next(reversed(self._by_state)).parts), dict(state.parts)
        names = [n for n in {**previous, **current} if previous.get(n) != current.get(n)]
        return f"the attribute{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"


class TracesByInstance:
    """The `TracesByState` of each instance, as long as it lives."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, TracesByState]] = {}
        # Equal states have one trace, whatever instance they are of.
        self._without_reference = TracesByState()

    def traces_of(self, instance: object) -> TracesByState:
        entry = self._entries.get(id(instance))
        if entry is not None and entry[0]() is instance:
            return entry[1]
        entries, key = self._entries, id(instance)
        try:
            alive = weakref.ref(instance, lambda gone: _drop_entry(entries, key, gone))
        except TypeError:  # its class has slots, and none for weak references
            return self._without_reference
        entries[key] = alive, TracesByState()
        return entries[key][1]


def _drop_entry(entries: dict[int, tuple[Any, TracesByState]], key: int, reference: object) -> None:
    if (
        key in entries and entries[key][0] is reference
    ):  # a new instance may have taken the place of the old one
        del entries[key]


def instance_of(function: object) -> Any:
    """The object whose state ``function`` reads; None without one.

    It is the instance of a method, unwrapped from `functools`, a callable object, or a partial with
    such objects among its arguments.
    """
    while function is not None:
        if isinstance(function, MethodType):
            return function.__self__
        if isinstance(function, partial):
            if any(map(is_compared, [*function.args, *function.keywords.values()])):
                return function
            function = function.func
        elif is_compared(function):
            return function
        else:
            function = getattr(function, "__dict__", {}).get("__wrapped__")
    return None
