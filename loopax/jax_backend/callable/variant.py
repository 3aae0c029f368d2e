"""A graph for given values of its static inputs, as a function that JAX traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from loopax.ir.lock import TRACING
from loopax.jax_backend.kernels.choice import program_kernel, run_kernel
from loopax.jax_backend.kernels.kernel import Kernel
from loopax.jax_backend.staging.evaluate import run
from loopax.jax_backend.staging.frame import Context
from loopax.jax_backend.values.crossing import release
from loopax.jax_backend.values.x64 import as_declared


@dataclass(frozen=True, eq=False)
class Variant:
    """Called with the values of the inputs that are not static, it returns those of all outputs.

    ``as_read`` is the same graph from before the passes where it may become native code, else None.
    """

    graph: FunctionGraph
    static: Mapping[int, Any]
    context: Context
    name: str
    as_read: tuple[list[Variable], list[Variable]] | None = None

    def __call__(self, *traced: Any) -> list[Any]:
        values = iter(traced)
        given = [
            self.static[k] if k in self.static else as_declared(next(values), v)
            for k, v in enumerate(self.graph.inputs)
        ]
        if self.kernel is not None:
            outs = run_kernel(self.kernel, given)
            if outs is not None:
                return outs
        return self._in_jax(self.context, given)

    @cached_property
    def kernel(self) -> Kernel | None:
        """The program as one primitive, native on the CPU."""
        if self.as_read is None:
            return None
        return program_kernel(self.as_read, self.name, self._in_jax, self.context, self.static)

    def _in_jax(self, context: Context, given: Sequence[Any]) -> list[Any]:
        """The outputs in JAX's operations."""
        with TRACING:
            outs = run(context, self.graph, given, range(len(given)))
        return [release(x, v) for x, v in zip(outs, self.graph.outputs, strict=True)]
