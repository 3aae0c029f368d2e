"""Gradients of loops of orders 1 to 4, against finite differences and JAX, and where there is no step."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify
from loopax.ir import check
from tests.support.assorted_loops import CASES, PLAIN, Case, close, slopes, v, x
from tests.support.compare import FAST_RUN, loops
from tests.support.marking import slow_where


class Tower(NamedTuple):
    """A case with its gradients up to some order, and the scalars that they are the gradients of.

    A gradient becomes the scalar of the next order by its product with a fixed direction.
    """

    case: Case
    flat: list[Any]
    scalars: list[Any]
    f: Callable[..., Any]  # the gradients
    below: Callable[..., Any]  # the scalars

    def unflat(self, actual: Any) -> list[list[Any]]:
        n = len(self.case.inputs)
        return [list(actual[k : k + n]) for k in range(0, len(self.flat), n)]


@functools.cache
def tower(name: str, order: int) -> Tower:
    case = CASES[name]()
    scalars, flat = [case.cost], []
    for _ in range(order):
        gradient = pytensor.grad(scalars[-1], case.inputs)
        scalars.append(along(case, gradient, pt.as_tensor))
        flat += gradient
    check(FunctionGraph(case.inputs, flat, clone=True))
    f = pytensor.function(case.inputs, flat, mode=PLAIN)
    below = pytensor.function(case.inputs, scalars[:-1], mode=PLAIN)
    return Tower(case, flat, scalars[:-1], f, below)


def along(case: Case, gradient: Any, array: Any = np.asarray) -> Any:
    total = 0.0
    for g, value in zip(gradient, case.values, strict=True):
        direction = array(np.cos(np.arange(np.size(value)).reshape(np.shape(value)) + 0.4))
        # Also where it is called with fewer rows than the case has.
        total += (g * (direction[: g.shape[0]] if g.ndim else direction)).sum()
    return total


def by_jax(case: Case, order: int) -> list[Any]:
    cost = jaxify(case.inputs, case.cost)
    numbers = tuple(range(len(case.inputs)))

    def level(k: int) -> Any:
        if k == 0:
            return lambda *args: (cost(*args), [])
        below = jax.value_and_grad(level(k - 1), numbers, has_aux=True)

        def scalar(*args: Any) -> Any:
            (_, actual), g = below(*args)
            return along(case, g), [*actual, list(g)]

        return scalar

    return jax.jit(level(order))(*case.values)[1]


def exact(name: str, order: int) -> None:
    """The gradients are finite differences of what they are the gradients of, and those by JAX."""
    t = tower(name, order)
    case = t.case
    actual = t.unflat(t.f(*case.values))
    assert loops(t.f.maker.fgraph)
    close(actual, slopes(t.below, case.values), rtol=2e-6)
    transpiled = jaxify(case.inputs, t.flat, jit=case.jit)
    close(t.unflat(transpiled(*case.values)), actual, rtol=1e-9)
    if case.in_jax:
        close(by_jax(case, order), actual, rtol=1e-9)


# Those that compile most; the others have their parts: checkpoints, stops, lags, loops in loops.
LARGE = "far lags", "unrolled", "nested", "sqrt", "every 3", "stopping, sqrt", "stopping, reverse"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_orders_1_and_2(name):
    exact(name, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrence", "coupled"])
def test_orders_3_and_4(name):
    exact(name, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_orders_1_to_4(name):
    exact(name, 4)
    in_c(name, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sqrt", "recurrent network", "stopping"])
def test_after_the_rewrites_of_the_default_modes(name):
    in_c(name, 2)


def in_c(name: str, order: int) -> None:
    t = tower(name, order)
    f = pytensor.function(t.case.inputs, t.flat, mode=FAST_RUN)
    assert loops(f.maker.fgraph)
    close(t.unflat(f(*t.case.values)), t.unflat(t.f(*t.case.values)), rtol=1e-9)


# -- no steps ----------------------------------------------------------------------------------------

NOT_OVER_ROWS = "finals only", "inside and outside", "stopping, finals"
OVER_ROWS = slow_where(
    (*LARGE, "recurrent network").__contains__, [n for n in CASES if n not in NOT_OVER_ROWS]
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", OVER_ROWS)
def test_no_steps(name):
    t = tower(name, 2)
    rows = v if name == "nested" else x
    values = [
        value[:0] if variable is rows else value
        for variable, value in zip(t.case.inputs, t.case.values, strict=True)
    ]
    actual = t.unflat(t.f(*values))
    close(actual, slopes(t.below, values), rtol=2e-6)
    transpiled = jaxify(t.case.inputs, t.flat, jit=t.case.jit)
    close(t.unflat(transpiled(*values)), actual, rtol=1e-9)
