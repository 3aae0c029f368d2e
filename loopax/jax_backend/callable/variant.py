"""A graph for given values of its static inputs, as a function that JAX traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.ir.lock import TRACING
from loopax.jax_backend.kernels.choice import Candidate
from loopax.jax_backend.staging.evaluate import run
from loopax.jax_backend.staging.frame import Context
from loopax.jax_backend.values.crossing import release
from loopax.jax_backend.values.x64 import as_declared


@dataclass(frozen=True, eq=False)
class Variant:
    """Called with the values of the inputs that are not static, it returns those of all outputs.

    ``as_read`` has the inputs and outputs of the graph from before the passes, for native code, or is None;
    ``loops`` is one of `LOOPS`.
    """

    graph: FunctionGraph
    static: Mapping[int, Any]
    context: Context
    name: str
    loops: str
    as_read: tuple[list[Variable], list[Variable]] | None

    def __call__(self, *traced: Any) -> list[Any]:
        values = iter(traced)
        given = [
            self.static[k] if k in self.static else as_declared(next(values), v)
            for k, v in enumerate(self.graph.inputs)
        ]
        outs = None if self._native is None else self._native.run(given)
        return self._in_jax(self.context, given) if outs is None else outs

    @property
    def remarks(self) -> list[str]:
        """What it was run as so far on the CPU, and why, where there was a choice."""
        return [] if self._native is None else list(self._native.remarks)

    @cached_property
    def _native(self) -> Candidate | None:
        if self.as_read is None or self.loops == "xla":
            return None
        return Candidate(
            *self.as_read, self.name, self._in_jax, self.context, self.static, self.loops
        )

    def _in_jax(self, context: Context, given: Sequence[Any]) -> list[Any]:
        """The outputs in JAX's operations."""
        with TRACING:
            outs = run(context, self.graph, given, range(len(given)))
        return [release(x, v) for x, v in zip(outs, self.graph.outputs, strict=True)]
