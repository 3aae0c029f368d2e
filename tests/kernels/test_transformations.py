"""A native program under JAX's transformations: the values of the form in JAX's operations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import loopax
from loopax import UnsupportedOpError, jaxify
from loopax.kernels import derivative_kernels
from tests.support.compare import equations, primitives

RTOL, ATOL = 1e-9, 1e-11


def volatility(p, x):
    """A likelihood by a loop: a number."""

    def step(h, r):
        h = p[0] + p[1] * r**2 + p[2] * h
        return h, pt.log(h) + r**2 / h

    _, terms = loopax.scan(step, pt.as_tensor(0.5), x)
    return -0.5 * terms.sum()


def filtered(p, x):
    """Arrays of several ranks, and whole numbers, by a loop over vectors."""

    def step(s, r):
        s = pt.tanh(p * s + r)
        return s, (s.sum(), s)

    last, (sums, states) = loopax.scan(step, pt.ones(3), x)
    return {"last": last, "sums": sums, "states": states, "n": (sums > 0).sum()}


def root(p, x):
    """A loop that stops at a value."""
    target = p[0] + x[0] ** 2 + 1.0
    step = lambda s: 0.5 * (s + target / s)  # noqa: E731
    return (
        loopax.while_loop(lambda s: abs(s**2 - target) > 1e-12, step, target, max_steps=40)
        * x.sum()
    )


def without_loop(p, x):
    return pt.exp(-((x[:, None] - p[None, :]) ** 2)).sum(), x.max() * p[1]


PROGRAMS = {f.__name__: f for f in (volatility, filtered, root, without_loop)}
P, X = np.array([0.3, 0.2, 0.5]), np.random.default_rng(1).normal(size=6)


@functools.cache
def both(name):
    """The program in native code, and in JAX's operations."""
    p, x = pt.dvector("p"), pt.dvector("x")
    outputs = PROGRAMS[name](p, x)
    return [jaxify([p, x], outputs, loops=loops) for loops in ("native", "xla")]


def check(name, transform, *args):
    native, xla = both(name)
    assert primitives(jax.make_jaxpr(native)(P, X))["loopax_kernel"] == 1
    got, right = (jax.jit(transform(f))(*args) for f in (native, xla))
    assert jax.tree.structure(got) == jax.tree.structure(right)
    for g, r in zip(jax.tree.leaves(got), jax.tree.leaves(right), strict=True):
        assert g.dtype == r.dtype and g.shape == r.shape
        np.testing.assert_allclose(g, r, rtol=RTOL, atol=ATOL)


def floats_of(f):
    """The float results, in one vector."""

    def flat(*args):
        leaves = [x for x in jax.tree.leaves(f(*args)) if jnp.issubdtype(x.dtype, jnp.floating)]
        return jnp.concatenate([jnp.ravel(x) for x in leaves])

    return flat


def total(f):
    return lambda *args: (floats_of(f)(*args) ** 2).sum()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    check(name, lambda f: f, P, X)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_value_and_gradient(name):
    check(name, lambda f: jax.value_and_grad(total(f), argnums=(0, 1)), P, X)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_mode(name):
    check(name, lambda f: jax.jacfwd(floats_of(f)), P, X)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["volatility", "filtered"])
def test_second_order(name):
    check(name, lambda f: jax.hessian(total(f)), P, X)
    hvp = lambda f: lambda p, x, v: jax.jvp(lambda q: jax.grad(total(f))(q, x), (p,), (v,))[1]  # noqa: E731
    check(name, hvp, P, X, P)


@pytest.mark.parametrize("name", ["volatility", "filtered"])
def test_jax_operations_run_each_loop_once(name):
    """They are traced once for all float outputs: XLA does not merge equal loops."""
    jaxpr = jax.make_jaxpr(both(name)[0])(P, X)
    (kernel,) = [e.params["kernel"] for e in equations(jaxpr) if "kernel" in e.params]
    if name == "volatility":
        kernel = derivative_kernels.with_gradient(kernel, (0, 1))
    results = kernel.shapes((P.shape, X.shape))
    cotangents = [jnp.ones(results[k]) for k in kernel.floats]
    pushed = jax.make_jaxpr(derivative_kernels.pushforward(kernel, (0, 1)).in_jax)(P, X, P, X)
    pulled = jax.make_jaxpr(derivative_kernels.pullback(kernel, (0, 1)).in_jax)(P, X, *cotangents)
    n_loops = {"volatility": (2, 4), "filtered": (1, 2)}  # value and derivative, forward and back
    assert (primitives(pushed)["scan"], primitives(pulled)["scan"]) == n_loops[name]


@pytest.mark.slow
def test_reverse_over_reverse():
    check("volatility", lambda f: jax.jacrev(jax.grad(f)), P, X)


@pytest.mark.slow
def test_third_order():
    check("volatility", lambda f: jax.jacfwd(jax.hessian(f)), P, X)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["filtered", "without_loop"])
