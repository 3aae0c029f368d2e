"""``Scan``: one structured loop, as an op of PyTensor's graph.

Grammar, with ``s`` sequences, ``k`` states, ``c`` constants and ``y`` traces::

    inputs   n_steps, s sequences of n_steps rows, k initial states, c constants
    body     [i, s rows, k states, c constants] -> [k next states, y rows, (stop)]
    outputs  k final states, y traces, (n_done, stopped)

``Scan :: (int, [s], [k], [c]) -> ([k], [y])`` means the loop in `loopax.ir.evaluation.run_scan`. There
are no taps (``taps=[-1, -2]`` is two states), no buffers and no in-place writes, which belong to
lower levels. Zero steps are legal: the final states are the initial ones, the traces are empty with
the right trailing shape.

A sequence or a trace is a tensor with a leading axis, where a row is a tensor, and otherwise a
`TraceType`, a typed list. With ``reverse`` the steps run from the last row to the first; a trace
still has its rows in the order of the sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.type import DenseTensorType

from loopax.ir.derivatives import scan_pullback, scan_pushforward
from loopax.ir.evaluation.run_scan import run_scan
from loopax.ir.ops.inner_graph_op import Step
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.shapes import final_shapes, trace_shapes


class Scan(ScanGrammar):
    """A loop over ``n_steps``, with sequences, states, constants and traces.

    Parameters
    ----------
    body
        The frozen step; see the grammar at the top of the file. Every input but the constants'
        has the type of one row: a state of type ``T`` comes in as ``T`` and leaves as ``T``.
    n_seqs, n_states, n_ys
        The numbers of sequences, states and traces in the body's inputs and outputs. The remaining
        inputs are constants.
    stops
        Whether the body's last output is a bool scalar that ends the loop after that step.
    options
        See `ScanOptions`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs
    >>> i, x, s = pt.lscalar(), pt.dscalar(), pt.dscalar()
    >>> running_sum = Scan.from_body(BodyArgs(i, [x], [s], []), BodyOuts([s + x], [s + x]))
    >>> xs = pt.dvector("xs")
    >>> final, trace = running_sum.bind(ScanArgs(xs.shape[0], [xs], [pt.zeros(())], []))
    >>> trace.eval({xs: [1.0, 2.0, 3.0]})
    array([1., 3., 6.])
    """

    @property
    def asks_for_all_steps_at_once(self) -> bool:
        return self.options.parallel is not None

    def run(self, inputs: Sequence[Any], *steps: Step) -> list[Any]:
        (step,) = steps
        return run_scan(self, step, inputs).flat()

    def shapes_of(self, node: Apply, shapes: Sequence[Sequence[Variable] | None]) -> list[Any]:
        in_shapes = self.split_inputs(shapes)
        n_done = node.outputs[-2] if self.stops else node.inputs[0]
        trailing = trace_shapes(self, self.split_inputs(node.inputs), in_shapes)
        traces = [
            _shape(out, n_done, t)
            for out, t in zip(self.split_outputs(node.outputs).traces, trailing, strict=True)
        ]
        return [*final_shapes(node, in_shapes.states), *traces, *([(), ()] if self.stops else [])]

    # -- derivatives -----------------------------------------------------------------------------

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Any]:
        return scan_pullback.pullback(self, inputs, outputs, cotangents)

    def pushforward(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Variable]
    ) -> list[Any]:
        return scan_pushforward.pushforward(self, inputs, outputs, tangents)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return scan_pullback.connection_pattern(self, node)


def _shape(trace: Variable, n_rows: Variable, trailing: Sequence[Variable]) -> Any:
    """The shape of a trace; a trailing shape that is otherwise unknown is read from the trace itself."""
    if not isinstance(trace.type, DenseTensorType):
        return None
    if trailing is None:
        trailing = [Shape_i(k)(trace) for k in range(1, trace.type.ndim)]
    return (n_rows, *trailing)
