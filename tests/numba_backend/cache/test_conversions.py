"""Keys of conversions to Numba: PyTensor's are kept, nobody else's, whatever they are called."""

import functools
from contextlib import contextmanager

import pytensor.tensor as pt
import pytest
from pytensor.link.numba.dispatch.basic import (
    numba_funcify,
    numba_funcify_and_cache_key,
    numba_funcify_default_op_cache_key,
)

from loopax.numba_backend.cache.content import conversion_key

m = pt.dmatrix("m")
cholesky = pt.linalg.cholesky(m).owner
bare = cholesky.op.core_op.make_node(m)  # in `cholesky` it is inside of a Blockwise
CHOLESKY = type(bare.op)


@contextmanager
def registered(registry, conversion):
    theirs = registry.dispatch(CHOLESKY)
    registry.register(CHOLESKY)(conversion)
    try:
        yield
    finally:
        registry.register(CHOLESKY)(theirs)


def users_own(op, node=None, **kwargs):
    raise NotImplementedError


in_pytensors_name = functools.wraps(numba_funcify.dispatch(CHOLESKY))(lambda op, **kwargs: None)


@pytest.mark.parametrize("conversion", [users_own, in_pytensors_name, functools.partial(users_own)])
@pytest.mark.parametrize(
    "registry", [numba_funcify, numba_funcify_default_op_cache_key, numba_funcify_and_cache_key]
)
@pytest.mark.parametrize("node", [bare, cholesky], ids=["op", "inside"])
def test_no_key_where_a_conversion_is_a_users(registry, conversion, node):
    before = conversion_key(node, "theirs")
    with registered(registry, conversion):
        assert conversion_key(node, "theirs") is None
    assert conversion_key(node, "theirs") == before is not None


def test_what_pytensor_does_not_key_has_no_key():
    assert conversion_key(cholesky, None) is None


def test_keys_differ_where_ops_types_or_constants_do():
    nodes = [
        cholesky,
        pt.linalg.cholesky(m, lower=False).owner,
        pt.linalg.cholesky(pt.fmatrix("m")).owner,
        pt.linalg.cholesky(pt.dtensor3("m")).owner,
        pt.linalg.cholesky(pt.constant([[2.0]])).owner,
        pt.linalg.cholesky(pt.constant([[3.0]])).owner,
        bare,
    ]
    keys = {conversion_key(node, "theirs") for node in nodes}
    assert len(keys) == len(nodes) and None not in keys
    assert conversion_key(cholesky, "another of PyTensor's") not in keys
