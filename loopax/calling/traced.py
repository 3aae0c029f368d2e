"""A plain Python function of PyTensor variables as a callable of arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from inspect import signature
from types import FunctionType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    SupportsIndex,
    overload,
)

from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import NonFiniteError
from loopax.base.lock import TRACING
from loopax.calling.backend import Backend, BackendFunction
from loopax.calling.context import SharedContext
from loopax.calling.function import ProgramFunction
from loopax.calling.method_traces import TracesByInstance, TracesByState, instance_of
from loopax.calling.stateful import StatefulFunction, started
from loopax.ir.program import Program

P = ParamSpec("P")
Q = ParamSpec("Q")


class Builder(Protocol):
    """The reader of Python functions and builder of callables: `loopax.builders.Builder`."""

    @property
    def backend(self) -> Backend: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    @property
    def static(self) -> tuple[str, ...]: ...

    def marked(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any]:
        """The arguments of a call of ``fn``, where static arguments have no leaves."""

    def signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Hashable, list[Any]]:
        """The key of a call's program, and the leaves of its arguments."""

    def traced(self, fn: Callable[..., Any], key: Any) -> Program:
        """The program of ``fn`` at the signature ``key``, before the passes."""

    def __call__(self, program: Program) -> Any:
        """The callable of a program."""


class TracedFunction(BackendFunction, Generic[P]):
    """A plain Python function of PyTensor variables, traced when it is called with arrays.

    It is traced once for each signature (see `loopax.frontend.programs.tracing`) and then behaves like
    the result of `loopax.jaxify` for the graph of that trace. Static arguments are plain values for the
    function, and part of the signature.

    In a class it is a method, traced with the state of its instance, and traced again after that state
    has changed; see `loopax.calling.instance_state`.

    >>> import numpy as np
    >>> from loopax import jaxify
    >>> class Line:
    ...     def __init__(self, slope):
    ...         self.slope = slope
    ...     @jaxify
    ...     def at(self, x):
    ...         return self.slope * x
    >>> line = Line(2.0)
    >>> first = line.at(3.0)
    >>> line.slope = 10.0
    >>> float(first), float(line.at(3.0))
    (6.0, 30.0)
    """

    def __init__(
        self, fn: Callable[P, Any], build: Builder, name: str | None = None, instance: object = None
    ) -> None:
        self.__wrapped__ = fn  # inspect.signature follows it
        self.__name__: str = str(name or getattr(fn, "__name__", "program"))
        self.__qualname__ = self.__name__
        self.__doc__ = getattr(fn, "__doc__", None)
        self.build = build
        self.instance = instance_of(fn) if instance is None else instance
        self._is_attribute = False  # whether its instance has it as an attribute, by its name
        self._forget()

    def _forget(self) -> None:
        self._traced: dict[Hashable, Any] = {}  # traces of a function
        self._by_state = TracesByState()  # traces of a method
        self._by_instance = TracesByInstance()  # traces of a function in a class

    # For type checkers, which cannot tell a class method, a static method and a method apart here.
    @overload
    def __get__(self, instance: None, owner: type | None = None) -> TracedFunction[...]: ...
    @overload
    def __get__(
        self: TracedFunction[Concatenate[Any, Q]], instance: object, owner: type | None = None
    ) -> TracedFunction[Q]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None or not isinstance(self.__wrapped__, FunctionType):
            return self
        bound = type(self)(self.__wrapped__.__get__(instance, owner), self.build, self.__name__)
        bound._by_state = self._by_instance.traces_of(instance)
        bound._is_attribute = True
        return bound

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # `inspect` would go on from the method to its function, which has one argument more.
            if name == "__signature__" and isinstance(self.__dict__.get("__wrapped__"), MethodType):
                return signature(self.__wrapped__)
            return super().__getattr__(name)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if self._is_attribute:
            return getattr, (self.instance, self.__name__)
        return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        caches = {"_traced", "_by_state", "_by_instance"}
        return {k: v for k, v in self.__dict__.items() if k not in caches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        function: Any
        function, leaves, _ = self.specialized(args, kwargs)
        try:
            return function(*leaves)
        except NonFiniteError as error:
            rows = self.error_in_rows
            raise (rows and rows(args, kwargs)) or error from None

    @property
    def backend(self) -> Backend:
        return self.build.backend

    def as_read(self, *args: P.args, **kwargs: P.kwargs) -> FunctionGraph:
        key, _ = self._signature(args, kwargs)
        return self.build.traced(self.__wrapped__, key).graph

    def init_context(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The current values of the shared variables that a call with these arguments needs."""
        return self.specialized(args, kwargs)[0].init_context()

    def apply(
        self, context: SharedContext, /, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Any, Any]:
        """The pure form of a call: ``context, out = f.apply(context, *args)``."""
        function, leaves, _ = self.specialized(args, kwargs)
        return function.apply(context, *leaves)

    def stateful(
        self, context: SharedContext | None = None, *, live: bool = False
    ) -> StatefulFunction:
        """A callable that keeps its own context, which starts from ``context``.

        The value of any other shared variable is copied at the first call that needs it.
        """
        return started(StatefulFunction(self, self.context_class.of(), live), context)

    def specialized(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[ProgramFunction, Any, Any]:
        """The function for a call's arguments, and their leaves as its arguments."""
        key, leaves = self._signature(args, kwargs)
        return self.specialize(key), leaves, {}

    def marked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of a call, where static arguments have no leaves."""
        return self.build.marked(self.__wrapped__, args, kwargs)

    def _signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Hashable, list[Any]]:
        return self.build.signature(*self.marked(args, kwargs))

    def specialize(self, key: Hashable) -> Any:
        """The callable for one signature, from the leaves of its arguments."""
        traced = self._traced
        if self.instance is not None:
            traced = self._by_state.now(self.instance, self.__name__)
        with TRACING:
            if key not in traced:
                program = self.build.traced(self.__wrapped__, key)
                program.name = self.__name__
                traced[key] = self.build(program)
            return traced[key]

    def __repr__(self) -> str:
        count = len(self._traced) + self._by_state.count
        return f"{type(self).__name__}({self.__name__}, traced at {count} signatures)"
