"""``Scan``: one structured loop, as an op of PyTensor's graph.

Grammar, with ``s`` sequences, ``k`` states, ``c`` constants and ``y`` traces::

    inputs   n_steps, s sequences of n_steps rows, k initial states, c constants
    body     [i, s rows, k states, c constants] -> [k next states, y rows, (stop)]
    outputs  k final states, y traces, (n_done, stopped)

``Scan :: (int, [s], [k], [c]) -> ([k], [y])`` means the loop in `loopax.ir.evaluate.run_scan`. There
are no taps (``taps=[-1, -2]`` is two states), no buffers and no in-place writes: those belong to
lower levels. Zero steps are legal: the final states are the initial ones, the traces are empty with
the right trailing shape.

A sequence and a trace are stacked, a tensor with a leading axis, where a row is a tensor, and a
`TraceType`, a typed list, where it is anything else. With ``reverse`` the steps are taken from the
last row to the first; a trace has its rows in the order of the sequences all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.type import DenseTensorType

from loopax.ir import scan_pullback, scan_pushforward
from loopax.ir.compat import InnerGraphOp
from loopax.ir.evaluate import run_scan
from loopax.ir.inner import compiled
from loopax.ir.records import (
    FLAG_TYPE,
    INDEX_TYPE,
    BodyArgs,
    BodyOuts,
    ScanArgs,
    ScanOptions,
    ScanOuts,
)
from loopax.ir.shapes import trace_shapes
from loopax.ir.trace import stacked

_DEFAULTS = ScanOptions()


class Scan(InnerGraphOp):
    """A loop over ``n_steps``, with sequences, states, constants and traces.

    Parameters
    ----------
    body
        The frozen step; see the grammar at the top of the file. Every input but the constants'
        has the type of one row: a state of type ``T`` comes in as ``T`` and leaves as ``T``.
    n_seqs, n_states, n_ys
        How the body's inputs and outputs divide. What is left of its inputs are constants.
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
        self.options = options

    @classmethod
    def from_body(cls, args: BodyArgs, outs: BodyOuts, options: ScanOptions = _DEFAULTS) -> Scan:
        """The Scan whose step computes ``outs`` from the root variables ``args``.

        A constant that the step returns as it is, or an input it passes on, is allowed anywhere.
        """
        graph = FunctionGraph(args.flat(), outs.flat(), clone=True)
        return cls(
            graph.freeze(),
            len(args.rows),
            len(args.states),
            len(outs.ys),
            stops=outs.stop is not None,
            options=options,
        )

    def with_body(self, body: FrozenFunctionGraph) -> Scan:
        """The same loop with another step."""
        return Scan(body, self.n_seqs, self.n_states, self.n_ys, self.stops, self.options)

    def with_options(self, **changed: Any) -> Scan:
        """The same loop with other options."""
        options = self.options._replace(**changed)
        return Scan(self.fgraph, self.n_seqs, self.n_states, self.n_ys, self.stops, options)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        kinds = (self.n_seqs, self.n_states, self.n_ys, self.stops)
        return (type(self), self.fgraph, *kinds, self.options._replace(name=None))

    def __str__(self) -> str:
        words = [self.options.name or "loop"]
        words += ["reverse"] * self.options.reverse + ["stops"] * self.stops
        return f"Scan{{{', '.join(words)}}}"

    # -- how the flat lists divide ---------------------------------------------------------------

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
        """Apply the loop; the outputs as a list, one or many."""
        return list(self.make_node(*args.flat()).outputs)

    def make_node(self, *inputs: Any) -> Apply:
        if len(inputs) != len(self.fgraph.inputs):
            raise TypeError(f"{self} takes {len(self.fgraph.inputs)} inputs, got {len(inputs)}")
        given, inner = self.split_inputs(inputs), self.args
        n_steps = pt.as_tensor(given.n_steps)
        if n_steps.type.dtype not in pt.type.integer_dtypes or n_steps.type.ndim:
            raise TypeError(f"n_steps must be an integer scalar, got {n_steps.type}")
        converted = ScanArgs(
            n_steps.astype("int64"),
            [
                stacked(r.type).filter_variable(x)
                for r, x in zip(inner.rows, given.sequences, strict=True)
            ],
            [s.type.filter_variable(x) for s, x in zip(inner.states, given.states, strict=True)],
            [c.type.filter_variable(x) for c, x in zip(inner.consts, given.consts, strict=True)],
        )
        outs = ScanOuts(
            [s.type() for s in inner.states],
            [stacked(y.type)() for y in self.outs.ys],
            *([INDEX_TYPE(), FLAG_TYPE()] if self.stops else []),
        )
        return Apply(self, converted.flat(), outs.flat())

    @cached_property
    def step(self) -> Any:
        """The compiled body: ``step(i, *rows, *states, *consts) -> [*next states, *ys, (stop)]``."""
        return compiled(self.fgraph)

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        for cell, value in zip(
            output_storage, run_scan(self, self.step, inputs).flat(), strict=True
        ):
            cell[0] = value

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        given = self.split_inputs(shapes)
        n_done = node.outputs[-2] if self.stops else node.inputs[0]
        trailing = trace_shapes(self, self.split_inputs(node.inputs), given)
        traces = [
            _shape(out, n_done, t)
            for out, t in zip(self.split_outputs(node.outputs).traces, trailing, strict=True)
        ]
        return [*given.states, *traces, *([(), ()] if self.stops else [])]

    # -- derivatives -----------------------------------------------------------------------------

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        return scan_pullback.pullback(self, inputs, outputs, cotangents)

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> list[Any]:
        return scan_pushforward.pushforward(self, inputs, outputs, tangents)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return scan_pullback.connection_pattern(self, node)


def _shape(trace: Any, n_rows: Any, trailing: Any) -> Any:
    """The shape of a trace, also where its trailing one is only known from the trace itself."""
    if not isinstance(trace.type, DenseTensorType):
        return None
    if trailing is None:
        trailing = [Shape_i(k)(trace) for k in range(1, trace.type.ndim)]
    return (n_rows, *trailing)
