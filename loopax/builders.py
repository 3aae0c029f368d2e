"""Build a callable from a `Program`: through the front end and the passes to a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytensor.configdefaults import config
from pytensor.graph.basic import clone

from loopax import frontend
from loopax.base.errors import UnsupportedOpError
from loopax.base.lock import TRACING
from loopax.calling import Backend, TracedFunction
from loopax.importer.import_graph import import_graph
from loopax.ir.program import Program
from loopax.lowering import lower_program, passes_with
from loopax.lowering.canonical.inline_calls import inline_calls
from loopax.lowering.finiteness import add_flag
from loopax.lowering.watching import drop_watches, has_watches


@dataclass(frozen=True)
class Builder:
    """A backend with its options of `jaxify`. Called with a `Program` it returns a callable.

    ``donate`` are the arguments that a call of a Python function donates, by number or name; ``static`` are
    the arguments that it uses as values, by name. ``expose`` converts a program to one that returns watched
    values.
    """

    backend: Backend
    options: Mapping[str, Any]
    donate: frontend.Donated = ()
    static: tuple[str, ...] = ()
    expose: Callable[[Program], None] | None = None

    def __post_init__(self) -> None:
        _ = self.passes  # raises here if the optimizer's package is missing

    @property
    def passes(self) -> Any:
        """The passes of the backend, with the requested optimizer."""
        return passes_with(self.options.get("optimize", "none"), self.backend.passes)

    def __call__(self, program: Program) -> Any:
        passes = self.passes
        with TRACING:
            program = frontend.with_plain_tensors(program)
            self._import(program)
            if self.expose is not None:
                self.expose(program)
            elif has_watches(program.graph):
                program.watching = clone(program.graph.inputs, program.graph.outputs)
                drop_watches(program.graph)
            if self.options.get("checks") == "nan":
                with config.change_flags(traceback__limit=0):  # only lines of the user's nodes
                    add_flag(program.graph)
                program.has_flag = True
            # For `explain` and for derivatives; this takes about 1 % of the time of lowering.
            as_read = program.graph.clone()
            inline_calls(as_read)
            program.as_read = as_read.inputs, as_read.outputs
            lower_program(program, passes, self.options.get("loops", "xla") != "xla")
            return self.backend.function(program, **self.options)

    def marked(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any]:
        return (
            frontend.with_static(fn, self.static, args, kwargs) if self.static else (args, kwargs)
        )

    def signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[frontend.Signature, list[Any]]:
        return frontend.signature(args, kwargs)

    def traced(self, fn: Callable[..., Any], at: frontend.Signature) -> Program:
        args, kwargs = at.tree.build(list(range(len(at.leaves))))
        return self._donating(frontend.trace(fn, at), fn, args, kwargs)

    def _donating(
        self, program: Program, fn: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Program:
        """Mark donated inputs of ``program``; ``args`` and ``kwargs`` have their numbers."""
        frontend.warn_of_mistakes(program)
        if not self.donate:
            return program
        return frontend.donating_leaves(program, self.donate, fn, args, kwargs)

    @property
    def _keeps_calls(self) -> bool:
        """Whether to keep calls: the backend supports them, and nothing watches values inside."""
        looks = self.expose is not None or self.options.get("checks") == "nan"
        return self.backend.keeps_calls and not looks

    def _import(self, program: Program) -> None:
        try:
            import_graph(program.graph, self._keeps_calls)
        except UnsupportedOpError as error:
            refusal = self.backend.refusal(error, program.graph, self.options["on_missing"])
            raise refusal from None


def builder_of(f: Any) -> Builder:
    """A builder with the backend and the options of ``f``, a callable from `jaxify`."""
    return Builder(f.backend, f.build.options if isinstance(f, TracedFunction) else f.options)


@dataclass(frozen=True)
class PytreeBuilder(Builder):
    """A builder of programs with inputs in pytrees; it always builds the declared program."""

    declared: frontend.PytreeInputs = field(kw_only=True)

    @staticmethod
    def function(build: Builder, declared: frontend.PytreeInputs) -> Any:
        """Apply ``build`` to a program as it is declared."""
        own = PytreeBuilder(build.backend, build.options, build.donate, declared=declared)
        return build.backend.traced(declared, own, declared.name)

    def signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        return None, self.declared.leaves_of(args, kwargs)

    def traced(self, fn: Callable[..., Any], at: None) -> Program:
        return self._donating(self.declared.program(), self.declared, self.declared.numbered(), {})
