"""``StatefulFunction``: a program with updates, called as PyTensor's function is."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from loopax.base.errors import StatefulFunctionError
from loopax.base.lock import free_in_children
from loopax.calling.context import SharedContext
from loopax.ir.program import Program, Shared

_LIVE = threading.Lock()  # two live functions may have a variable in common
free_in_children(_LIVE)


class StatefulFunction:
    """A function that keeps its shared variables and updates them from call to call.

    ``f.stateful()`` makes one with its own context, which starts from the current values of the shared
    variables; the variables themselves do not change. With ``live=True`` it reads and writes the
    variables themselves, as PyTensor's function does.

    Calls from several threads run one after the other; so do calls of all live functions. Threads that
    must not wait for one another each need a copy that is not live. It is not a pure function: under a
    transformation use ``f.apply``.

    >>> import numpy as np, pytensor
    >>> from loopax import jaxify
    >>> n = pytensor.shared(np.int64(0), name="n")
    >>> count = jaxify([], n, updates={n: n + 1}).stateful()
    >>> [int(count()) for _ in range(3)], count.context["n"], n.get_value()
    ([0, 1, 2], Array(3, dtype=int64), array(0))
    """

    __name__: str  # set by update_wrapper, as is __wrapped__, the function
    __wrapped__: Callable[..., Any]

    def __init__(self, function: Any, context: SharedContext, live: bool) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function, self._context, self._live = function, context, live
        self._read: dict[
            int, Shared
        ] = {}  # shared variables that a live function has read, by storage
        self._record_reads(getattr(function, "program", None))
        self._lock = _LIVE if live else threading.Lock()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        function, args, kwargs = self._function.specialized(args, kwargs)
        with self._lock:
            program = function.program
            next_context, out = function.apply(self._now(program), *args, **kwargs)
            if not next_context.is_concrete():
                raise StatefulFunctionError(
                    f"{self.__name__} keeps its values between calls, and a transformation of JAX "
                    "would turn them into tracers. Use the pure form: ctx, out = f.apply(ctx, ...)."
                )
            if self._live:
                _write(program, next_context)
                self._record_reads(program)
            else:
                self._context = next_context
        return out

    @property
    def context(self) -> SharedContext:
        """The current values. Assign a context to continue from other values."""
        return (
            self._function.context_class.holding([*self._read.values()])
            if self._live
            else self._context
        )

    @context.setter
    def context(self, context: SharedContext) -> None:
        if self._live:
            raise StatefulFunctionError(
                f"{self.__name__} is live: the shared variables hold its values. Set them with "
                "variable.set_value(...), or call stateful() without live=True."
            )
        if not isinstance(context, SharedContext):
            kind = self._function.context_class.__name__
            raise StatefulFunctionError(
                f"The context of {self.__name__} must be a {kind}, such as f.init_context(); got "
                f"{context!r} of type {type(context).__name__}."
            )
        context = context.to(self._function.backend_name)
        if isinstance(program := getattr(self._function, "program", None), Program):
            context.read(program)  # raises where a value is missing
        self._context = context

    def copy(self) -> StatefulFunction:
        """An independent function that starts from the same values."""
        return StatefulFunction(self._function, self._context, self._live)

    def _now(self, program: Program) -> SharedContext:
        if self._live:
            return self._function.context_class.holding(program.shared)
        return self._context.including(program)

    def _record_reads(self, program: Program | None) -> None:
        self._read |= {id(s.storage): s for s in program.shared} if program else {}

    def __repr__(self) -> str:
        return f"<StatefulFunction {self.__name__}{', live' if self._live else ''}>"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=_LIVE if state["_live"] else threading.Lock())


def started(function: StatefulFunction, context: SharedContext | None) -> StatefulFunction:
    """``function``, set to start from ``context`` if that is not None."""
    if context is not None:
        function.context = context
    return function


def _write(program: Program, context: SharedContext) -> None:
    """Write the next values into PyTensor's storage: all of them, or none."""
    updated = [program.shared[k] for k in program.updates]
    values = context.read(program)
    next_values = [
        context.crossing.stored(values[k], s.variable.type, s.value)
        for k, s in zip(program.updates, updated, strict=True)
    ]
    for s, x in zip(updated, next_values, strict=True):
        s.storage[0] = x
