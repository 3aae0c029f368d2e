"""``jnp.searchsorted`` is read as one op, where JAX computes it by a loop of comparisons."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pytensor.tensor.extra_ops import SearchsortedOp

from loopax.ir import Scan
from loopax.ir.ops.inner_graph_op import nodes_within
from tests.frontend.from_jaxpr.importing import (
    assert_native_agrees,
    assert_same,
    imported,
    in_the_ir,
)

RNG = np.random.default_rng(0)
ROWS = np.sort(RNG.integers(-4, 5, (3, 7)), axis=1)
QUERIES = np.array([-9, -4, 0, 1, 4, 9])
SPECIAL = np.array([-np.inf, -1.5, -0.0, 0.0, 0.0, 2.0, np.inf, np.nan, np.nan])


def searches(f, *args):
    """The searches and the loops in the graph of ``f``."""
    graph = imported(f, *args)
    ops = [node.op for node in nodes_within(graph.inputs, graph.outputs)]
    ops += [getattr(op, "core_op", None) for op in ops]
    return [sum(isinstance(op, kind) for op in ops) for kind in (SearchsortedOp, Scan)]


def assert_are_searches(n, f, *args):
    """``n`` of them, and no loop; a program for both sides, or for several shapes, is compiled once."""
    assert searches(f, *args) == [n, 0]
    assert_same(in_the_ir(f, *args), [jax.jit(f)(*args)])
    assert_native_agrees(f, *args)


def both_sides(rows, queries):
    return [jnp.searchsorted(rows, queries, side=side) for side in ("left", "right")]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8"])
def test_dtypes(dtype):
    rows = (ROWS[0] + 4).astype(dtype) if dtype == "uint8" else ROWS[0].astype(dtype)
    assert_are_searches(2, both_sides, rows, np.abs(QUERIES).astype(dtype))


def test_values_that_are_easy_to_get_wrong():
    assert_are_searches(2, both_sides, SPECIAL, SPECIAL[::-1].copy())


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_batches(axes):
    rows = ROWS if axes[0] == 0 else ROWS[0]
    queries = RNG.integers(-5, 6, (3, 4)) if axes[1] == 0 else QUERIES
    assert_are_searches(2, jax.vmap(both_sides, axes), rows, queries)


def test_shapes_of_queries():
    def f(rows, last, *queries):
        return jnp.searchsorted(rows[:1], last), [jnp.searchsorted(rows, q) for q in queries]

    queries = [RNG.integers(-5, 6, shape) for shape in ((), (1,), (2, 3), (0,))]
    assert_are_searches(5, f, ROWS[0], QUERIES, *queries)


def test_operands_of_two_dtypes():
    def f(floats, queries, integers, floating_queries):
        return jnp.searchsorted(floats, queries), jnp.searchsorted(integers, floating_queries)

    floats, integers = ROWS[0].astype("float32"), ROWS[0] * 2**25 + 1
    assert_native_agrees(f, floats, QUERIES + 0.25, integers, QUERIES.astype("float32"))


def test_an_empty_array():
    assert_native_agrees(jnp.searchsorted, np.zeros(0), QUERIES + 0.0)


def test_native_code_and_xla_agree_on_values_in_no_order():
    rows = [RNG.normal(size=n) for n in (2, 5, 16, 33)]
    for values in rows:
        values[::7] = np.nan
    assert_native_agrees(
        lambda queries, *rows: [both_sides(values, queries) for values in rows],
        RNG.normal(size=20),
        *rows,
    )


def test_derivatives_go_through_the_other_operands():
    def f(x):
        places = jnp.searchsorted(jnp.cumsum(jnp.abs(x)), jnp.array([0.5, 1.5]))
        return x[places].sum() ** 2

    x = RNG.normal(size=6)
    assert searches(jax.grad(f), x) == [1, 0]
    assert_native_agrees(jax.grad(f), x)


@pytest.mark.parametrize(
    "method", ["scan_unrolled", "sort", pytest.param("compare_all", marks=pytest.mark.slow)]
)
def test_other_methods_are_read_step_by_step(method):
    f = partial(jnp.searchsorted, method=method)
    assert not searches(f, ROWS[0], QUERIES)[0]
    assert_native_agrees(f, ROWS[0], QUERIES)


def test_a_user_s_function_of_that_name():
    @jax.jit
    def searchsorted(a, v):
        return jnp.int32(a.sum() + v)

    assert not searches(searchsorted, ROWS[0], QUERIES)[0]
    assert_native_agrees(searchsorted, ROWS[0], QUERIES)
