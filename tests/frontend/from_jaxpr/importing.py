"""A function of JAX read into the IR and evaluated there, and as native code, to hold against XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytest
from jax import lax
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax.base.upstream.jax import Literal, low_jaxpr
from loopax.frontend.from_jaxpr import read_equations, tensor_type
from loopax.frontend.from_jaxpr.reading import constant
from loopax.ir import evaluate


def imported(f: Callable[..., Any], *args: Any) -> FunctionGraph:
    """The graph of ``f`` for arguments of these types."""
    jaxpr = low_jaxpr(jax.make_jaxpr(f)(*args))
    opened = jaxpr.jaxpr
    known = {v: tensor_type(v.aval)() for v in opened.invars}
    inputs = list(known.values())
    known |= {v: constant(x, v.aval) for v, x in zip(opened.constvars, jaxpr.consts, strict=True)}
    values = read_equations(opened.eqns, known)
    outputs = [
        constant(v.val, v.aval) if isinstance(v, Literal) else values[v] for v in opened.outvars
    ]
    return FunctionGraph(inputs, outputs, clone=False)


def in_the_ir(f: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of ``f`` in the meaning that the IR has."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(args)]
    graph = imported(f, *args)
    try:
        with np.errstate(all="ignore"):
            return evaluate(graph, *leaves)
    except OverflowError:
        if tuple(map(int, pytensor.__version__.split(".")[:2])) >= (3, 3):
            raise
        pytest.skip(
            "PyTensor 3.0 converts Python's integers, of which one does not fit; Numba cuts it"
        )


def assert_same(actual: Sequence[Any], wanted: Sequence[Any], what: Any = "") -> None:
    """Equal to rounding, in shapes and dtypes; integers and flags to the bit."""
    actual, wanted = jax.tree.leaves(actual), jax.tree.leaves(wanted)
    assert len(actual) == len(wanted)
    for x, y in zip(actual, wanted, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape), what
        if x.dtype.kind in "fc":
            close = 2e-5 if x.dtype.itemsize // (1 + (x.dtype.kind == "c")) == 4 else 1e-11
            np.testing.assert_allclose(x, y, rtol=close, atol=close * 0.05, err_msg=str(what))
        else:
            np.testing.assert_array_equal(x, y, err_msg=str(what))


def in_a_loop(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` of the rows of two equal rows, by a loop; its results are those of the last."""

    def looped(*args: Any) -> Any:
        rows = jax.tree.map(lambda x: jnp.stack([x, x]), args)
        _, results = lax.scan(lambda n, row: (n + 1, f(*row)), 0, rows)
        return jax.tree.map(lambda y: y[-1], results)

    return looped


def assert_native_agrees(f: Callable[..., Any], *args: Any) -> None:
    """``f`` in the step of a native loop computes what XLA computes of it."""
    looped = in_a_loop(f)
    fast = loopax.native(looped, loops="native")
    actual = fast(*args)
    assert all(": native, " in line for line in fast.remarks), fast.remarks
    assert_same(actual, jax.jit(looped)(*args))