@pytest.mark.parametrize("axes", [(0, None), (None, 1), (0, 0)])
def test_batches(name, axes):
    args = [
        x if axis is None else np.stack([x, x + 0.1], axis=axis)
        for x, axis in zip((P, X), axes, strict=True)
    ]
    check(name, lambda f: jax.vmap(f, in_axes=axes), *args)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["volatility", "filtered"])
def test_derivatives_of_batches_and_batches_of_derivatives(name):
    rows = np.stack([P, P + 0.1])
    check(name, lambda f: jax.vmap(jax.value_and_grad(total(f)), in_axes=(0, None)), rows, X)
    batched = lambda f: total(jax.vmap(floats_of(f), in_axes=(0, None)))  # noqa: E731
    check(name, lambda f: jax.grad(batched(f), argnums=(0, 1)), rows, X)


def test_batches_of_batches():
    rows, columns = np.stack([P, P + 0.1]), np.stack([X, X + 0.1, X - 0.2])
    inner = lambda f: jax.vmap(jax.grad(f), in_axes=(0, None))  # noqa: E731
    check("volatility", lambda f: jax.vmap(inner(f), in_axes=(None, 0)), rows, columns)


def test_inside_of_jax_loops_branches_and_checkpoints():
    def carried(f):
        def step(c, x):
            return c + 0.01 * f(P * c, x), None

        return lambda c, xs: jax.lax.scan(step, c, xs)[0]

    rows = np.stack([X, X + 0.1])
    check("volatility", lambda f: jax.value_and_grad(carried(f)), 1.0, rows)
    branch = lambda f: lambda p, x: jax.lax.cond(p[0] > 0, f, lambda p, x: p.sum(), p, x)  # noqa: E731
    check("volatility", lambda f: jax.grad(branch(f)), P, X)
    check("volatility", lambda f: jax.grad(jax.checkpoint(f)), P, X)


def kernels_in(f, *args):
    """How many kernels there are in a traced function: all, and those of a value and its tangent."""
    counts = primitives(jax.make_jaxpr(f)(*args))
    return counts["loopax_kernel"], counts["loopax_kernel_jvp"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_mode_is_one_kernel_and_reverse_mode_has_none_of_its_tangents(name):
    native, _ = both(name)
    forward = lambda p, v: jax.jvp(lambda p: floats_of(native)(p, X), (p,), (v,))  # noqa: E731
    assert kernels_in(forward, P, P) == (0, 1)
    _, joint = kernels_in(jax.grad(total(native)), P, X)
    assert joint == 0
    steps = lambda p: jax.lax.scan(lambda c, x: (c + total(native)(p, x), None), 0.0, X[None])[0]  # noqa: E731
    _, joint = kernels_in(jax.grad(steps), P)  # traced forwards, then taken apart
    assert joint == 0
    check(name, lambda f: lambda p, v: jax.jvp(lambda p: f(p, X), (p,), (v,))[0], P, P)


POLICIES = {
    "nothing": jax.checkpoint_policies.nothing_saveable,
    "everything": jax.checkpoint_policies.everything_saveable,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["volatility", "filtered"])
@pytest.mark.parametrize("policy", POLICIES)
def test_forward_mode_taken_apart(name, policy):
    """In a loop, in a checkpoint, and in both: what was traced forwards is transposed."""
    rows = np.stack([X, X + 0.1])

    def carried(f):
        def step(c, x):
            return jnp.tanh(c + 0.01 * total(f)(P * c, jnp.sin(x))), c

        return lambda c, xs: jax.lax.scan(jax.checkpoint(step, policy=POLICIES[policy]), c, xs)[0]

    check(name, lambda f: jax.value_and_grad(carried(f), argnums=(0, 1)), 1.0, rows)
    held = lambda f: jax.checkpoint(  # noqa: E731
        lambda p, x: jnp.sin(total(f)(jnp.cos(p), x)), policy=POLICIES[policy]
    )
    check(name, lambda f: jax.grad(held(f), argnums=(0, 1)), P, X)
    batched = lambda f: jax.vmap(jax.grad(held(f)), in_axes=(None, 0))  # noqa: E731
    check(name, batched, P, rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["volatility", "filtered"])
def test_forward_mode_in_reverse_mode(name):
    def slope(f):
        return lambda p, v: jax.jvp(lambda p: total(f)(p, X), (p,), (v,))[1]

    check(name, lambda f: jax.grad(slope(f), argnums=(0, 1)), P, P + 0.1)
    check(name, lambda f: jax.linear_transpose(lambda v: slope(f)(P, v), P), 1.0)
    check(name, lambda f: jax.vmap(slope(f), in_axes=(None, 0)), P, np.eye(3))  # one value for all
    rows = np.stack([P, P + 0.1])
    check(name, lambda f: jax.vmap(jax.jacfwd(total(f)), in_axes=(0, None)), rows, X)
    check(name, lambda f: jax.jacrev(jax.jacfwd(total(f))), P, X)


def test_linearize_and_linear_transpose():
    def line(f):
        def moved(p, x):
            values, push = jax.linearize(floats_of(f), p, x)
            tangents = push(jnp.ones(3), jnp.ones(6))
            return values, tangents, jax.linear_transpose(push, p, x)(values)

        return moved

    check("filtered", line, P, X)


def test_gradients_with_respect_to_some_of_the_arguments():
    check("filtered", lambda f: jax.grad(lambda x: total(f)(P, x)), X)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_of_fewer_bits_than_its_arguments_or_more(dtype):
    a, x = pt.fvector("a"), pt.dvector("x")
    total = (a * x).sum().astype(dtype)
    native, xla = (jaxify([a, x], total, loops=loops) for loops in ("native", "xla"))
    args = X.astype("float32"), X
    moved = [jax.jvp(lambda a, f=f: f(a, X), args[:1], args[:1])[1] for f in (native, xla)]
    pulled = [jax.jit(jax.grad(f, argnums=(0, 1)))(*args) for f in (native, xla)]
    for got, right in zip([moved[0], *pulled[0]], [moved[1], *pulled[1]], strict=True):
        assert got.dtype == right.dtype
        np.testing.assert_allclose(got, right, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has no JAX conversion")
def test_derivatives_that_pytensor_does_not_know_are_jax_own():
    order, x = pt.dscalar("order"), pt.dvector("x")
    f, of_xla = (jaxify([order, x], pt.iv(order, x), loops=loops) for loops in ("native", "xla"))
    for transform in (jax.jacfwd, jax.jacrev, lambda f, k: jax.grad(lambda *a: f(*a).sum(), k)):
        np.testing.assert_allclose(
            transform(f, 1)(1.0, X**2), transform(of_xla, 1)(1.0, X**2), rtol=1e-14
        )
        for by_order in (transform(f, 0), transform(of_xla, 0)):
            with pytest.raises(UnsupportedOpError, match="no derivative by its input 0"):
                by_order(1.0, X**2)


CHECKED = {
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "gradient": lambda f: jax.grad(lambda x: f(x).sum()),
    "gradient of a tangent": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1].sum()),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(lambda x: jax.jvp(f, (x,), (x,))[1].sum())),
    "hessian": lambda f: jax.hessian(lambda x: f(x).sum()),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("transform", CHECKED)
