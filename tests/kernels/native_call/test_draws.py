"""Loops with keys of JAX's in their carry: native under ``jax.jit``, with the draws of JAX's operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from jax.experimental import checkify
from pytensor.raise_op import Assert
from pytensor.tensor.random.type import random_generator_type

import loopax
from loopax import jaxify
from loopax.ir.ops.threefry import Threefry, threefry
from tests.support.marking import slow_where

KEY = jax.random.key(5)
rng, y, s = random_generator_type("rng"), pt.dvector("y"), pt.dscalar("s")
Y = np.sin(np.arange(12.0))


def drawn(name, *params, rng, **options):
    return getattr(pt.random, name)(*params, rng=rng, return_next_rng=True, **options)


def in_both(inputs, outputs):
    return [jaxify(inputs, outputs, loops=form) for form in ("native", "xla")]


def is_native(f):
    """Whether each loop of what ``f`` has run so far is native code."""
    said = [line for line in f.remarks if "steps, one by one" not in line]
    return bool(said) and all(": native, about" in line for line in said)


def numbers(x):
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)


# -- every sampler that is claimed -----------------------------------------------------------------------

P = np.array([0.2, 0.3, 0.5])
EXACT = {  # to the bit
    "uniform": (0.0, 1.0),
    "integers": (0, 10),
    "bernoulli": (0.3,),
    "categorical": (P,),
    "permutation": (np.arange(5.0),),
    "poisson": (3.0,),
    "binomial": (10, 0.3),
    "geometric": (0.3,),
    "multinomial": (5, P),
    "negative_binomial": (4, 0.5),
}
ROUNDED = {  # to the last digits: the C library's functions are not XLA's
    "normal": (0.5, 2.0),
    "halfnormal": (0.0, 1.0),
    "lognormal": (0.0, 1.0),
    "exponential": (2.0,),
    "cauchy": (0.0, 1.0),
    "halfcauchy": (0.0, 1.0),
    "laplace": (0.0, 1.0),
    "gumbel": (0.0, 1.0),
    "logistic": (0.0, 1.0),
    "weibull": (2.0,),
    "pareto": (3.0, 1.0),
    "triangular": (0.0, 0.5, 1.0),
    "wald": (1.0, 2.0),
    "beta": (2.0, 3.0),
    "dirichlet": (P,),
    "invgamma": (3.0, 1.0),
    "chisquare": (3.0,),
    "t": (3.0, 0.0, 1.0),
}
SLOW = {"poisson", "binomial", "multinomial", "negative_binomial", "wald", "dirichlet", "t"}


def walk(name, params, size=None):
    """A loop that draws in each step, and what it draws."""

    def step(rng, _):
        rng, draw = drawn(name, *params, rng=rng, size=size)
        return rng, draw

    after, draws = loopax.scan(step, rng, length=40)
    return [draws, after]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", slow_where(SLOW.__contains__, [*EXACT, *ROUNDED]))
def test_draws_are_those_of_jax(name):
    params = (EXACT | ROUNDED)[name]
    native, xla = in_both([rng], walk(name, params))
    (actual, after), (wanted, after_xla) = (jax.jit(f)(KEY) for f in (native, xla))
    assert is_native(native), native.remarks
    assert actual.dtype == wanted.dtype
    np.testing.assert_array_equal(numbers(after), numbers(after_xla))
    if name in EXACT:
        np.testing.assert_array_equal(actual, wanted)
    else:
        np.testing.assert_allclose(actual, wanted, rtol=1e-11, atol=1e-13)
    assert len(np.unique(np.asarray(actual).reshape(40, -1), axis=0)) > 1


def test_a_uniform_draw_that_is_scaled_is_rounded_once_or_twice():
    native, xla = in_both([rng], walk("uniform", (-1.0, 2.0)))
    np.testing.assert_allclose(*(jax.jit(f)(KEY)[0] for f in (native, xla)), rtol=1e-13)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(3,), (40,), (2, 3)])
@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_arrays_of_draws(name, size):
    native, xla = in_both([rng], walk(name, (0.0, 1.0), size))
    (actual, _), (wanted, _) = (jax.jit(f)(KEY) for f in (native, xla))
    assert is_native(native) and actual.shape == (40, *size)
    np.testing.assert_allclose(actual, wanted, rtol=0 if name == "uniform" else 1e-12)


def test_in_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        native, xla = in_both([rng], walk("normal", (np.float32(0), np.float32(1))))
    (actual, _), (wanted, _) = (jax.jit(f)(KEY) for f in (native, xla))
    assert is_native(native) and actual.dtype == "float32"
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_bits_of_a_function_of_jax():
    def bits(key):
        def step(key, _):
            key, k = jax.random.split(key)
            folded = jax.random.fold_in(k, 7)
            rows = [jax.random.bits(k, (3,), d) for d in ("uint8", "uint16", "uint32", "uint64")]
            rows += [jax.random.randint(folded, (4,), -5, 17), jax.random.uniform(folded, (3,))]
            return key, rows

        return jax.lax.scan(step, key, None, length=20)

    actual = loopax.native(bits, loops="native")
    for a, b in zip(jax.tree.leaves(actual(KEY)), jax.tree.leaves(bits(KEY)), strict=True):
        np.testing.assert_array_equal(numbers(a), numbers(b))
    assert all("native" in line for line in actual.remarks)


def test_the_cipher():
    """The vectors that Random123 is published with."""
    vectors = [
        ((0, 0, 0, 0), 0x99BA4EFE6B200159),
        ((2**32 - 1,) * 4, 0xBB002BE71CB996FC),
        ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), 0x483DF7A0C4923A9C),
    ]
    words = [np.array(column, "uint32") for column in zip(*(v for v, _ in vectors), strict=True)]
    inputs = [pt.vector(dtype="uint32") for _ in range(4)]
    native = jaxify(inputs, threefry(*inputs), backend="numba")
    wanted = np.array([w for _, w in vectors], "uint64")
    np.testing.assert_array_equal(native(*words), wanted)
    assert [Threefry(name="t").impl(*v) for v, _ in vectors] == wanted.tolist()


# -- programs ------------------------------------------------------------------------------------------


def gibbs():
    """Two normal blocks, given each other, and a rate."""

    def step(carry, _):
        a, b, rng = carry
        rng, z = drawn("normal", 0.0, 1.0, rng=rng)
        a = 0.5 * b + z * s
        rng, z = drawn("normal", 0.0, 1.0, rng=rng)
        b = 0.5 * a + z * s
        rng, u = drawn("gamma", 2.0 + a**2, rng=rng, scale=1.0)
        return (a, b + 0.01 * u, rng), [a, b]

    (_, _, after), rows = loopax.scan(step, (0.0, 0.0, rng), length=30)
    return [*rows, after]


def particle_filter(n=16):
    """The log-likelihood of ``y``, by systematic resampling."""

    def step(carry, seen):
        x, rng, total = carry
        rng, noise = drawn("normal", 0.0, 1.0, rng=rng, size=(n,))
        x = 0.9 * x + s * noise
        weight = -0.5 * (seen - x) ** 2
        largest = weight.max()
        weight = pt.exp(weight - largest)
        rng, u = drawn("uniform", 0.0, 1.0, rng=rng)
        chosen = pt.searchsorted(pt.cumsum(weight) / weight.sum(), (pt.arange(n) + u) / n)
        return (x[pt.minimum(chosen, n - 1)], rng, total + largest + pt.log(weight.mean())), None

    (x, after, total), _ = loopax.scan(step, (pt.zeros(n), rng, 0.0), y)
    return [total, x, after]


@pytest.mark.slow
@pytest.mark.parametrize("transformed", [jax.jit, lambda f: f], ids=["jit", "direct"])
def test_a_gibbs_sampler(transformed):
    native, xla = in_both([rng, s], gibbs())
    actual, wanted = (transformed(f)(KEY, 0.7) for f in (native, xla))
    assert is_native(native)
    for a, b in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_particle_filter_with_its_derivatives_and_batches():
    native, xla = in_both([rng, y, s], particle_filter())
    actual, wanted = (jax.jit(f)(KEY, Y, 0.7) for f in (native, xla))
    assert is_native(native)
    for a, b in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=1e-10, atol=1e-12)
    of_s = [jax.jit(jax.grad(lambda v, f=f: f(KEY, Y, v)[0])) for f in (native, xla)]
    np.testing.assert_allclose(*(g(0.7) for g in of_s), rtol=1e-8)
    forward = [jax.jit(jax.jacfwd(lambda v, f=f: f(KEY, Y, v)[1])) for f in (native, xla)]
    np.testing.assert_allclose(*(g(0.7) for g in forward), rtol=1e-8, atol=1e-12)
    keys = jax.random.split(KEY, 3)
    rows = [jax.jit(jax.vmap(lambda k, f=f: f(k, Y, 0.7)[0]))(keys) for f in (native, xla)]
    np.testing.assert_allclose(*rows, rtol=1e-10)


def test_a_shared_generator_and_its_updates():
    shared = pytensor.shared(np.random.default_rng(1), name="shared")

    def step(rng, _):
        return drawn("normal", 0.0, 1.0, rng=rng)

    after, draws = loopax.scan(step, shared, length=5)
    runs = [
        jaxify([], draws, updates={shared: after}, loops=form).stateful()
        for form in ("native", "xla")
    ]
    for _ in range(2):
        np.testing.assert_allclose(*(run() for run in runs), rtol=1e-12)


def checked_draws():
    def step(rng, _):
        rng, z = drawn("normal", 0.0, 1.0, rng=rng)
        return rng, Assert("no draw below s")(z, z > s)

    return loopax.scan(step, rng, length=5)[1]


def test_a_check_beside_draws_raises_in_a_direct_call():
    native, xla = in_both([rng, s], checked_draws())
    np.testing.assert_allclose(native(KEY, -9.0), xla(KEY, -9.0), rtol=1e-12)
    with pytest.raises(AssertionError, match="no draw below s"):
        native(KEY, 9.0)
    assert is_native(native)


@pytest.mark.filterwarnings("ignore:The assertion")
@pytest.mark.parametrize("of_rows", [False, True], ids=["one", "rows"])
def test_a_check_beside_draws_under_checkify(of_rows):
    native, _ = in_both([rng, s], checked_draws())
    f = jax.vmap(native, (0, None)) if of_rows else native
    key = jax.random.split(KEY, 3) if of_rows else KEY
    checked = jax.jit(checkify.checkify(f))
    error, draws = checked(key, -9.0)
    assert error.get() is None
    np.testing.assert_array_equal(draws, jax.jit(f)(key, 9.0))  # without checkify it is skipped
    error, _ = checked(key, 9.0)
    assert "no draw below s" in error.get()
    assert is_native(native)


def test_draws_beside_a_check_that_calls_the_host_are_jax_s():
    f = jaxify([rng, s], checked_draws(), loops="native", checks="raise")
    f(KEY, -9.0)
    with pytest.raises(AssertionError, match="no draw below s"):
        f(KEY, 9.0)
    assert any("errors of the host" in line for line in f.remarks)


def test_without_a_loop_it_is_jax_s():
    (native, xla) = in_both([rng], drawn("normal", 0.0, 1.0, rng=rng)[1])
    assert native(KEY) == xla(KEY)
    assert any("there is no loop" in line for line in native.remarks)
