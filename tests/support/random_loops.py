"""Random small loops, for properties of derivatives, batches and passes.

A step is a random expression of the row, the states, the index and what it closes over, with branches,
inner loops and inner loops that stop; there are one or two states, a count beside them, and two traces.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from hypothesis import Phase, settings
from hypothesis import strategies as st

from loopax import cond, fori_loop, scan, while_loop
from tests.support.random_expressions import build, expressions

# The seed is in the name of a test, so that a failure is one that a change has made; to look for more,
# add seeds. Not Phase.shrink: a failing loop is small, and minutes go into shrinking several.
RANDOM = settings(max_examples=8, phases=[Phase.generate])

# -- expressions, all smooth and bounded -------------------------------------------------------------

UNARY = {
    "tanh": pt.tanh,
    "sin": pt.sin,
    "mean": lambda x: x + x.mean(),
    "turned": lambda x: x[::-1] if x.ndim else x,
    "joined": lambda x: pt.concatenate([x[1:], 0.5 * x[:1]]) if x.ndim else x,
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - 0.5 * y,
    "mul": lambda x, y: pt.tanh(x) * y,
    "div": lambda x, y: x / (2 + pt.cos(y)),
    "branch": lambda x, y: cond(
        x.sum() > y.sum() + 0.01, lambda: pt.sin(x) - y, lambda: 0.5 * y + x
    ),
    "inner": lambda x, y: fori_loop(0, 2, lambda i, s: pt.tanh(s + y), x + 0 * y),
    "until": lambda x, y: while_loop(
        lambda s: s.sum() < 1.3, lambda s: s + 0.3 + 0.1 * pt.sin(s * y), x + 0 * y, max_steps=3
    ),
}
EXPRESSIONS = expressions(UNARY, BINARY, max_leaves=4)

# -- loops -------------------------------------------------------------------------------------------

OPTIONS = [{}, {"checkpoint": 2}, {"checkpoint": "sqrt"}]


@dataclass(frozen=True)
class Recipe:
    """What a loop is made of; printed by hypothesis where one fails."""

    n_steps: int
    rank: int
    steps: tuple[Any, ...]  # an expression for each state, and two for traces
    counts: bool
    reverse: bool
    options: dict[str, Any]
    stops: bool


@st.composite
def recipes(draw: Any, stops: Any = None) -> Recipe:
    return Recipe(
        n_steps=draw(st.integers(0, 4)),
        rank=draw(st.integers(0, 1)),
        steps=tuple(draw(EXPRESSIONS) for _ in range(draw(st.integers(1, 2)) + 2)),
        counts=draw(st.booleans()),
        reverse=draw(st.booleans()),
        options=draw(st.sampled_from(OPTIONS)),
        stops=draw(st.booleans() if stops is None else st.just(stops)),
    )


WIDTH, ROWS = 2, 4
a = pt.dscalar("a")
# Of rank 0 and 1.
ROWS_OF = [pt.dvector("rows"), pt.dmatrix("rows2")]
START_OF = [pt.dscalar("start"), pt.dvector("start2")]


def inputs(recipe: Recipe) -> list[Any]:
    return [ROWS_OF[recipe.rank], START_OF[recipe.rank], a]


def values(recipe: Recipe, seed: int = 1) -> list[Any]:
    rng = np.random.default_rng(seed)
    shape = (WIDTH,) * recipe.rank
    return [
        rng.normal(size=(recipe.n_steps, *shape)),
        rng.normal(size=shape),
        rng.uniform(0.5, 0.9),
    ]


def loop(recipe: Recipe) -> list[Any]:
    """The states behind the loop, the traces, and of a loop that stops whether it did."""
    rows, start, a = inputs(recipe)
    closed_over = pt.sin(a) * start  # of the loop's rank

    def step(carry: Any, row: Any) -> Any:
        n, states = carry
        leaves = [row, *states, a, closed_over]
        if n is not None:
            leaves.append(row * n)
        # What an expression does not depend on has no rank of its own.
        outs = [build(e, leaves, UNARY | BINARY) + 0 * row for e in recipe.steps]
        carry = (None if n is None else n + 1), outs[:-2]
        ys = outs[-2:]
        return (carry, ys, outs[0].sum() > 0.4) if recipe.stops else (carry, ys)

    starts = [start, a * pt.cos(start)][: len(recipe.steps) - 2]
    init = (0 if recipe.counts else None, starts)
    (n, finals), ys, *stopped = scan(step, init, rows, reverse=recipe.reverse, **recipe.options)
    return [*finals, *ys, *([] if n is None else [n]), *stopped]
