"""A plain Python function of PyTensor variables as a callable of arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from pytensor.graph.fg import FunctionGraph

from loopax.calling.backend import Backend, BackendFunction
from loopax.calling.function import ProgramFunction
from loopax.calling.stateful import StatefulFunction, started
from loopax.ir.lock import TRACING
from loopax.ir.program import Program


class Builder(Protocol):
    """What reads a Python function, and builds what it read: `loopax.builders.Builder`."""

    @property
    def backend(self) -> Backend: ...

    def signature(self, args: Any, kwargs: Any) -> tuple[Hashable, list[Any]]:
        """What the program of a call depends on, and the leaves of its arguments."""

    def traced(self, fn: Callable[..., Any], at: Any) -> Program:
        """The program that ``fn`` is at that signature, as it was written."""

    def __call__(self, program: Program) -> Any:
        """The callable of a program."""


class TracedFunction(BackendFunction):
    """A plain Python function of PyTensor variables, traced when it is called with arrays.

    It is traced once for each signature (see `loopax.frontend.programs.tracing`) and then behaves as what
    `loopax.jaxify` returns for the graph of that trace.
    """

    def __init__(self, fn: Callable[..., Any], build: Builder, name: str | None = None) -> None:
        self.__wrapped__ = fn  # inspect.signature follows it
        self.__name__: str = str(name or getattr(fn, "__name__", "program"))
        self.__qualname__ = self.__name__
        self.__doc__ = getattr(fn, "__doc__", None)
        self.build = build
        self._traced: dict[Hashable, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_traced": {}}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function: Any
        function, leaves, _ = self.specialized(args, kwargs)
        return function(*leaves)

    @property
    def backend(self) -> Backend:
        return self.build.backend

    def as_read(self, *args: Any, **kwargs: Any) -> FunctionGraph:
        at, _ = self.build.signature(args, kwargs)
        return self.build.traced(self.__wrapped__, at).graph

    def init_context(self, *args: Any, **kwargs: Any) -> Any:
        """The values of the shared variables that a call with these arguments needs, as they are now."""
        return self.specialized(args, kwargs)[0].init_context()

    def apply(self, context: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The pure form of a call, as that of what it is for these arguments."""
        function, leaves, _ = self.specialized(args, kwargs)
        return function.apply(context, *leaves)

    def stateful(self, context: Any = None, *, live: bool = False) -> StatefulFunction:
        """A callable that keeps its own context, from ``context`` on, if there is one.

        The value of any other shared variable is copied at the first call that needs it.
        """
        return started(StatefulFunction(self, self.context_class.of(), live), context)

    def specialized(self, args: Any, kwargs: Any) -> tuple[ProgramFunction, Any, Any]:
        """The function for a call's arguments, and these as its arguments."""
        at, leaves = self.build.signature(args, kwargs)
        return self.specialize(at), leaves, {}

    def specialize(self, at: Hashable) -> Any:
        """The callable for one signature, of the leaves of its arguments."""
        with TRACING:
            if at not in self._traced:
                program = self.build.traced(self.__wrapped__, at)
                program.name = self.__name__
                self._traced[at] = self.build(program)
            return self._traced[at]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__}, traced at {len(self._traced)} signatures)"
