"""Indices out of range in a direct call: one program, one behaviour, whatever the form."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import cond, jaxify, scan

X, POSITION, K = pt.dvector("x"), pt.lscalar("i"), pt.lvector("k")
AT = np.arange(3.0)

# Programs of x, i and k, and values of i or k within and out of range.
PROGRAMS = {
    "element": ([X, POSITION], X[POSITION] * 2, [2, -3, 0], [3, -4, 2**32, -(2**40)]),
    "elements": ([X, K], X[K].sum(), [[0, 2], [-3], []], [[0, 3], [-4], [1, 2**32 + 1]]),
    "written": ([X, K], pt.set_subtensor(X[K], 5.0).sum(), [[0], [-1]], [[7], [0, -9]]),
    "added": ([X, K], pt.inc_subtensor(X[K], 5.0), [[0, 0]], [[0, 3]]),
    "integers": ([X, K], X.astype("int64")[K], [[1]], [[5]]),
    "in a loop": (
        [X, K],
        scan(lambda c, k: (c + X[k], None), pt.constant(0.0, dtype="float64"), K)[0],
        [[0, 1, 2]],
        [[0, 1, 3, 2]],
    ),
    "in a branch": (
        [X, POSITION],
        cond(POSITION > 1, lambda: X[POSITION], lambda: pt.constant(1.0, dtype="float64")),
        [2, -100],
        [5],
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("loops", ["xla", "native", "auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_direct_call(name, loops):
    inputs, output, inside, outside = PROGRAMS[name]
    f = jaxify(inputs, output, loops=loops)
    dtype = "int64"
    for at in inside:
        f(AT, np.asarray(at, dtype))
    for at in outside:
        with pytest.raises(
            IndexError, match="index is out of bounds: .* is out of bounds for axis"
        ):
            f(AT, np.asarray(at, dtype))
    f(AT, np.asarray(inside[0], dtype))  # it can be called again


def test_a_nan_that_is_none_of_an_index():
    f = jaxify([X, K], X[K], loops="xla")
    for _ in range(2):
        np.testing.assert_array_equal(f(np.array([1.0, np.nan]), [1, 0]), [np.nan, 1.0])
    g = jaxify([X, K], X.astype("int64")[K], loops="xla")
    least = np.array([np.iinfo(np.int64).min], "float64")
    assert g(least, [0]) == np.iinfo(np.int64).min


def test_under_a_transformation_it_is_nan():
    f = jaxify([X, POSITION], X[POSITION], loops="xla")
    assert np.isnan(jax.jit(f)(AT, 5))
    assert np.isnan(jax.vmap(f, (None, 0))(AT, np.array([1, 5]))[1])
    assert np.isnan(jaxify([X, POSITION], X[POSITION], loops="xla", checks="ignore")(AT, 5))


def test_what_is_known_costs_nothing():
    """No flag is returned where every index is in range: of the steps of a loop, or of a remainder."""
    for index in (POSITION % 3, pt.clip(POSITION, 0, 2)):
        f = jaxify([X, POSITION], pt.specify_shape(X, 3)[index], loops="xla")
        f(AT, 1)
        assert not f._execution.contexts[False, True].open_indices
    f = jaxify([X], scan(lambda c, i: (c + X[i], None), 0.0, pt.arange(X.shape[0]))[0], loops="xla")
    f(AT)
    assert not f._execution.contexts[False, True].open_indices


def test_shared_values_and_names():
    import pytensor

    data = pytensor.shared(AT, name="data")
    f = jaxify([POSITION], data[POSITION], loops="xla")
    assert f(1) == 1.0
    with pytest.raises(IndexError, match=r"'data' of shape \(3,\).*test_index_errors.py"):
        f(3)
