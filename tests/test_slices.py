"""Every slice of short vectors, as NumPy clips it: read, reduced, written, differentiated."""

import itertools

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from tests.numba_backend.interpreted import interpreted, lowered

BOUNDS = (None, -6, -4, -1, 0, 1, 2, 5)
STEPS = (None, 1, 2, 3, -1, -2, -4)
SLICES = [slice(*e) for e in itertools.product(BOUNDS, BOUNDS, STEPS)]


def compiled(inputs, outputs):
    return jax.jit(jaxify(inputs, outputs))


def native(inputs, outputs):
    return interpreted(lowered(inputs, outputs))


# PyTensor and XLA take minutes for the thousands of the whole set at once: the first, and how many apart.
SOME = [(compiled, 0, 71), (native, 0, 37)]
ALL = [
    pytest.param(run, k, 12, marks=pytest.mark.slow)
    for run in (compiled, native)
    for k in range(12)
]


def same(actual, expected, what):
    for a, e, w in zip(actual, expected, what, strict=True):
        np.testing.assert_allclose(np.asarray(a), e, rtol=1e-12, strict=True, err_msg=str(w))


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("backend", "first", "every"), SOME + ALL)
def test_constant_slices(backend, first, every, known):
    """Vectors of each length, of which PyTensor knows the length or not."""
    vectors = [pt.tensor(f"v{n}", shape=(n if known else None,)) for n in range(5)]
    values = [np.arange(1.0, n + 1) for n in range(5)]
    outputs, expected, what = [], [], []
    cases = list(itertools.product(range(5), SLICES))
    for n, s in cases[first::every]:
        v, x = vectors[n], values[n]
        ones, twos = np.zeros(n), x.copy()
        ones[s], twos[s] = 1.0, 2.0
        outputs += [v[s], v[s].sum(), (v[s] ** 2).sum(), pt.grad((v[s] ** 2).sum(), v)]
        expected += [x[s], x[s].sum(), (x[s] ** 2).sum(), 2 * ones * x]
        outputs += [pt.set_subtensor(v[s], 2.0), pt.inc_subtensor(v[s], v[s] + 1.0)]
        expected += [twos, x + ones * (x + 1.0)]
        what += [(n, s)] * 6
    same(backend(vectors, outputs)(*values), expected, what)


@pytest.mark.parametrize(("backend", "first", "every"), SOME + ALL)
def test_slices_of_rows_that_are_reduced(backend, first, every):
    m = pt.tensor("m", shape=(3, 2))
    x = np.arange(6.0).reshape(3, 2)
    slices = SLICES[first::every]
    outputs = [m[-1, s].sum() for s in slices] + [m[s, 1].prod() for s in slices]
    outputs += [m[s].sum(axis=0) for s in slices]
    expected = [x[-1, s].sum() for s in slices] + [x[s, 1].prod() for s in slices]
    expected += [x[s].sum(axis=0) for s in slices]
    same(backend([m], outputs)(x), expected, slices * 3)


def test_bounds_that_are_inputs():
    """In native code; in JAX a bound makes a shape, and is static."""
    v, (a, b, c) = pt.dvector("v"), pt.lscalars("a", "b", "c")
    outputs = [
        v[a:b:c],
        v[a:b:c].sum(),
        pt.grad((v[a:b:c] ** 2).sum(), v),
        pt.inc_subtensor(v[a:b:c], 1.0),
    ]
    outputs += [v[a:], v[:b], v[a:b], v[::c], v[a::c], v[:b:c], pt.set_subtensor(v[a:b], 7.0)]
    run = native([v, a, b, c], outputs)
    for n, (i, j, k) in itertools.product(
        range(5), itertools.product((-6, -4, -1, 0, 2, 5), (-6, -2, 0, 1, 4), (1, 2, -1, -3))
    ):
        x = np.arange(1.0, n + 1)
        ones, sevens = np.zeros(n), x.copy()
        ones[i:j:k], sevens[i:j] = 1.0, 7.0
        expected = [x[i:j:k], x[i:j:k].sum(), 2 * ones * x, x + ones]
        expected += [x[i:], x[:j], x[i:j], x[::k], x[i::k], x[:j:k], sevens]
        same(run(x, i, j, k), expected, [(n, i, j, k)] * len(expected))


def test_bounds_that_are_inputs_in_jax():
    v, (a, b, c) = pt.dvector("v"), pt.lscalars("a", "b", "c")
    outputs = [v[a:b:c], v[a:b:c].sum(), pt.inc_subtensor(v[a:b:c], 1.0)]
    f, x = jaxify([v, a, b, c], outputs), np.arange(1.0, 3.0)
    for s in [(5, 0, -3), (4, -2, -1), (-6, 1, 1), (1, 5, 2), (0, 0, 1)]:
        ones = np.zeros(2)
        ones[slice(*s)] = 1.0
        same(f(x, *s), [x[slice(*s)], x[slice(*s)].sum(), x + ones], [s] * 3)


@pytest.mark.slow
def test_complex_slices():
    c, z = pt.zvector("c"), pt.zscalar("z")
    x = np.arange(1.0, 5.0) + 1j
    outputs = [c[3:-5:-2], pt.set_subtensor(c[1:], c[:-1]), pt.inc_subtensor(c[::2], z)]
    outputs += [pt.set_subtensor(c[-2:], z), pt.inc_subtensor(c[1], 1.0), c[5:0:-3].sum()]
    outputs += [pt.set_subtensor(c[:2], [1.0, 2.0])]
    expected = [x[3:-5:-2], np.r_[x[0], x[:3]], x + [2j, 0, 2j, 0], np.r_[x[:2], 2j, 2j]]
    expected += [x + [0, 1, 0, 0], x[5:0:-3].sum(), np.r_[1.0, 2.0, x[2:]]]
    for run in (jaxify([c, z], outputs), jaxify([c, z], outputs, backend="numba")):
        same(run(x, 2j), expected, outputs)
