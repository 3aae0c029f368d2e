"""Traced indices that do not fit 32 bits, in JAX's operations: no number comes back."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax

X = np.arange(1.0, 6.0)
N = len(X)


def _reads_and_writes(x, i):
    return [
        x[i],
        x[pt.stack([i, i])].sum(),
        pt.set_subtensor(x[i], 9.0).sum(),
        pt.inc_subtensor(x[i], 9.0).sum(),
    ]


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32", "uint8"])
def test_integers_of_every_width(dtype):
    x, i = pt.dvector("x"), pt.scalar("i", dtype=dtype)
    f = jax.jit(loopax.jaxify([x, i], _reads_and_writes(x, i), loops="xla"))
    bits = np.iinfo(dtype)
    near = [-N - 1, -N, -1, 0, N - 1, N, 2**31, 2**32, 2**32 + 1, 2**62, 2**63 + 1, 2**64 - 1]
    for k in {k for k in (*near, int(bits.min), int(bits.max)) if bits.min <= k <= bits.max}:
        got = np.array(f(X, np.array(k, dtype)))
        if -N <= k < N:
            np.testing.assert_allclose(
                got, [X[k], 2 * X[k], X.sum() - X[k] + 9.0, X.sum() + 9.0], err_msg=str(k)
            )
        else:
            assert np.isnan(got).all(), k


def test_slices_between_traced_bounds():
    x, i = pt.dvector("x"), pt.lscalar("i")
    f = jax.jit(loopax.jaxify([x, i], x[i : i + 3].sum(), loops="xla"))
    for k in (-5, 0, 2, 5, 2**32, 2**62, 2**63 - 1, -(2**63)):
        assert f(X, k) == X[k : k + 3].sum(), k


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63), 2**62])
def test_steps_longer_than_the_axis(step):
    x, i = pt.dvector("x"), pt.lscalar("i")
    assert loopax.jaxify([x, i], x[::i].sum(), loops="xla")(X, step) == X[::step].sum()


def test_negative_counts_are_refused():
    x, n = pt.dvector("x"), pt.lvector("n")
    f = loopax.jaxify([x, n], pt.repeat(x, n).sum(), loops="xla")
    with pytest.raises(ValueError, match="negative"):
        f(X, np.array([1, 1, -1, 1, 1]))


def test_counters_of_loops_are_not_clipped():
    x = pt.dvector("x")
    total = pytensor.scan(
        lambda k, c, x: pt.sin(c) + x[k],
        sequences=[pt.arange(x.shape[0])],
        outputs_info=[pt.constant(np.float64(0.0))],
        non_sequences=[x],
        return_updates=False,
    )[-1]
    text = str(jax.make_jaxpr(loopax.jaxify([x], total, loops="xla"))(X))
    assert "= max" not in text
    assert "= min" not in text
