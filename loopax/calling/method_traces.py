"""What was traced of methods: for each instance, and for each state that it was called in."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from functools import partial
from types import MethodType
from typing import Any

from loopax.base.lock import TRACING
from loopax.calling.instance_state import State, class_of, state_of

_MOST_STATES = 32  # of an instance, whose traces are kept
_MANY_STATES = 16  # after which it is said that a method is traced again and again


class TracesByState:
    """What was traced of a method: a dict for each state of its instance that it was called in."""

    def __init__(self) -> None:
        self._kept: OrderedDict[State, dict[Hashable, Any]] = OrderedDict()
        self._made = 0

    @property
    def count(self) -> int:
        """How many traces there are."""
        return sum(map(len, self._kept.values()))

    def now(self, instance: Any, method: str) -> dict[Hashable, Any]:
        """The traces for the state that the instance is in."""
        state = state_of(instance, method)
        with TRACING:
            if state not in self._kept:
                self._made += 1
                if self._made == _MANY_STATES:
                    warnings.warn(
                        f"{method} of a {class_of(instance).__name__} has been traced {_MANY_STATES} "
                        f"times, for {self._changed(state)} had changed between its calls. Make what "
                        "changes an argument of the method, or a pytensor.shared, which is read at every "
                        "call.",
                        stacklevel=5,
                    )
                state.keep()
                self._kept[state] = {}
                if len(self._kept) > _MOST_STATES:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(state)
            return self._kept[state]

    def _changed(self, state: State) -> str:
        """The attributes in which it differs from the last one, in words."""
        before, after = dict(next(reversed(self._kept)).parts), dict(state.parts)
        names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
        return f"the attribute{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"


class TracesByInstance:
    """`TracesByState` of each instance, as long as it lives."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Any, TracesByState]] = {}
        # Equal states have one trace, whatever instance they are of.
        self._of_others = TracesByState()

    def of(self, instance: Any) -> TracesByState:
        found = self._of.get(id(instance))
        if found is not None and found[0]() is instance:
            return found[1]
        of, at = self._of, id(instance)
        try:
            alive = weakref.ref(instance, lambda gone: _forget(of, at, gone))
        except TypeError:  # its class has slots, without one for this
            return self._of_others
        of[at] = alive, TracesByState()
        return of[at][1]


def _forget(of: dict[int, tuple[Any, TracesByState]], at: int, gone: Any) -> None:
    if at in of and of[at][0] is gone:  # a new instance may have taken the place of the old one
        del of[at]


def instance_of(function: Any) -> Any:
    """The instance that ``function``, or what `functools` made it of, is a method of; None without."""
    while function is not None:
        if isinstance(function, MethodType):
            return function.__self__
        if isinstance(function, partial):
            function = function.func
        else:
            function = getattr(function, "__dict__", {}).get("__wrapped__")
    return None
