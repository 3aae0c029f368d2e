"""``Segments``: runs of consecutive steps of a loop, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions
from loopax.ir.ops.calling_convention import INDEX_TYPE, ScanOuts
from loopax.ir.ops.trace import stacked
from loopax.ir.program import Program
from loopax.ir.replace import replaced


class Segment(NamedTuple):
    """Results of a run of steps: final states, and by step the traces, states and watched values."""

    finals: Sequence[Any]
    ys: Sequence[Any]
    states: Sequence[Any]
    watched: Sequence[Any]
    n_done: int
    stopped: bool


class Segments:
    """The loop ``scan`` from any step on, as a function that ``build`` compiles.

    Steps come in the order of execution: the sequences of a backward loop are reversed, and ``i``
    counts down. ``watched`` are variables of the body, as written, whose values each step returns too.
    """

    def __init__(
        self, scan: Scan, build: Callable[[Program], Any], watched: Sequence[Variable] = ()
    ) -> None:
        self.scan, self.build, self.watched = scan, build, list(watched)

    @property
    def can_be_compiled(self) -> bool:
        """Whether all inputs and outputs of the body are arrays."""
        scan = self.scan
        variables = [*scan.fgraph.inputs, *scan.fgraph.outputs]
        return all(isinstance(v.type, DenseTensorType) for v in variables)

    @cached_property
    def loop(self) -> Scan:
        """The loop ``scan`` with its states as further traces and its first index as a constant."""
        scan, body = self.scan, self.scan.written or self.scan.unfrozen()
        args, n = scan.split_body_inputs(body.inputs), len(body.outputs)
        k, first = INDEX_TYPE("k"), INDEX_TYPE("first")
        i = first - k if scan.options.reverse else first + k
        new = replaced([*body.outputs, *self.watched], {args.i: i})
        outs = scan.split_body_outputs(new[:n])
        return Scan.from_body(
            BodyArgs(k, args.rows, args.states, [*args.consts, first]),
            BodyOuts(outs.states, [*outs.ys, *outs.states, *new[n:]], outs.stop),
            ScanOptions(scan.options.name),
        )

    @property
    def types(self) -> list[Any]:
        args = self.loop.args
        rows = [stacked(v.type) for v in args.rows]
        return [INDEX_TYPE, *rows, *(v.type for v in [*args.states, *args.consts])]

    @cached_property
    def _function(self) -> Any:
        inputs = [t() for t in self.types]
        graph = FunctionGraph(inputs, self.loop.make_node(*inputs).outputs, clone=False)
        return self.build(Program.of_graph(graph, str(self.scan)))

    def inputs(self, args: ScanArgs, start: int, count: int, states: Sequence[Any]) -> list[Any]:
        """The inputs of `loop` for ``count`` steps from step ``start`` on, from ``states``."""
        n = int(args.n_steps)
        direction = -1 if self.scan.options.reverse else 1
        rows = [np.ascontiguousarray(x[::direction][start : start + count]) for x in args.sequences]
        first = np.int64(n - 1 - start if self.scan.options.reverse else start)
        return [np.int64(count), *rows, *states, *args.consts, first]

    def run(self, args: ScanArgs, start: int, count: int, states: Sequence[Any]) -> Segment:
        """Run ``count`` steps from step ``start`` on, of a loop with ``args``, from ``states``."""
        results = [np.asarray(x) for x in self._function(*self.inputs(args, start, count, states))]
        outs: ScanOuts = self.loop.split_outputs(results)
        y, s = self.scan.n_ys, self.scan.n_ys + self.scan.n_states
        n_done = count if outs.n_done is None else int(outs.n_done)
        traces = [x[:n_done] for x in outs.traces]
        return Segment(outs.finals, traces[:y], traces[y:s], traces[s:], n_done, bool(outs.stopped))
