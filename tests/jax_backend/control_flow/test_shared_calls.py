"""Calls that come more than once are one function of JAX: traced once, derived and batched once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import loopax
from loopax import jaxify

x, a = pt.dvector("x"), pt.dvector("a")
X, A = np.array([0.3, -0.2, 1.1, 0.7]), np.array([0.5, 0.2, -0.4])
# JAX 0.12 calls the primitive of a jitted function `jit`, 0.10 `pjit`.
CALLS = {"jit", "pjit"}


def smoothed(*more):
    """A function with a loop in it, of a vector and a number."""
    r, k = pt.dvector("r"), pt.dscalar("k")
    s = pytensor.scan(lambda y, s: k * pt.tanh(s) + y, r, pt.zeros(()), return_updates=False)
    return OpFromGraph([r, k], [s, s[-1], *(f(s) for f in more)], name="smoothed")


def chained(op, n=3):
    row, total = x, 0.0
    for k in range(n):
        row, last = op(row, a[k])[:2]
        total = total + (k + 1) * pt.sin(last)
    return total + row.sum()


def by_hand(x, a):
    def step(k):
        def run(s, y):
            s = k * jnp.tanh(s) + y
            return s, s

        return run

    total = 0.0
    for k in range(3):
        last, x = jax.lax.scan(step(a[k]), 0.0, x)
        total = total + (k + 1) * jnp.sin(last)
    return total + x.sum()


def equations(jaxpr, name):
    """The equations of functions of this name, in all that a jaxpr holds."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in CALLS and eqn.params["name"] == name:
            yield eqn
        for inner in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner, name)


def functions(f, *args, name="smoothed"):
    """How many calls there are, and of how many functions."""
    actual = list(equations(jax.make_jaxpr(f)(*args).jaxpr, name))
    return len(actual), len({id(eqn.params["jaxpr"]) for eqn in actual})


def in_jax(outputs, inputs=(x, a), **options):
    return jaxify(list(inputs), outputs, loops="xla", **options)


def test_instances_are_one_function():
    assert functions(in_jax(chained(smoothed())), X, A) == (3, 1)


ROWS = np.stack([X, 2 * X])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "transform, args",
    [
        (lambda f: f, (X, A)),
        (jax.jit, (X, A)),
        (lambda f: jax.grad(f, argnums=(0, 1)), (X, A)),
        (lambda f: jax.jacfwd(f, argnums=1), (X, A)),
        (jax.hessian, (X, A)),
        (lambda f: jax.vmap(f, (0, None)), (ROWS, A)),
        (lambda f: jax.vmap(jax.grad(f, argnums=1), (0, None)), (ROWS, A)),
    ],
    ids=["value", "jit", "grad", "jacfwd", "hessian", "vmap", "vmap grad"],
)
def test_values_and_derivatives(transform, args):
    actual = transform(in_jax(chained(smoothed())))(*args)
    wanted = transform(by_hand)(*args)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10), actual, wanted)


@pytest.mark.slow
def test_the_gradient_has_one_function_for_each_way():
    """One for the way forward and one for the way back, whatever the number of calls."""
    _, few = functions(jax.grad(in_jax(chained(smoothed()))), X, A)
    calls, many = functions(jax.grad(in_jax(chained(smoothed(), 12))), X, np.resize(A, 12))
    assert calls >= 24 and many == few


@pytest.mark.slow
@pytest.mark.parametrize("loops", ["auto", "native"])
def test_native_code_opens_them(loops):
    f = jaxify([x, a], chained(smoothed()), loops=loops)
    np.testing.assert_allclose(f(X, A), by_hand(X, A), rtol=1e-13)
    actual, wanted = jax.grad(f, argnums=(0, 1))(X, A), jax.grad(by_hand, argnums=(0, 1))(X, A)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10), actual, wanted)


def test_one_instance_drops_what_it_does_not_read():
    op = smoothed(pt.exp)
    y, z = op(x, a[0]), op(x + 1, a[1])
    f = in_jax([y[2].sum() + z[1]])
    text = jax.jit(f).lower(X, A).as_text()
    assert text.count("func.func private @smoothed") == 2  # with and without the exponentials
    expected = pytensor.function([x, a], y[2].sum() + z[1], mode="CVM")(X, A)
    np.testing.assert_allclose(f(X, A)[0], expected, rtol=1e-13)


