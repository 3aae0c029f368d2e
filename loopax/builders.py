"""From a `Program` to a callable: what each backend does to it, one builder for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import clone

from loopax import frontend
from loopax.calling import BaseContext, ProgramFunction
from loopax.ir.errors import UnsupportedOpError
from loopax.ir.lock import TRACING
from loopax.ir.program import Program
from loopax.jax_backend import JaxFunction, refusal, unsupported_ops
from loopax.lowering import lower, lower_to_loops
from loopax.numba_backend import NumbaFunction


@dataclass(frozen=True)
class Builder(ABC):
    """A backend with the options of `jaxify`. Called with a `Program` it returns a callable."""

    on_missing: str
    kind: ClassVar[type[ProgramFunction]]

    def __call__(self, program: Program) -> Any:
        with TRACING:
            self._import(program)
            # For `explain` and for derivatives. It takes about a percent of the time of lowering.
            program.as_read = clone(program.graph.inputs, program.graph.outputs)
            return self._built(program)

    @property
    def context_class(self) -> type[BaseContext]:
        return self.kind.context_class

    def _import(self, program: Program) -> None:
        frontend.import_graph(program.graph)

    @abstractmethod
    def _built(self, program: Program) -> Any:
        """The callable of a program in the IR, which may be changed."""


@dataclass(frozen=True)
class JaxBuilder(Builder):
    """For ``backend="jax"``."""

    jit: bool
    kind = JaxFunction

    def _import(self, program: Program) -> None:
        try:
            super()._import(program)
        except UnsupportedOpError as error:  # all that is unsupported, in one message
            lines = [*error.ops, *unsupported_ops(program.graph, self.on_missing)]
            raise refusal(lines) from None

    def _built(self, program: Program) -> JaxFunction:
        lower(program.graph)
        return JaxFunction(program, jit=self.jit, on_missing=self.on_missing)


@dataclass(frozen=True)
class NumbaBuilder(Builder):
    """For ``backend="numba"``."""

    kind = NumbaFunction

    def _built(self, program: Program) -> NumbaFunction:
        lower_to_loops(program.graph)
        return NumbaFunction(program, on_missing=self.on_missing)
