"""A program that makes the same draws at every call says so; one whose generator moves on does not."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

from loopax import jaxify


def generator(name="rng"):
    return pytensor.shared(np.random.default_rng(1), name=name)


def draw(rng):
    return pt.random.normal(rng=rng, return_next_rng=True)


BOTH = pytest.mark.parametrize("backend", ["jax", "numba"])


@BOTH
def test_equal_draws_are_said_where_jaxify_is_called(backend):
    a, b = generator("a"), generator("b")
    with pytest.warns(UserWarning, match="draws from 'a' and 'b', which nothing updates") as warned:
        f = jaxify([], draw(a)[1] + draw(b)[1], backend=backend)
    assert [w.filename for w in warned] == [__file__]
    assert f() == f()


@BOTH
def test_what_the_warning_shows_runs(backend):
    rng = generator()
    next_rng, one = draw(rng)
    f = jaxify([], one, updates={rng: next_rng}, backend=backend).stateful()
    assert f() != f()
    rng = random_generator_type("rng")
    g = jaxify([rng], draw(rng)[1])
    assert g(jax.random.key(1)) != g(jax.random.key(2))


def test_in_a_function_and_in_a_compiled_one():
    rng = generator()
    with pytest.warns(UserWarning, match="draws from 'rng'"):
        jaxify(lambda x: x + draw(rng)[1])(1.0)
    with pytest.warns(UserWarning, match="draws from 'rng'"):
        jaxify(pytensor.function([], draw(rng)[1], mode="FAST_COMPILE"))


def test_who_takes_the_next_generator_is_told_nothing():
    jaxify([], draw(generator()))


@pytest.mark.filterwarnings("ignore:Setting default_update is deprecated:DeprecationWarning")
def test_a_generator_with_a_default_update_moves_on():
    rng = generator()
    rng.default_update, one = draw(rng)  # as RandomStream makes it, which is deprecated
    f = jaxify([], one).stateful()
    assert f() != f()


def test_the_mode_of_pytensor_is_told_nothing():
    rng = generator()
    f = pytensor.function([], draw(rng)[1], mode="LOOPAX_NUMBA")
    assert f() == f()
