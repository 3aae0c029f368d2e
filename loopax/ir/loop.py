"""``Loop``: one loop, bare.

Grammar, with ``k`` states and ``c`` constants::

    inputs   go, k initial states, c constants
    body     [k states, c constants] -> [k next states, keep_going]
    outputs  k final states

The index, the bound, the rows of a sequence and the buffer of a trace are ordinary states and
constants. ``go`` says whether there is a first step: a loop that only asked after each step could not
take none. It is what a `Scan` becomes last, before a backend writes it as a native loop; it has no
derivative: differentiate the Scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from loopax.ir.evaluate import own
from loopax.ir.inner import CompiledBodies
from loopax.ir.inner_graph_op import Step
from loopax.ir.records import FLAG_TYPE


class Loop(CompiledBodies):
    """``while go: *states, go = body(*states, *consts)``.

    Parameters
    ----------
    body
        Frozen; see the grammar at the top of the file. A state comes in and leaves with one type.
    n_states
        How the inputs divide. What is left of them are constants.
    name
        For printing: it takes part neither in equality nor in the hash.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from loopax.ir import Loop
    >>> x = pt.dscalar("x")
    >>> halve = Loop.from_body([x], [], [x / 2], x / 2 > 1)
    >>> start = pt.dscalar("start")
    >>> halve.bind(start > 1, [start])[0].eval({start: 20.0})
    array(0.625)
    """

    def __init__(self, body: FrozenFunctionGraph, n_states: int, name: str | None = None) -> None:
        self.fgraph, self.n_states, self.name = body, n_states, name

    @classmethod
    def from_body(
        cls,
        states: Sequence[Variable],
        consts: Sequence[Variable],
        next_states: Sequence[Variable],
        keep_going: Variable,
        name: str | None = None,
    ) -> Loop:
        """The Loop whose body computes ``next_states`` and ``keep_going`` from root variables."""
        graph = FunctionGraph([*states, *consts], [*next_states, keep_going], clone=True)
        return cls(graph.freeze(), len(states), name)

    def with_body(self, body: FrozenFunctionGraph) -> Loop:
        return Loop(body, self.n_states, self.name)

    def __eq__(self, other: object) -> bool:
        return type(other) is Loop and (self.fgraph, self.n_states) == (
            other.fgraph,
            other.n_states,
        )

    def __hash__(self) -> int:
        return hash((Loop, self.fgraph, self.n_states))

    def __str__(self) -> str:
        return f"Loop{{{self.name or 'loop'}}}"

    def bind(self, go: Any, states: Sequence[Any], consts: Sequence[Any] = ()) -> list[Variable]:
        """Apply the loop; its final states as a list."""
        return list(self.make_node(go, *states, *consts).outputs)

    def make_node(self, go: Any, *inputs: Any) -> Apply:
        inner = self.fgraph.inputs
        if len(inputs) != len(inner):
            raise TypeError(f"{self} takes {len(inner)} states and constants, got {len(inputs)}")
        given = [v.type.filter_variable(x) for v, x in zip(inner, inputs, strict=True)]
        go = FLAG_TYPE.filter_variable(pt.as_tensor(go))
        return Apply(self, [go, *given], [v.type() for v in inner[: self.n_states]])

    def run(self, inputs: Sequence[Any], *steps: Step) -> list[Any]:
        (step,) = steps
        keep_going, *rest = inputs
        states, consts = rest[: self.n_states], rest[self.n_states :]
        while keep_going:
            *states, keep_going = step(*states, *consts)
        return [own(state) for state in states]  # a state that no step changed is an input

    def shapes_of(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return list(shapes[1 : 1 + self.n_states])

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        raise NotImplementedError(
            f"{self} has no derivative: it keeps no trace of its states. Differentiate the Scan that "
            "it was made from, before it is lowered."
        )

    def pushforward(
        self, inputs: Sequence[Any], outputs: Sequence[Any], tangents: Sequence[Any]
    ) -> list[Any]:
        return self.pullback(inputs, outputs, tangents)
