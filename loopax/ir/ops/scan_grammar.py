"""The grammar of `loopax.ir.Scan`: the groups of its inputs, outputs and body, and its application.

The loop's meaning, shapes and derivatives are functions of these (`run_scan`, `shapes`, `expand`,
`scan_pullback`, `scan_pushforward`); `scan.py` combines them as the Op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.tensor import TensorLike

from loopax.base.upstream.pytensor import freeze
from loopax.ir.evaluation.inner import CompiledBodies
from loopax.ir.ops.calling_convention import (
    FLAG_TYPE,
    INDEX_TYPE,
    BodyArgs,
    BodyOuts,
    ScanArgs,
    ScanOptions,
    ScanOuts,
)
from loopax.ir.ops.trace import stacked

_DEFAULTS = ScanOptions()


class ScanGrammar(CompiledBodies):
    """The parts of a `Scan`; the parameters are as in `Scan`."""

    def __init__(
        self,
        body: FrozenFunctionGraph,
        n_seqs: int,
        n_states: int,
        n_ys: int,
        stops: bool = False,
        options: ScanOptions = _DEFAULTS,
    ) -> None:
        self.fgraph = body
        self.n_seqs, self.n_states, self.n_ys = n_seqs, n_states, n_ys
        self.stops = stops
        if len(options.origin.labels) != n_states + n_ys:  # the labels of another loop
            options = options._replace(origin=replace(options.origin, labels=()))
        self.options = options

    @classmethod
    def from_body(cls, args: BodyArgs, outs: BodyOuts, options: ScanOptions = _DEFAULTS) -> Self:
        """Build the Scan whose step computes ``outs`` from the root variables ``args``.

        The step may return constants, and inputs unchanged.
        """
        graph = FunctionGraph(args.flat(), outs.flat(), clone=False)
        scan = cls(
            freeze(graph),
            len(args.rows),
            len(args.states),
            len(outs.ys),
            stops=outs.stop is not None,
            options=options,
        )
        scan.written = graph
        return scan

    def with_body(self, body: FrozenFunctionGraph) -> Self:
        """Copy this loop with another step."""
        return type(self)(body, self.n_seqs, self.n_states, self.n_ys, self.stops, self.options)

    def with_options(self, **changed: Any) -> Self:
        """Copy this loop with other options."""
        options = self.options._replace(**changed)
        scan = type(self)(self.fgraph, self.n_seqs, self.n_states, self.n_ys, self.stops, options)
        scan.written = self.written
        return scan

    def _key(self) -> tuple[Any, ...]:
        kinds = (self.n_seqs, self.n_states, self.n_ys, self.stops)
        return (self.fgraph, *kinds, self.options._replace(name=None))

    def __str__(self) -> str:
        words = [self.options.name or "loop"]
        words += ["reverse"] * self.options.reverse + ["stops"] * self.stops
        return f"{type(self).__name__}{{{', '.join(words)}}}"

    # -- groups of the flat lists ----------------------------------------------------------------

    @property
    def n_consts(self) -> int:
        return len(self.fgraph.inputs) - 1 - self.n_seqs - self.n_states

    def split_inputs(self, flat: Sequence[Any]) -> ScanArgs:
        s, k = 1 + self.n_seqs, 1 + self.n_seqs + self.n_states
        return ScanArgs(flat[0], flat[1:s], flat[s:k], flat[k:])

    def split_outputs(self, flat: Sequence[Any]) -> ScanOuts:
        k, y = self.n_states, self.n_states + self.n_ys
        return ScanOuts(flat[:k], flat[k:y], *flat[y:])

    def split_body_inputs(self, flat: Sequence[Any]) -> BodyArgs:
        return BodyArgs(*self.split_inputs(flat))

    def split_body_outputs(self, flat: Sequence[Any]) -> BodyOuts:
        k, y = self.n_states, self.n_states + self.n_ys
        return BodyOuts(flat[:k], flat[k:y], flat[y] if self.stops else None)

    @property
    def args(self) -> BodyArgs:
        """The body's input variables."""
        return self.split_body_inputs(self.fgraph.inputs)

    @property
    def outs(self) -> BodyOuts:
        """The body's output variables."""
        return self.split_body_outputs(self.fgraph.outputs)

    # -- the op ----------------------------------------------------------------------------------

    def bind(self, args: ScanArgs) -> list[Variable]:
        """Apply the loop; return its outputs as a list."""
        return list(self.make_node(*args.flat()).outputs)

    def make_node(self, *inputs: TensorLike) -> Apply:
        if len(inputs) != len(self.fgraph.inputs):
            raise TypeError(f"{self} takes {len(self.fgraph.inputs)} inputs, got {len(inputs)}")
        operands, inner = self.split_inputs(inputs), self.args
        n_steps = pt.as_tensor(operands.n_steps)
        if n_steps.type.dtype not in pt.type.integer_dtypes or n_steps.type.ndim:
            raise TypeError(f"n_steps must be an integer scalar, got {n_steps.type}")
        converted = ScanArgs(
            n_steps.astype("int64"),
            [
                stacked(r.type).filter_variable(x)
                for r, x in zip(inner.rows, operands.sequences, strict=True)
            ],
            [s.type.filter_variable(x) for s, x in zip(inner.states, operands.states, strict=True)],
            [c.type.filter_variable(x) for c, x in zip(inner.consts, operands.consts, strict=True)],
        )
        outs = ScanOuts(
            [s.type() for s in inner.states],
            [stacked(y.type)() for y in self.outs.ys],
            *([INDEX_TYPE(), FLAG_TYPE()] if self.stops else []),
        )
        return Apply(self, converted.flat(), outs.flat())
