"""A little of everything, in every form: what runs on the lowest versions of all that loopax needs, too.

Each test goes through another part of what loopax takes from PyTensor, JAX and Numba. Beside pytest it
needs nothing that loopax does not need.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scan.utils import until

import loopax

pytestmark = pytest.mark.both_stacks

FORMS = {"xla": {"loops": "xla"}, "native": {"loops": "native"}, "numba": {"backend": "numba"}}
X, S = np.array([0.5, -1.0, 2.0, 0.3]), np.array([[2.0, 0.3], [0.3, 1.0]])
x, s, k = pt.dvector("x"), pt.dmatrix("s"), pt.lscalar("k")


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def recurrence():
    return loopax.scan(lambda c, r: (pt.tanh(0.5 * c + r), c), pt.zeros(()), x)[0]


def by_numpy(x):
    state, slope = 0.0, np.zeros_like(x)
    for t, row in enumerate(x):
        state = np.tanh(0.5 * state + row)
        slope[:t] *= 0.5
        slope[t] = 1
        slope[: t + 1] *= 1 - state**2
    return state, slope


@pytest.mark.sampled(2)
def test_a_loop_and_its_gradient(form):
    final = recurrence()
    f = loopax.jaxify([x], [final, pytensor.grad(final, x)], **form)
    for actual, expected in zip(f(X), by_numpy(X), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    g = loopax.value_and_grad(loopax.jaxify([x], final, **form))
    for actual, expected in zip(g(X), by_numpy(X), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_transformations_of_jax(loops):
    f = loopax.jaxify([x], recurrence(), loops=loops)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(X), by_numpy(X)[1], rtol=1e-12)
    hessian = jax.hessian(f)(X)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    d = 1e-5 * np.eye(4)
    slopes = [(by_numpy(X + e)[1] - by_numpy(X - e)[1]) / 2e-5 for e in d]
    np.testing.assert_allclose(hessian, slopes, atol=1e-8)
    rows = jnp.stack([X, -X])
    np.testing.assert_allclose(jax.vmap(f)(rows), [by_numpy(r)[0] for r in rows], rtol=1e-12)


def test_pytensors_own_scan(form):
    ys = pytensor.scan(
        lambda r, a, b: a + 0.5 * b * r,
        sequences=[x],
        outputs_info=[{"initial": pt.as_tensor([1.0, 2.0]), "taps": [-1, -2]}],
        return_updates=False,
    )
    expected = [1.0, 2.0]
    for r in X:
        expected.append(expected[-1] + 0.5 * expected[-2] * r)
    actual, slope = loopax.jaxify([x], [ys, pytensor.grad(ys[-1], x)], **form)(X)
    np.testing.assert_allclose(actual, expected[2:], rtol=1e-12)
    assert slope.shape == X.shape


@pytest.mark.sampled(1)
def test_the_gradient_through_a_loop_that_stops(form):
    """PyTensor's graph, whose rewrites do not end in PyTensor 3.0.0."""
    ys = pytensor.scan(
        lambda r, c: (pt.sin(c) + r**2, until(c + r > 2.0)),
        sequences=x,
        outputs_info=x[0],
        return_updates=False,
    )
    outputs = [ys, pytensor.grad(ys[-1] ** 2, x)]
    expected = pytensor.function([x], outputs, mode="FAST_COMPILE")(X)
    for actual, value in zip(loopax.jaxify([x], outputs, **form)(X), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-9)


def test_linear_algebra_in_a_loop(form):
    def step(c, r):
        chol = pt.linalg.cholesky(c + r**2 * pt.eye(2))
        return chol @ pt.linalg.solve(c + pt.eye(2), chol.T), pt.log(pt.linalg.det(c))

    final, ys = loopax.scan(step, s, x)
    c, dets = S, []
    for r in X:
        dets.append(np.log(np.linalg.det(c)))
        chol = np.linalg.cholesky(c + r**2 * np.eye(2))
        c = chol @ np.linalg.solve(c + np.eye(2), chol.T)
    actual = loopax.jaxify([s, x], [final, ys], **form)(S, X)
    np.testing.assert_allclose(actual[0], c, rtol=1e-9)
    np.testing.assert_allclose(actual[1], dets, rtol=1e-9, atol=1e-14)


@pytest.mark.sampled(2)
def test_branches_indices_and_loops_that_stop(form):
    root = loopax.while_loop(
        lambda c: abs(c**2 - 2) > 1e-12, lambda c: (c + 2 / c) / 2, 1.0, max_steps=50
    )
    chosen = loopax.cond(k > 0, lambda: pt.sort(x)[k], lambda: x.sum())
    counted = pt.set_subtensor(pt.zeros((4,))[k:], 2.0) + pt.cumsum(x) + pt.arange(4)
    f = loopax.jaxify([x, k], [root, chosen, counted], **form)
    for at in (0, 2):
        root, chosen, counted = f(X, at)
        np.testing.assert_allclose(root, np.sqrt(2), rtol=1e-12)
        np.testing.assert_allclose(chosen, np.sort(X)[at] if at else X.sum())
        np.testing.assert_allclose(counted, 2.0 * (np.arange(4) >= at) + X.cumsum() + np.arange(4))


def test_draws():
    rng = pt.random.type.random_generator_type("rng")
    _, draws = pt.random.normal(3.0, 1e-3, size=(100,), rng=rng, return_next_rng=True)
    f = loopax.jaxify([rng], draws)
    np.testing.assert_allclose(f(jax.random.key(1)), 3, atol=0.01)


def test_modes_of_pytensor():
    for mode in ("LOOPAX", "LOOPAX_NUMBA"):
        f = pytensor.function([x], recurrence(), mode=mode)
        np.testing.assert_allclose(f(X), by_numpy(X)[0], rtol=1e-12)


def test_a_function_of_jax_in_a_program():
    f = loopax.jaxify([x], loopax.from_jax(jnp.sinc)(x).sum(), loops="xla")
    np.testing.assert_allclose(f(X), np.sinc(X).sum(), rtol=1e-12)


def test_loops_of_a_function_of_jax():
    def smoothed(level, xs):
        return jax.lax.scan(lambda c, x: (0.5 * c + jnp.sin(x), None), level, xs)[0]

    f = loopax.native(smoothed, loops="native", checks="nan")
    for transform in (lambda f: f, jax.grad):
        np.testing.assert_allclose(transform(f)(0.3, X), transform(smoothed)(0.3, X), rtol=1e-12)
    assert loopax.explain(f).are_native


def test_lengths_that_are_symbols():
    """`jax.export` with an axis of any length."""
    pytest.importorskip("flatbuffers")
    f = loopax.jaxify([x], [x[::-1] * 2, recurrence()], loops="xla")
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(f))(jax.ShapeDtypeStruct((n,), "float64"))
    reversed_, final = jax.export.deserialize(exported.serialize()).call(X)
    np.testing.assert_allclose(reversed_, X[::-1] * 2)
    np.testing.assert_allclose(final, by_numpy(X)[0], rtol=1e-12)


def test_what_the_passes_did():
    assert "scan" in str(loopax.explain(loopax.jaxify([x], recurrence()))).lower()
