"""Random small loops: every way to run one agrees with every other.

A step function is a random expression over a sequence's taps, the states' taps, a constant and the
index; the loop has one or two states, scalars or vectors, and maybe a mapped output. For each:

    evaluate == PyTensor == jaxify == under jit == rows of vmap
    jax.grad of it == the transpiled pytensor.grad
    <ct, jvp(t)> == <vjp(ct), t>
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopax import jaxify
from loopax.ir import check, evaluate
from loopax.lowering import lower
from tests.support.compare import COMPILES_LITTLE, FAST_COMPILE, gradient, imported
from tests.support.random_expressions import build, expressions

scan = partial(pytensor.scan, return_updates=False)

# The same programs in every run, so that a failure is one that a change has made;
# to look for more, set derandomize=False and raise max_examples.
# Each example compiles several programs: a few in `make test`, all in `make test-all`.
FEW, MANY = 6, 25
LOOPS = settings(max_examples=FEW if COMPILES_LITTLE else MANY, derandomize=True)

# -- expressions ------------------------------------------------------------------------------------

# All smooth and bounded, so that derivatives exist and five steps stay small.
UNARY = {
    "tanh": pt.tanh,
    "sin": pt.sin,
    "sigmoid": pt.sigmoid,
    "half": lambda x: 0.5 * x,
    "square": lambda x: pt.tanh(x) ** 2,
    "softplus": lambda x: pt.log1p(pt.exp(pt.tanh(x))),
    "mean": lambda x: x + x.mean() if x.ndim else x,
    "reversed": lambda x: x[::-1] if x.ndim else x,
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: pt.tanh(x) * y,
    "switch": lambda x, y: pt.switch(pt.ge(x, 100.0), x, y),
    "div": lambda x, y: x / (2 + pt.cos(y)),
}
EXPRESSIONS = expressions(UNARY, BINARY, max_leaves=5)

# -- loops -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """What a loop is made of; printed by hypothesis where one fails."""

    n_steps: int
    rank: int
    sequence_taps: tuple[int, ...]
    taps: tuple[tuple[int, ...], ...]  # of each state
    steps: tuple[Any, ...]  # an expression for each state, and one for a mapped output
    reads: tuple[str, ...]  # what is read of each output
    backwards: bool


@st.composite
def recipes(draw: Any) -> Recipe:
    n_states = draw(st.integers(1, 2))
    tap = st.sampled_from([(-1,), (-1, -2), (-2,), (-1, -3), (-3,)])
    mapped = draw(st.booleans())
    n_outputs = n_states + mapped
    return Recipe(
        n_steps=draw(st.integers(0, 5)),
        rank=draw(st.integers(0, 1)),
        sequence_taps=draw(st.sampled_from([(0,), (0, 1), (-1, 0), (-2, 1)])),
        taps=tuple(draw(tap) for _ in range(n_states)),
        steps=tuple(draw(EXPRESSIONS) for _ in range(n_outputs)),
        reads=tuple(
            draw(st.sampled_from(["all", "last", "tail", "sum"])) for _ in range(n_outputs)
        ),
        backwards=draw(st.booleans()),
    )


ROWS, WIDTH = 8, 2
A = pt.dscalar("a")


def program(recipe: Recipe) -> tuple[list[Any], list[Any], list[Any]]:
    """Inputs, outputs and values of the loop."""
    row = (None,) * recipe.rank
    x = pt.tensor("x", dtype="float64", shape=(None, *row))
    inits = [pt.tensor(f"init{k}", dtype="float64", shape=(None, *row)) for k in range(2)]
    inits = inits[: len(recipe.taps)]

    def step(*args: Any) -> list[Any]:
        leaves = list(args)
        outs = [build(e, leaves, UNARY | BINARY) for e in recipe.steps]
        # What an expression does not depend on has no rank of its own.
        return [o + 0 * args[0] for o in outs]

    infos: list[Any] = [
        {"initial": init if min(taps) < -1 else init[0], "taps": list(taps)}
        for init, taps in zip(inits, recipe.taps, strict=True)
    ]
    n_mapped = len(recipe.steps) - len(recipe.taps)
    outs = scan(
        step,
        sequences=[{"input": x, "taps": list(recipe.sequence_taps)}],
        outputs_info=[*infos, *[None] * n_mapped],
        non_sequences=[A],
        n_steps=recipe.n_steps,
        go_backwards=recipe.backwards,
        return_list=True,
    )
    # PyTensor has no last row of nothing, and no trailing shape of a mapped output of no steps.
    if recipe.n_steps == 0:
        outs = outs[: len(recipe.taps)]
    outputs = [
        read_of(out, "all" if recipe.n_steps == 0 else read)
        for out, read in zip(outs, recipe.reads[: len(outs)], strict=True)
    ]
    rng = np.random.default_rng(1)
    shape = (WIDTH,) * recipe.rank
    values = [rng.normal(size=(ROWS, *shape))]
    values += [rng.normal(size=(-min(taps), *shape)) for taps in recipe.taps]
    return [x, *inits, A], outputs, [*values, 0.6]


def read_of(out: Any, read: str) -> Any:
    match read:
        case "all":
            return out
        case "last":
            return out[-1]
        case "tail":
            return out[1:]
        case "sum":
            return out.sum()


def close(actual: Any, expected: Any) -> None:
    actual, expected = [[np.asarray(x) for x in xs] for xs in (actual, expected)]
    assert [(x.shape, x.dtype) for x in actual] == [(x.shape, x.dtype) for x in expected]
    chex.assert_trees_all_close(actual, expected, rtol=1e-9, atol=1e-11)


def weigh(outputs: Any, xp: Any) -> Any:
    """A scalar of all outputs, each element with a weight of its own kind."""
    return sum(xp.sum(xp.sin(o) + (k + 1) * o) for k, o in enumerate(outputs))


# -- what holds ---------------------------------------------------------------------------------------


@pytest.mark.slow
@LOOPS
@given(recipes())
def test_values(recipe):
    inputs, outputs, values = program(recipe)
    run = pytensor.function(inputs, outputs, mode=FAST_COMPILE, on_unused_input="ignore")
    expected = run(*values)
    graph = imported(inputs, outputs).graph
    arrays = [np.asarray(x) for x in values]
    close(evaluate(graph, *arrays), expected)
    lower(graph)
    check(graph)
    close(evaluate(graph, *arrays), expected)
    f = jaxify(inputs, outputs)
    close(f(*values), expected)


@pytest.mark.slow
@LOOPS
@given(recipes())
def test_vmap_is_a_loop_over_rows(recipe):
    inputs, outputs, values = program(recipe)
    f = jaxify(inputs, outputs)
    rows = [[x * (1 - 0.3 * r) for x in values] for r in range(3)]
    actual = jax.jit(jax.vmap(f))(*[np.stack(xs) for xs in zip(*rows, strict=True)])
    one = jax.jit(f)
    close(actual, [np.stack(xs) for xs in zip(*[one(*row) for row in rows], strict=True)])


@pytest.mark.slow
@settings(LOOPS, max_examples=FEW if COMPILES_LITTLE else MANY // 2)
@given(recipes())
def test_gradients(recipe):
    inputs, outputs, values = program(recipe)
    by_pytensor = pytensor.grad(
        weigh(outputs, pt), inputs, disconnected_inputs="ignore", return_disconnected="zero"
    )
    f = jaxify(inputs, outputs)
    by_jax = gradient(lambda *xs: weigh(f(*xs), jnp), range(len(inputs)), values)
    close(jax.jit(jaxify(inputs, by_pytensor))(*values), by_jax)


@pytest.mark.slow
@LOOPS
@given(recipes())
def test_forward_and_reverse_are_each_others_transpose(recipe):
    inputs, outputs, values = program(recipe)
    f = jaxify(inputs, outputs)
    rng = np.random.default_rng(2)
    arrays = [jnp.asarray(x) for x in values]
    tangents = [jnp.asarray(rng.normal(size=np.shape(x))) for x in values]

    @jax.jit
    def both(xs, ts):
        outs, pushed = jax.jvp(lambda *v: f(*v), tuple(xs), tuple(ts))
        cotangents = [jnp.cos(jnp.arange(o.size, dtype=o.dtype)).reshape(o.shape) for o in outs]
        pulled = jax.vjp(lambda *v: f(*v), *xs)[1](cotangents)
        forward = sum(jnp.sum(c * t) for c, t in zip(cotangents, pushed, strict=True))
        backward = sum(jnp.sum(c * t) for c, t in zip(pulled, ts, strict=True))
        return forward, backward

    forward, backward = both(arrays, tangents)
    np.testing.assert_allclose(forward, backward, rtol=1e-9, atol=1e-11)
