"""Where NumPy refuses lengths or an index, also of no rows: an error, and NaN under a transformation."""

import warnings

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from loopax import jaxify

X, Y, K = pt.dvector("x"), pt.dvector("y"), pt.lscalar("k")
A, C = X[X > 3], Y[Y > 0]


def in_loop(step, **options):
    return pytensor.scan(step, return_updates=False, **options)


REFUSED = {
    "set": pt.set_subtensor(A[K], 1.0).sum(),
    "increment": pt.inc_subtensor(A[K], 1.0).sum(),
    "product": pt.inc_subtensor(A[K], 1.0).prod(),
    "index arrays": pt.inc_subtensor(A[pt.stack([K, K])], 1.0).sum(),
    "declared": pt.specify_shape(A, (K,)).sum(),
    "reshaped": pt.stack([A, A]).reshape((C.shape[0], 2)).sum(),
    "sum": (A + C).sum(),
    "known length": (A + Y).sum(),
    "dot": pt.dot(A, C),
    "stacked": pt.stack([A, C]).sum(),
    "split": sum(part.sum() for part in pt.split(A, [K, C.shape[0]], n_splits=2)),
    "steps": in_loop(lambda u: u, sequences=[A], n_steps=K).sum(),
    "in a step": in_loop(
        lambda i, x, y: x[x > 3] + y, sequences=[pt.arange(2)], non_sequences=[X, C]
    ).sum(),
}
XS = [[1.0, 2.0, 0.5], [1.0, 2.0, 3.5], [1.0, 5.0, 6.0]]
YS = [[], [1.0, 2.0], [-1.0, -2.0]]
# JAX knows that the result is empty, and an empty array has no element to mark.
EMPTY = {("reshaped", 0)}


def outcome(f, values):
    """The value of a call, or None where it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(f(*values))
    except Exception:
        return None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses(name):
    inputs, out = [X, Y, K], REFUSED[name]
    plain = pytensor.function(inputs, out, mode=Mode("py", None), on_unused_input="ignore")
    direct, native = jaxify(inputs, out, loops="xla"), jaxify(inputs, out, backend="numba")
    traced = jax.jit(direct)
    refusals = 0
    for x in XS:
        for y in YS:
            for k in (0, -1, 3):
                values = np.array(x), np.array(y), k
                expected = outcome(plain, values)
                if expected is not None:
                    for f in (traced, direct, native):
                        np.testing.assert_allclose(f(*values), expected)
                    continue
                refusals += 1
                assert outcome(direct, values) is None, values
                assert outcome(native, values) is None, values
                if (name, len(y)) not in EMPTY:
                    marked = outcome(traced, values)
                    assert marked is None or np.isnan(marked).all(), values
    assert refusals


def test_rows_of_unequal_lengths_are_refused_where_only_their_sum_is_read():
    rows = in_loop(lambda i, x: x[x > i], sequences=[pt.arange(3) + 3], non_sequences=[X])
    for out in (rows.sum(), (rows**2).sum(axis=1)):
        native, direct = jaxify([X], out, backend="numba"), jaxify([X], out, loops="xla")
        np.testing.assert_allclose(native([1.0, 7.0]), direct([1.0, 7.0]))
        for f in (native, direct):
            assert outcome(f, ([1.0, 2.0, 5.0, 6.0],)) is None
        assert np.isnan(jax.jit(direct)(np.array([1.0, 2.0, 5.0, 6.0]))).all()
