"""``while go: *states, go = step(*states, *consts)``, as the `Loop` that it is: for tests of such loops."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt

from loopax.ir import UNBOUNDED, BodyArgs, BodyOuts, Loop, ScanArgs


class While(NamedTuple):
    """A loop with neither sequences nor traces, which goes on as long as its body says so."""

    op: Loop

    @classmethod
    def from_body(
        cls,
        states: Sequence[Any],
        consts: Sequence[Any],
        next_states: Sequence[Any],
        keep_going: Any,
    ) -> "While":
        args = BodyArgs(pt.lscalar("i"), [], states, consts)
        return cls(Loop.from_body(args, BodyOuts(next_states, [], pt.invert(keep_going))))

    def bind(self, go: Any, states: Sequence[Any], consts: Sequence[Any] = ()) -> list[Any]:
        """The final states."""
        n_steps = pt.switch(go, pt.constant(UNBOUNDED), pt.constant(0, dtype="int64"))
        return self.op.bind(ScanArgs(n_steps, [], states, consts))[: len(states)]
