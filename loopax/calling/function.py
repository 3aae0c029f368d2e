"""``ProgramFunction``: the part of `loopax.jaxify`'s results that all backends share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import StatefulFunctionError
from loopax.calling.arguments import Arguments
from loopax.calling.backend import BackendFunction
from loopax.calling.context import SharedContext
from loopax.calling.stateful import StatefulFunction, started
from loopax.calling.type_repr import type_in_words, type_text
from loopax.ir.program import EarlyPart, Program


class ProgramFunction(BackendFunction):
    """A program with a signature. A backend adds ``__call__`` and ``apply``."""

    program: Program
    _type_text: str  # the types of inputs and outputs, in words

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The options of `loopax.jaxify` that made this function."""

    @property
    def early_part(self) -> EarlyPart | None:
        """The program split into a part for each change of shared variables and a part for each call."""
        return None

    def as_read(self, *args: object, **kwargs: object) -> FunctionGraph:
        refuse_arguments(self, args, kwargs)
        if self.program.as_read is None:
            raise TypeError(
                f"{self!r} was not made by jaxify and holds only the program after the passes. Explain "
                "the original program: explain([x], y)."
            )
        return FunctionGraph(*self.program.as_read, clone=True)

    @abstractmethod
    def apply(
        self, context: SharedContext | None = None, /, *args: object, **kwargs: object
    ) -> tuple[Any, Any]:
        """The pure form of a call: ``context, out = f.apply(context, *inputs)``."""

    def init_context(self) -> Any:
        """The values of the shared variables as they are now, as a context for `apply`."""
        return self.context_class.holding(self.program.shared)

    def stateful(
        self, context: SharedContext | None = None, *, live: bool = False
    ) -> StatefulFunction:
        """A callable that keeps its own context, call after call, as PyTensor's function does.

        It starts from ``context``, or from the current values of the shared variables. With ``live``
        it reads and writes the shared variables themselves.
        """
        return started(StatefulFunction(self, self.init_context(), live), context)

    def specialized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Self, Any, Any]:
        """The function for a call's arguments (this one), and the arguments."""
        return self, args, kwargs

    def _describe(self, arguments: Arguments) -> None:
        """Set the name, the signature and the docstring of the program."""
        self.__name__ = self.__qualname__ = self.program.name
        self._type_text = type_text(self.program, list(arguments.signature.parameters))
        shared = ", ".join(
            f"{name}: {type_in_words(s.variable.type)}"
            for name, s in zip(self.program.shared_names, self.program.shared, strict=True)
        )
        note = f"\n\nIt reads the shared variables {shared}." if shared else ""
        self.__doc__ = f"{self.program.doc or self._type_text}{note}"
        self.__signature__ = arguments.signature

    def _refuse_updates(self) -> None:
        """Raise where a call would have to update shared variables."""
        if self.program.updates:
            names = ", ".join(self.program.shared_names[k] for k in self.program.updates)
            raise StatefulFunctionError(
                f"{self.program.name} updates the shared variables {names}: a pure function cannot. "
                "Write ctx, out = f.apply(ctx, ...), starting with ctx = f.init_context(), or let "
                "f.stateful() keep the values."
            )

    def _own_context(self, context: object) -> Any:
        """The context of `apply` in the form of this backend; raise if it is not a context."""
        if isinstance(context, self.context_class):
            return context
        if not isinstance(context, SharedContext):
            raise StatefulFunctionError(
                f"The first argument of {self.program.name}.apply must be a "
                f"{self.context_class.__name__}, which init_context() makes; got {context!r} of type "
                f"{type(context).__name__}. Write ctx, out = f.apply(f.init_context(), ...), and pass "
                "the returned ctx to the next call."
            )
        return context.to(self.backend_name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._type_text})"


def refuse_arguments(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where arguments are passed to a function whose program depends on none."""
    if args or kwargs:
        raise TypeError(
            f"explain takes no arguments for a {type(function).__name__}: its inputs and outputs are "
            "fixed, and the passes do not depend on values. Write explain(f)."
        )
