"""A plain Python function of PyTensor variables as a callable of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopax import frontend
from loopax.builders import Builder
from loopax.calling import BaseContext, ProgramFunction, StatefulFunction
from loopax.ir.lock import TRACING
from loopax.jax_backend import Stages


class TracedFunction:
    """A plain Python function of PyTensor variables, traced when it is called with arrays.

    It is traced once for each signature (see `loopax.frontend.tracing`) and then behaves as what
    `loopax.jaxify` returns for the graph of that trace.
    """

    def __init__(self, fn: Callable[..., Any], build: Builder, name: str | None = None) -> None:
        self.__wrapped__ = fn  # inspect.signature follows it
        self.__name__ = self.__qualname__ = name or getattr(fn, "__name__", "program")
        self.__doc__ = getattr(fn, "__doc__", None)
        self.build = build
        self._traced: dict[frontend.Signature, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_traced": {}}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function, leaves, _ = self.specialized(args, kwargs)
        return function(*leaves)

    @property
    def context_class(self) -> type[BaseContext]:
        return self.build.context_class

    def init_context(self, *args: Any, **kwargs: Any) -> Any:
        """The values of the shared variables that a call with these arguments needs, as they are now."""
        return self.specialized(args, kwargs)[0].init_context()

    def apply(self, context: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The pure form of a call, as that of what it is for these arguments."""
        function, leaves, _ = self.specialized(args, kwargs)
        return function.apply(context, *leaves)

    def stateful(self, *, live: bool = False) -> StatefulFunction:
        """A callable that keeps its own context.

        A shared variable's value is copied at the first call that needs it.
        """
        return StatefulFunction(self, self.context_class.of(), live)

    def specialized(self, args: Any, kwargs: Any) -> tuple[ProgramFunction, Any, Any]:
        """The function for a call's arguments, and these as its arguments."""
        at, leaves = frontend.signature(args, kwargs)
        return self.specialize(at), leaves, {}

    def specialize(self, at: frontend.Signature) -> Any:
        """The callable for one signature, of the leaves of its arguments."""
        with TRACING:
            if at not in self._traced:
                program = frontend.trace(self.__wrapped__, at)
                program.name = self.__name__
                self._traced[at] = self.build(program)
            return self._traced[at]

    def __repr__(self) -> str:
        return f"<TracedFunction {self.__name__}>"


class JaxTracedFunction(Stages, TracedFunction):
    """One for JAX, which transforms and exports it as it does a jitted function."""
