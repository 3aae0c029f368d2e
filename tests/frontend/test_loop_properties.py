"""Random small steps, some hundreds a run: every way to run a loop agrees with every other.

A step is a random expression of the row, the carry and what it closes over, branches and inner loops
included; the carry has one or two leaves, variables, constants or lags; the loop may run backwards, and
may stop. Several loops are compiled at once, because compiling is what takes the time:

    NumPy == evaluate == Python mode == CVM == jaxify == the same written with pytensor.scan
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.scan.utils import until

from loopax import cond, fori_loop, jaxify, lag, scan
from loopax.ir import evaluate
from tests.support.compare import FAST_COMPILE, imported
from tests.support.random_expressions import build, expressions

# 50 loops, and 150 more in `make test-all`: the seed is in the name of a test, so that two workers share
# them, and a failure is one that a change has made; to look for more, add seeds.
SEEDS = [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (0, 2, 3))]
EXAMPLES, LOOPS_AT_ONCE = 3, 10
LOOPS = settings(
    max_examples=EXAMPLES,
    # Not Phase.shrink: a failing loop is small, named in the message, and minutes go into shrinking ten.
    phases=[Phase.generate],
)
# Without fusion: each fused expression would be compiled in C, for a second.
CVM = Mode(linker="cvm", optimizer="fast_run").excluding("fusion", "local_add_of_sparse_write")

# -- expressions ------------------------------------------------------------------------------------

# Each as loopax has it, and as it is written without (for pytensor.scan, and for NumPy).
PLAIN = {
    "tanh": lambda m, x: m.tanh(x),
    "sin": lambda m, x: m.sin(x),
    "mean": lambda m, x: x + m.mean(x),
    "add": lambda m, x, y: x + y,
    "sub": lambda m, x, y: x - 0.5 * y,
    "mul": lambda m, x, y: m.tanh(x) * y,
    "div": lambda m, x, y: x / (2 + m.cos(y)),
    "branch": lambda m, x, y: (m.where if m is np else m.switch)(
        m.sum(x) > m.sum(y), x - y, 0.5 * y + x
    ),
    "inner": lambda m, x, y: m.tanh(m.tanh(x + y) + y),
}
OURS = PLAIN | {
    "branch": lambda m, x, y: cond(m.sum(x) > m.sum(y), lambda v: x - v, lambda v: 0.5 * v + x, y),
    "inner": lambda m, x, y: fori_loop(0, 2, lambda i, s: m.tanh(s + y), x + 0 * y),
}
UNARY = ["tanh", "sin", "mean"]
BINARY = ["add", "sub", "mul", "div", "branch", "inner"]
EXPRESSIONS = expressions(UNARY, BINARY, max_leaves=4)

# -- loops -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """What a loop is made of; printed by hypothesis where one fails."""

    n_steps: int
    rank: int
    carry: tuple[str, ...]  # of each leaf: what it starts from
    lags: tuple[int, ...]
    steps: tuple[Any, ...]  # an expression for each leaf, and one for y
    reverse: bool
    stops: bool


@st.composite
def recipes(draw: Any) -> Recipe:
    carry = tuple(
        draw(st.lists(st.sampled_from(["input", "whole", "half", "lag"]), min_size=1, max_size=2))
    )
    return Recipe(
        n_steps=draw(st.integers(0, 4)),
        rank=draw(st.integers(0, 1)),
        carry=carry,
        lags=draw(st.sampled_from([(1,), (1, 2), (2,), (3, 1), (1, 11)])),
        steps=tuple(draw(EXPRESSIONS) for _ in range(len(carry) + 1)),
        reverse=draw(st.booleans()),
        stops=draw(st.booleans()),
    )


WIDTH = 2
A = pt.dscalar("a")
# Of rank 0 and 1: rows, and what a carry starts from, the values for a lag among them.
ROWS = [pt.dvector("rows"), pt.dmatrix("rows2")]
INITS = [pt.dvector("inits"), pt.dmatrix("inits2")]
INPUTS = [A, *ROWS, *INITS]
RNG = np.random.default_rng(1)
VALUES = [
    np.array(0.6),
    *[RNG.normal(size=(4, *[WIDTH] * rank)) for rank in (0, 1)],
    *[RNG.normal(size=(11, *[WIDTH] * rank)) for rank in (0, 1)],
]


def starts(recipe: Recipe, inits: Any) -> list[Any]:
    """What each leaf starts from; the rows of a lag."""
    shape = (WIDTH,) * recipe.rank
    numbers = {
        "input": inits[0],
        "whole": np.ones(shape, "int8") if recipe.rank else 1,
        "half": np.full(shape, 0.5, "float32") if recipe.rank else 0.5,
        "lag": inits[: max(recipe.lags)],
    }
    return [numbers[kind] for kind in recipe.carry]


def stepped(
    recipe: Recipe, seen: list[Any], row: Any, a: Any, b: Any, table: Any, module: Any
) -> Any:
    """The new leaves, y, and the flag, of one step that sees ``seen``."""
    leaves = [row, *[v for s in seen for v in (s if isinstance(s, tuple) else [s])], a, b]
    # What an expression does not depend on has no rank of its own.
    operations = {name: partial(f, module) for name, f in table.items()}
    outs = [build(e, leaves, operations) + 0 * row for e in recipe.steps]
    return outs[:-1], outs[-1], module.sum(outs[0]) > 0.4


def by_loopax(recipe: Recipe) -> list[Any]:
    rows, inits = ROWS[recipe.rank], INITS[recipe.rank]
    b = pt.sin(A) * inits[0]  # a closure of the loop's rank
    init = [
        lag(start, recipe.lags) if kind == "lag" else start
        for kind, start in zip(recipe.carry, starts(recipe, inits), strict=True)
    ]

    def step(seen: Any, row: Any) -> Any:
        new, y, stop = stepped(recipe, seen, row, A, b, OURS, pt)
        return (new, {"y": y}, stop) if recipe.stops else (new, {"y": y})

    final, ys, *stopped = scan(step, init, rows[: recipe.n_steps], reverse=recipe.reverse)
    # First what JAX can return: it cannot return a trace of unknown length.
    return [*final, *stopped, ys["y"]]


def by_numpy(recipe: Recipe) -> list[Any]:
    a, rows, inits = VALUES[0], VALUES[1 + recipe.rank], VALUES[3 + recipe.rank]
    b = np.sin(a) * inits[0]
    known = [
        [*start] if kind == "lag" else [np.asarray(start, "float64")]
        for kind, start in zip(recipe.carry, starts(recipe, inits), strict=True)
    ]
    rows, ys, stop = rows[: recipe.n_steps], [], False
    for row in rows[::-1] if recipe.reverse else rows:
        seen = [
            tuple(k[-j] for j in recipe.lags) if kind == "lag" else k[-1]
            for kind, k in zip(recipe.carry, known, strict=True)
        ]
        new, y, stop = stepped(recipe, seen, row, a, b, PLAIN, np)
        for k, v in zip(known, new, strict=True):
            k.append(v)
        ys.append(y)
        if recipe.stops and stop:
            break
    finals = [
        np.stack(k[-max(recipe.lags) :]) if kind == "lag" else k[-1]
        for kind, k in zip(recipe.carry, known, strict=True)
    ]
    ys = ys[::-1] if recipe.reverse else ys
    stacked = np.stack(ys) if ys else np.zeros((0, *[WIDTH] * recipe.rank))
    return [*finals, *([np.asarray(stop)] if recipe.stops else []), stacked]


def by_pytensor(recipe: Recipe) -> list[Any]:
    """The finals and ys with `pytensor.scan`, which takes at least one step."""
    rows, inits = ROWS[recipe.rank], INITS[recipe.rank]
    b = pt.sin(A) * inits[0]
    begin = starts(recipe, inits)
    taps = [recipe.lags if kind == "lag" else (1,) for kind in recipe.carry]

    def step(row: Any, *past: Any) -> Any:
        seen, rest = [], list(past)
        for kind, lags in zip(recipe.carry, taps, strict=True):
            got, rest = rest[: len(lags)], rest[len(lags) :]
            seen.append(tuple(got) if kind == "lag" else got[0])
        new, y, stop = stepped(recipe, seen, row, A, b, PLAIN, pt)
        return ([*new, y], until(stop)) if recipe.stops else [*new, y]

    *states, ys = pytensor.scan(
        step,
        sequences=[rows[: recipe.n_steps]],
        outputs_info=[
            # Without the float64 of its loop a constant is an upcast error.
            {"initial": start, "taps": [-j for j in lags]}
            if kind == "lag" and max(lags) > 1
            else pt.as_tensor(start).astype("float64")[0 if kind == "lag" else ...]
            for kind, lags, start in zip(recipe.carry, taps, begin, strict=True)
        ]
        + [None],
        go_backwards=recipe.reverse,
        return_updates=False,
    )
    finals = [
        pt.concatenate([start, s])[-max(lags) :] if kind == "lag" else s[-1]
        for kind, lags, start, s in zip(recipe.carry, taps, begin, states, strict=True)
    ]
    return [*finals, ys[::-1] if recipe.reverse else ys]


def close(actual: Any, expected: Any, recipe: Recipe) -> None:
    actual, expected = [np.asarray(v) for v in actual], [np.asarray(v) for v in expected]
    assert [(v.shape, v.dtype) for v in actual] == [(v.shape, v.dtype) for v in expected], recipe
    for f, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-11, err_msg=str(recipe))


def split(flat: Any, like: list[list[Any]]) -> list[list[Any]]:
    rest = iter(flat)
    return [[next(rest) for _ in part] for part in like]


@pytest.mark.slow
@pytest.mark.parametrize("number", SEEDS)
def test_every_way_to_run_a_loop_agrees(number):
    batches = st.lists(recipes(), min_size=LOOPS_AT_ONCE, max_size=LOOPS_AT_ONCE)
    seed(number)(LOOPS(given(batches)(all_agree)))()


def all_agree(many: list[Recipe]) -> None:
    ours = [by_loopax(recipe) for recipe in many]
    expected = [by_numpy(recipe) for recipe in many]
    flat = [v for part in ours for v in part]

    def agree(actual: Any, like: Any = ours, among: Any = expected) -> None:
        for f, e, recipe in zip(split(actual, like), among, many, strict=True):
            close(f, e, recipe)

    agree(evaluate(imported(INPUTS, flat).graph, *VALUES))
    for mode in (FAST_COMPILE, CVM):
        agree(pytensor.function(INPUTS, flat, mode=mode, on_unused_input="ignore")(*VALUES))

    in_jax = [p[:-1] if recipe.stops else p for p, recipe in zip(ours, many, strict=True)]
    wanted = [e[: len(p)] for e, p in zip(expected, in_jax, strict=True)]
    agree(jaxify(INPUTS, [v for part in in_jax for v in part])(*VALUES), in_jax, wanted)

    legacy, wanted = [], []
    for recipe, e in zip(many, expected, strict=True):
        steps = recipe.n_steps > 0
        legacy.append(by_pytensor(recipe) if steps else [])
        wanted.append(
            [v for k, v in enumerate(e) if steps and not (recipe.stops and k == len(e) - 2)]
        )
    flat = [v for part in legacy for v in part]
    run = pytensor.function(INPUTS, flat, mode=FAST_COMPILE, on_unused_input="ignore")
    agree(run(*VALUES), legacy, wanted)
