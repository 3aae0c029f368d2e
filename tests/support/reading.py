"""Programs that read some rows of a trace, and what a pass must keep of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from loopax import scan
from tests.support.compare import loops
from tests.support.kept import rewritten

x, s, n = pt.dmatrix("x"), pt.dvector("s"), pt.lscalar("n")

# Of a row that is not there, and of a number of steps that does not fit.
ERRORS = (IndexError, ValueError)

# What a step emits: the next state, the state before, and what is neither.
EMITTED = {
    "state": lambda new, old, r: new,
    "old": lambda new, old, r: old,
    "other": lambda *v: v[0] + v[2],
}


def loop(
    emitted: str = "other", *, stops: bool = False, length: Any = None, reverse: bool = False
) -> Any:
    """(final, trace) of a loop over ``x``, and of one that may stop whether it has."""

    def step(c, r):
        new = 0.9 * c + r
        stop = (new.sum() > 40,) if stops else ()
        return new, EMITTED[emitted](new, c, r), *stop

    return scan(step, s, x, length=length, reverse=reverse)


def counts(graph: FunctionGraph) -> list[tuple[int, int]]:
    """The numbers of states and of traces of each loop."""
    return [(node.op.n_states, node.op.n_ys) for node in loops(graph)]


def kept(
    outputs: Sequence[Any],
    passes: Sequence[Callable],
    *,
    steps: Sequence[int] = (0, 1, 2, 3, 7, 12),
) -> FunctionGraph:
    """The graph after ``passes``, which has the same values and errors for numbers of ``steps``."""
    graph = FunctionGraph([x, s, n], list(outputs), clone=True)
    return rewritten(graph, passes, *map(_values, steps), errors=ERRORS)


def _values(k: int) -> list[Any]:
    rows = np.arange(1.0, 2 * k + 1).reshape(k, 2)
    return [rows, np.array([1.0, 2.0]), np.asarray(k)]


_BOUNDS = st.sampled_from([None, 0, 1, 2, 5, -1, -2, -5, 20])


@st.composite
def reads(draw: Any) -> Callable[[Any, Any], Any]:
    """``(trace, number of steps) -> rows of it``, by numbers from either end, flipped or not."""
    flip, by_length, again = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    row = draw(st.one_of(st.none(), st.integers(-6, 6)))
    bounds = slice(draw(_BOUNDS), draw(_BOUNDS), draw(st.sampled_from([None, 1, -1, 2])))

    def read(trace: Any, steps: Any) -> Any:
        trace = trace[::-1] if flip else trace
        if by_length:
            return trace[steps - (row or 1)] if row is None or row > 0 else trace[steps + row :]
        if row is not None:
            return trace[row]
        return trace[bounds][::-1] if again else trace[bounds]

    return read
