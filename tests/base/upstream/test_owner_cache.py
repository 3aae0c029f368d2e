"""What a program has traced is freed with it: a cache of a module would keep it."""

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import loopax
from loopax.base.upstream.jax import owner_cache


class Owner:
    """It can have attributes."""


def test_a_result_that_refers_to_its_owner_is_freed_with_it():
    calls = []

    @owner_cache
    def pair(owner, count):
        calls.append(count)
        return owner, count

    owner = Owner()
    for count in (1, 2, 1):
        assert pair(owner, count) == (owner, count)
    assert calls == [1, 2]
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None


@pytest.mark.slow  # JAX's own caches are emptied, for all tests of the process
def test_a_native_function_is_freed_with_its_programs():
    def total(a, xs):
        step = lambda c, x: (jnp.tanh(a * c + x), jnp.exp(c))  # noqa: E731
        return lax.scan(step, 0.1, xs)[1].sum()

    f = loopax.native(total, loops="native")
    jax.block_until_ready(jax.jit(jax.value_and_grad(f))(0.3, jnp.ones(5)))
    reference = weakref.ref(f.plan)
    del f
    jax.clear_caches()
    gc.collect()
    assert reference() is None
