"""Indices that JAX computes from literals are read as constants, also in the step of a loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from jax import lax
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Join

from loopax.frontend.from_jaxpr.known import known
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.scan import Scan
from tests.frontend.from_jaxpr.importing import (
    assert_native_agrees,
    assert_same,
    imported,
    in_the_ir,
)

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.75]])


def index(*numbers):
    """Equal to ``numbers``, as operations of which JAX knows no result."""
    return lax.concatenate([lax.broadcast_in_dim(k, (1,), ()) for k in numbers], 0)


def picked(x):
    return lax.switch(index(1)[0], [jnp.sin, jnp.cos], x)


PROGRAMS = {
    "a write at one place": lambda x: x.at[1, 2].set(x[0, 0]),
    "a write out of range": lambda x: x.at[1, 7].set(x[0, 0]),
    "a sum at two places": lambda x: x.at[index(1, 1), index(0, 0)].add(x[0, :2]),
    "reads at three places": lambda x: x[index(0, 1, -1), index(2, 2, 0)],
    "reads out of range": lambda x: jnp.take(x, index(0, 5, -7), axis=1),
    "a window": lambda x: lax.dynamic_slice(x, list(index(1, 1)), (2, 2)),
    "a diagonal": lambda x: jnp.diagonal(x[:, :2]),
    "a choice": lambda x: jnp.where(index(2)[0] > 1, x, 0.0),
    "a branch": picked,
}
# Those choose between the element and another value.
SOME_OUT_OF_RANGE = {"a write out of range", "reads out of range"}


def looped(f):
    """The sum of ``f`` over three steps; JAX hands its indices to the loop as arguments."""

    def sums(x):
        rows = jnp.stack([x, x, x])
        indices = index(0, 1)

        def step(total, row):
            return total + f(row).sum() + row[indices, indices].sum(), total

        return lax.scan(step, 0.0, rows)

    return sums


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("wrap", [lambda f: f, looped], ids=["outside", "in a loop"])
def test_values(name, wrap):
    f = wrap(PROGRAMS[name])
    assert_same(in_the_ir(f, X), [jax.jit(f)(X)], name)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - SOME_OUT_OF_RANGE))
@pytest.mark.parametrize("wrap", [lambda f: f, looped], ids=["outside", "in a loop"])
def test_nothing_is_tested_or_moved_into_range(name, wrap):
    graph = imported(wrap(PROGRAMS[name]), X)
    ops = [
        getattr(node.op, "scalar_op", None) for node in nodes_within(graph.inputs, graph.outputs)
    ]
    assert not any(isinstance(op, ps.Switch | ps.Clip | ps.LT | ps.GE) for op in ops), ops


def test_native_code():
    def f(x):
        return [g(x) for g in PROGRAMS.values()]

    assert_native_agrees(f, X)


def test_what_is_known():
    three = pt.constant(np.array([3, 4, 5]))
    np.testing.assert_array_equal(known((three * 2)[1:]), [8, 10])
    assert known(three) is three.data
    assert known(pt.ge(three, 4)).tolist() == [False, True, True]


@pytest.mark.parametrize(
    "unknown",
    [pt.lvector("n")[:2] * 0, pt.constant(0.5) + 1, pt.arange(2000)],
    ids=["an input", "a float", "a long array"],
)
def test_what_is_not_known(unknown):
    assert not isinstance(unknown, Constant)
    assert known(unknown) is None


def test_integers_that_wrap_around():
    """As they do in the program, and without a warning."""
    most = pt.constant(np.uint8(255))
    assert known(most * most + np.uint8(4)) == 5


def test_loops_are_not_run():
    """One of constants may run for long, or forever."""

    def count(x):
        n = lax.while_loop(lambda n: n < 5, lambda n: n + 1, index(0)[0])
        return x[n % 2]

    graph = imported(count, X)
    assert any(isinstance(node.op, Scan) for node in nodes_within(graph.inputs, graph.outputs))
    assert_same(in_the_ir(count, X), [count(X)])


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i, j: x[i, j],
        lambda x, i, j: x.at[i, j].add(1.0),
        lambda x, i, j: x[i, jnp.array([0, 2])],
    ],
)
def test_an_index_for_each_axis_is_not_joined(f):
    """JAX joins the indices of all axes to one array, of which its gather reads the parts."""
    args = X, np.array([0, -1]), np.array([2, 1])
    graph = imported(f, *args)
    joins = [n for n in nodes_within(graph.inputs, graph.outputs) if isinstance(n.op, Join)]
    assert not joins
    assert_same(in_the_ir(f, *args), [jax.jit(f)(*args)], "joined")
