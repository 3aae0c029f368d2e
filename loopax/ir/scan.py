"""``Scan``: one structured loop, as an op of PyTensor's graph.

Grammar, with ``s`` sequences, ``k`` states, ``c`` constants and ``y`` traces::

    inputs   n_steps, s sequences of n_steps rows, k initial states, c constants
    body     [i, s rows, k states, c constants] -> [k next states, y rows, (stop)]
    outputs  k final states, y traces, (n_done, stopped)

``Scan :: (int, [s], [k], [c]) -> ([k], [y])`` means the loop in `loopax.ir.evaluate.run_scan`. There
are no taps (``taps=[-1, -2]`` is two states), no buffers and no in-place writes: those belong to
lower levels. Zero steps are legal: the final states are the initial ones, the traces are empty with
the right trailing shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor.type import TensorType

from loopax.ir.compat import InnerGraphOp, thaw
from loopax.ir.evaluate import run_scan
from loopax.ir.shapes import trace_shapes

INDEX_TYPE = TensorType("int64", ())
FLAG_TYPE = TensorType("bool", ())


class ScanArgs(NamedTuple):
    """The inputs of a `Scan` node, or values for them."""

    n_steps: Any
    sequences: Sequence[Any]
    states: Sequence[Any]
    consts: Sequence[Any]

    def flat(self) -> list[Any]:
        return [self.n_steps, *self.sequences, *self.states, *self.consts]


class ScanOuts(NamedTuple):
    """The outputs of a `Scan` node. ``n_done`` and ``stopped`` exist where the loop can stop."""

    finals: Sequence[Any]
    traces: Sequence[Any]
    n_done: Any = None
    stopped: Any = None

    def flat(self) -> list[Any]:
        end = [] if self.n_done is None else [self.n_done, self.stopped]
        return [*self.finals, *self.traces, *end]


class BodyArgs(NamedTuple):
    """The inputs of a body: the index of the step, this step's rows, the states, the constants."""

    i: Any
    rows: Sequence[Any]
    states: Sequence[Any]
    consts: Sequence[Any]

    def flat(self) -> list[Any]:
        return [self.i, *self.rows, *self.states, *self.consts]


class BodyOuts(NamedTuple):
    """The outputs of a body. ``stop`` is None where the loop cannot stop early."""

    states: Sequence[Any]
    ys: Sequence[Any]
    stop: Any = None

    def flat(self) -> list[Any]:
        return [*self.states, *self.ys, *([] if self.stop is None else [self.stop])]


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
    name
        For printing only: it takes part neither in equality nor in the hash.
    truncate_gradient
        How many steps, from the last one back, a derivative goes through; -1 for all of them.
        Values do not depend on it. As `pytensor.scan` has it: nothing that an earlier step read or
        made gets a cotangent.

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
        name: str | None = None,
        truncate_gradient: int = -1,
    ) -> None:
        self.fgraph = body
        self.truncate_gradient = truncate_gradient
        self.n_seqs, self.n_states, self.n_ys = n_seqs, n_states, n_ys
        self.stops = stops
        self.name = name

    @classmethod
    def from_body(
        cls, args: BodyArgs, outs: BodyOuts, name: str | None = None, truncate_gradient: int = -1
    ) -> Scan:
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
            name=name,
            truncate_gradient=truncate_gradient,
        )

    def with_body(self, body: FrozenFunctionGraph) -> Scan:
        """The same loop with another step."""
        return type(self)(
            body,
            self.n_seqs,
            self.n_states,
            self.n_ys,
            self.stops,
            self.name,
            self.truncate_gradient,
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        kinds = (self.n_seqs, self.n_states, self.n_ys, self.stops, self.truncate_gradient)
        return (type(self), self.fgraph, *kinds)

    def __str__(self) -> str:
        return f"Scan{{{self.name or 'loop'}{', stops' if self.stops else ''}}}"

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
        return self.make_node(*args.flat()).outputs

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
        body = thaw(self.fgraph)
        as_it_is = Mode("vm", RewriteDatabaseQuery(include=[None]))  # no rewrites
        return pytensor.function(body.inputs, body.outputs, mode=as_it_is, on_unused_input="ignore")

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "step"}

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        for cell, value in zip(
            output_storage, run_scan(self, self.step, inputs).flat(), strict=True
        ):
            cell[0] = value

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        given = self.split_inputs(shapes)
        n_done = node.outputs[-2] if self.stops else node.inputs[0]
        trailing = trace_shapes(self, self.split_inputs(node.inputs), given)
        traces = [None if t is None else (n_done, *t) for t in trailing]
        return [*given.states, *traces, *([(), ()] if self.stops else [])]


def stacked(row: Any) -> TensorType:
    """The type of a stack of rows of type ``row``, its length unknown."""
    return TensorType(row.dtype, (None, *row.shape))