def test_calls_of_other_shapes_and_dtypes_and_empty_ones():
    op = smoothed()
    total = op(x, a[0])[1] + op(x[1:], a[1])[1] + op(x[:1], 2.0)[1] + op(pt.zeros(3), a[2])[1]
    f = in_jax(total)
    expected = pytensor.function([x, a], total, mode="CVM")(X, A)
    np.testing.assert_allclose(f(X, A), expected, rtol=1e-13)
    sums = in_jax(op(x, a[0])[0].sum() + op(x[:0], a[1])[0].sum())
    np.testing.assert_allclose(
        sums(X, A), pytensor.function([x, a], op(x, a[0])[0].sum(), mode="CVM")(X, A), rtol=1e-13
    )
    assert functions(sums, X, A) in {
        (2, 2),
        (1, 1),
    }  # a call for each shape; an empty one may be folded


def test_a_length_that_hangs_on_a_value_is_found_where_the_call_is():
    n, r = pt.lscalar("n"), pt.dvector("r")
    s = pytensor.scan(lambda s: s / 2 + 1, None, r[0], n_steps=n, return_updates=False)
    op = OpFromGraph([n, r], [s])
    k, m = pt.lscalar("k"), pt.lscalar("m")
    f = in_jax([op(k, x)[-1] + op(m, x + 1)[-1]], (k, m, x))
    expected = pytensor.function([k, m, x], op(k, x)[-1] + op(m, x + 1)[-1], mode="CVM")
    for lengths in ((2, 5), (3, 3), (5, 1)):
        np.testing.assert_allclose(f(*lengths, X)[0], expected(*lengths, X), rtol=1e-13)


def test_what_is_known_of_one_call_is_not_believed_of_the_next():
    """An index in range at the first call may be out of range at the second."""
    r, k = pt.dvector("r"), pt.lscalar("k")
    s = pytensor.scan(lambda y, s: s + y, r, pt.zeros(()), return_updates=False)
    op = OpFromGraph([r, k], [s[k]])
    j = pt.lscalar("j")
    f = in_jax([op(x, j % 4), op(x, j)], (x, j))
    np.testing.assert_allclose(f(X, 3), [X.sum(), X.sum()], rtol=1e-14)
    with pytest.raises(IndexError):
        f(X, 7)


@pytest.mark.slow
def test_watched_values_and_nan_checks_see_inside():
    op = smoothed(lambda s: loopax.watch(s, "s"))
    f = in_jax(op(x, a[0])[2].sum() + op(x + 1, a[1])[2].sum())
    assert len(jax.tree.leaves(loopax.watched(f)(X, A)[1])) >= 2
    checked = in_jax(chained(smoothed(pt.log)), checks="nan")
    np.testing.assert_allclose(checked(X, A), by_hand(X, A), rtol=1e-13)
    with pytest.raises(loopax.NonFiniteError):
        checked(X * np.nan, A)


@pytest.mark.slow
def test_a_bound_that_is_known_around_a_call_serves_reverse_mode_in_it():
    """A number of steps that is traced, and the index of a loop around."""
    r, n = pt.dscalar("r"), pt.lscalar("n")
    s = pytensor.scan(lambda s, r: pt.sin(s) + r, None, r, [r], n_steps=n, return_updates=False)
    op = OpFromGraph([r, n], [s[-1]], name="steps")

    def step(k, total, y):
        return total + op(y, k + 1) * op(2 * y, k + 1)

    y = pt.dscalar("y")
    total = pytensor.scan(step, pt.arange(4), pt.zeros(()), [y], return_updates=False)[-1]
    f = in_jax(total, (y,))
    expected = pytensor.function([y], [total, pytensor.grad(total, y)], mode="CVM")(0.3)
    np.testing.assert_allclose(f(0.3), expected[0], rtol=1e-13)
    np.testing.assert_allclose(jax.grad(f)(0.3), expected[1], rtol=1e-10)


def test_each_context_has_functions_of_its_own():
    """In a direct call a check is a flag, under a transformation of the caller's it is checkify's."""
    r, k = pt.dvector("r"), pt.dscalar("k")
    s = pytensor.scan(lambda y, s: s + y, r, pt.zeros(()), return_updates=False)
    op = OpFromGraph([r, k], [s[pt.cast(k, "int64")]], name="chosen")
    f = in_jax([op(x, a[0]), op(x + 1, a[1])])
    at = np.array([1.0, 3.0, 0.0])
    expected = [X[:2].sum(), (X + 1).sum()]
    for run in (f, jax.jit(f), f, jax.jit(f)):
        np.testing.assert_allclose(run(X, at), expected, rtol=1e-14)
    with pytest.raises(IndexError):
        f(X, at + 1)
    assert np.isnan(jax.jit(f)(X, at + 1)[1])