@pytest.mark.parametrize("where", ["outside", "in the step", "linear"])
def test_a_check_of_what_only_the_derivative_is_read_of(where, transform):
    x = pt.dvector("x")
    positive = Assert("only positive numbers")

    def step(h, r):
        r = positive(r, r > 0) if where == "in the step" else r
        return pt.tanh(h) + r, h**2

    out = 2 * x if where == "linear" else loopax.scan(step, pt.as_tensor(0.1), x)[1]
    out = out if where == "in the step" else positive(out, pt.all(x > 0))
    native, xla = (jaxify([x], out, loops=loops, checks="raise") for loops in ("native", "xla"))
    derived = jax.jit(CHECKED[transform](native))
    at = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(derived(at), CHECKED[transform](xla)(at), rtol=RTOL, atol=ATOL)
    with pytest.raises(Exception, match="only positive numbers"):
        jax.block_until_ready(derived(-at))


def test_where_jax_looks_for_nan_it_names_the_program():
    native, _ = both("volatility")
    with jax.debug_nans(True):
        native(P, X)
        for f in (native, jax.jit(jax.value_and_grad(native))):
            with pytest.raises(FloatingPointError, match="nan"):
                f(-P, X)


def test_float0_tangents_of_whole_numbers():
    n, x = pt.lscalar("n"), pt.dvector("x")
    f = jaxify([n, x], (x**n).sum(), loops="native")
    value, slope = jax.jvp(lambda n, x: f(n, x), (2, X), (np.zeros((), jax.dtypes.float0), X))
    np.testing.assert_allclose([value, slope], [(X**2).sum(), 2 * (X**2).sum()])


def test_complex_numbers_have_jax_derivatives():
    z = pt.zvector("z")
    native, xla = (jaxify([z], (z**2 * (1 + 2j)).sum(), loops=loops) for loops in ("native", "xla"))
    at = np.array([1 + 1j, 2.0])
    np.testing.assert_allclose(native(at), xla(at))
    slopes = [jax.grad(f, holomorphic=True)(at) for f in (native, xla)]
    np.testing.assert_allclose(*slopes)


def test_whole_numbers_have_no_derivative():
    x = pt.dvector("x")
    f = jaxify([x], (x > 0).sum(), loops="native")
    value, tangent = jax.jvp(f, (X,), (X,))
    assert int(value) == (X > 0).sum() and tangent.dtype == jax.dtypes.float0
