"""What `interpreted` computes is what JAX does: each rule of NumPy's, loops, branches, calls, batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from jax import lax

import loopax
from loopax import jaxify
from tests.jax_backend.interpreted import InterpretedFunction, interpreted
from tests.jax_backend.numpy_indices import RULES
from tests.jax_backend.numpy_primitives import UFUNCS
from tests.support.compare import primitives

X = np.array([[0.5, -1.5, np.nan, 0.0], [np.inf, 2.25, -0.25, 7.0]])
Y = np.array([[2.0, -0.5, 1.0, -3.0], [1.5, np.inf, 4.0, -7.0]])
POSITIVE = np.abs(Y) + 1
INTEGERS = np.array([[7, -7, 3, 0], [1, 5, -2, 100]], "int16")
BY = np.array([[2, 3, -5, 4], [7, 7, 9, 3]], "int16")
BOOLS = INTEGERS > 1
SQUARE = np.arange(16.0).reshape(4, 4) % 7

INTO = {"and", "or", "xor", "not"}
OF_TWO = {*INTO, "add", "add_any", "sub", "mul", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"}
OF_TWO |= {"nextafter", "atan2"}
OF_TWO -= {"not"}


def elementwise(name):
    """The primitive, by the name that `jax.lax` has for it; sums of cotangents have none."""
    public = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"}
    f = getattr(lax, public.get(name, name), lax.add)
    args = [INTEGERS, BY] if name in INTO else [X, Y]
    return f, args[: 2 if name in OF_TWO else 1]


GATHERED = lax.GatherDimensionNumbers((1,), (0,), (0,))
ROWS = np.array([[1], [5], [-1]])  # two of them outside
BATCHED = lax.GatherDimensionNumbers((1,), (), (1,), (0,), (0,))
WRITTEN = lax.ScatterDimensionNumbers((1,), (0,), (0,))

CASES = {
    **{name: elementwise(name) for name in UFUNCS if name != "add_any"},
    "add_any": (jax.grad(lambda x: (jnp.sin(x) * jnp.cos(x)).sum()), [POSITIVE]),
    "copy": (lambda x: jnp.array(x, copy=True), [X]),
    "stop_gradient": (lax.stop_gradient, [X]),
    "optimization_barrier": (lax.optimization_barrier, [X]),
    "div": (lax.div, [X, Y]),
    "div of integers": (lax.div, [INTEGERS, BY]),
    "div by zero": (lax.div, [BY, INTEGERS]),
    "rem": (lax.rem, [INTEGERS, BY]),
    "rem of floats": (lax.rem, [X, Y]),
    "one_minus_square": (jax.grad(lambda x: jnp.tanh(x).sum()), [Y]),
    "shift_left": (lax.shift_left, [INTEGERS, np.abs(BY)]),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, [INTEGERS, np.abs(BY)]),
    "shift_right_logical": (lax.shift_right_logical, [INTEGERS, np.abs(BY)]),
    "shift too far": (lax.shift_left, [INTEGERS, BY * 8]),
    "bitcast_convert_type": (lambda x: lax.bitcast_convert_type(x, jnp.int64), [X]),
    "pow": (lax.pow, [POSITIVE, Y]),
    "integer_pow": (lambda x: lax.integer_pow(x, -3), [Y]),
    "logistic": (lax.logistic, [X]),
    "rsqrt": (lax.rsqrt, [POSITIVE]),
    "convert_element_type": (lambda x: lax.convert_element_type(x, "int8"), [INTEGERS * 2]),
    "convert too much": (lambda x: lax.convert_element_type(x, "int32"), [X * 1e10]),
    "select_n": (lambda c, x, y: lax.select_n(c, x, y), [BOOLS, X, Y]),
    "select_n of numbers": (
        lambda x, y: lax.select_n(jnp.array([[0, 2, 1, 0]] * 2), x, y, x + y),
        [X, Y],
    ),
    "clamp": (lambda x: lax.clamp(-1.0, x, 2.0), [X]),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (0, 2)), [X]),
    "reshape": (lambda x: x.reshape(4, 2), [X]),
    "squeeze": (lambda x: lax.squeeze(x[:1, :], (0,)), [X]),
    "transpose": (lambda x: x.T, [X]),
    "concatenate": (lambda x, y: lax.concatenate([x, y], 1), [X, Y]),
    "stack": (lambda x, y: jnp.stack([x, y], 1), [X, Y]),
    "tile": (lambda x: jnp.tile(x, (2, 3)), [X]),
    "split": (lambda x: lax.split(x, (1, 3), 1), [X]),
    "rev": (lambda x: lax.rev(x, (0, 1)), [X]),
    "iota": (lambda x: x + lax.broadcasted_iota("float64", (2, 4), 1), [X]),
    "slice": (lambda x: lax.slice(x, (0, 1), (2, 4), (1, 2)), [X]),
    "pad": (lambda x: lax.pad(x, 1.5, ((1, 0, 0), (0, 2, 0))), [X]),
    "pad between": (lambda x: lax.pad(x, 1.5, ((-1, 0, 0), (0, 2, 1))), [X]),
    "reduce_sum": (lambda x: x.sum(0), [Y]),
    "reduce_prod": (lambda x: x.prod(1), [Y]),
    "reduce_max": (lambda x: x.max(1), [X]),
    "reduce_min": (lambda x: x.min(0), [X]),
    "reduce_max of none": (lambda x: lax.reduce_max(x, (0,)), [X[:0]]),
    "reduce_and": (lambda x: x.all(1), [BOOLS]),
    "reduce_or": (lambda x: x.any(), [BOOLS]),
    "reduce_xor": (lambda x: lax.reduce_xor(x, (0,)), [INTEGERS]),
    "argmax": (lambda x: x.argmax(1), [X]),
    "argmin": (lambda x: x.argmin(0), [X]),
    "cumsum": (lambda x: lax.cumsum(x, 1, reverse=True), [INTEGERS * 300]),
    "cumprod": (lambda x: lax.cumprod(x, 1), [Y]),
    "cummax": (lambda x: lax.cummax(x, 1), [Y]),
    "cummin": (lambda x: lax.cummin(x, 0, reverse=True), [Y]),
    "sort": (lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), [BY, X]),
    "sort by two": (lambda x, y: lax.sort((x, y), dimension=1, num_keys=2), [BY, Y]),
    "dot_general": (
        lambda x, y: jnp.einsum("bij,bkj->bik", x, y),
        [SQUARE.reshape(2, 2, 4), SQUARE.reshape(2, 2, 4)],
    ),
    "dynamic_slice": (lambda x: lax.dynamic_slice(x, (jnp.int64(1), 3), (1, 2)), [X]),
    "dynamic_update_slice": (
        lambda x, y: lax.dynamic_update_slice(x, y[:1, :2], (-1, jnp.int64(3))),
        [X, Y],
    ),
    "gather": (lambda x, k: lax.gather(x, k, GATHERED, (1, 3), mode="fill"), [X, ROWS]),
    "gather clipped": (lambda x, k: lax.gather(x, k, GATHERED, (1, 3), mode="clip"), [BY, ROWS]),
    "gather in batches": (
        lambda x, k: lax.gather(x, k, BATCHED, (1, 2), mode="fill"),
        [X, np.array([[1], [9]])],
    ),
    "scatter": (
        lambda x, k, y: lax.scatter(x, k[:2], y[:, :3], WRITTEN, mode="clip"),
        [SQUARE, ROWS, Y],
    ),
    "scatter-add": (lambda x, k: jnp.asarray(x).at[k[:, 0]].add(1.5), [SQUARE, ROWS]),
    "scatter-mul": (lambda x: jnp.asarray(x).at[jnp.array([1, 1, 9])].multiply(3.0), [SQUARE]),
    "scatter-min": (lambda x: jnp.asarray(x).at[1, jnp.array([0, 2])].min(0.5), [SQUARE]),
    "scatter-max": (lambda x: jnp.asarray(x).at[:, jnp.array([0, 2])].max(0.5), [SQUARE]),
}


def same(actual, wanted, rtol=1e-9):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, strict=True)


@pytest.fixture(scope="module")
def by_xla():
    """All of them, compiled as one program."""
    every = jax.jit(lambda given: {name: f(*given[name]) for name, (f, _) in CASES.items()})
    return every({name: args for name, (_, args) in CASES.items()})


@pytest.mark.sampled(41)
@pytest.mark.parametrize("name", CASES)
def test_a_primitive(name, by_xla):
    f, args = CASES[name]
    same(interpreted(f)(*args), by_xla[name])


def test_each_rule_has_a_case():
    """But of a primitive that this JAX does not have, or writes in another way."""
    traced = [jax.make_jaxpr(f)(*map(jnp.asarray, args)) for f, args in CASES.values()]
    used = set().union(*map(primitives, traced))
    elsewhere = {"add_any", "copy", "empty", "empty2", "one_minus_square"}
    assert {*RULES} - used <= elsewhere | {"stack", "stop_gradient", "tile"}


def batch_of_loops(x):
    """Rows that stop on their own, in `vmap`, and a branch of each."""

    def grown(c):
        return c[0] * 2, c[1] + 1

    x, n = lax.while_loop(lambda c: c[0] < 3, grown, (x, 0))
    return lax.cond(n > 2, lambda x: -x, lambda x: x, x), n


def test_control_flow():
    starts = np.array([0.25, 1.0, 5.0])
    same(interpreted(jax.vmap(batch_of_loops))(starts), jax.vmap(batch_of_loops)(starts))
    same(interpreted(batch_of_loops)(1.0), batch_of_loops(1.0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", [0, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_and_its_gradient(length, reverse):
    rows = np.arange(2.0 * length).reshape(length, 2)

    def total(x, rows):
        step = jax.checkpoint(lambda c, row: (jnp.sin(c) + row, c * row))
        return lax.scan(step, x, rows, reverse=reverse)

    start = np.array([0.3, -0.2])
    same(interpreted(total)(start, rows), total(start, rows))
    slope = jax.grad(lambda x: sum((y**2).sum() for y in total(x, rows)))
    same(interpreted(slope)(start), slope(start))


def test_a_backend_that_compiles_nothing():
    """Values, gradients and batches of a loop that stops, one whose length is an argument among them."""
    x, n = pt.dvector("x"), pt.lscalar("n")
    start = pt.cumsum(x)[:n]
    total = loopax.while_loop(lambda c: c.sum() < 9, lambda c: c * 1.5, start, max_steps=5)
    values = np.array([0.5, 1.0, 2.0])
    f = jaxify([x, n], total, backend=InterpretedFunction.backend_name, jit=False)
    g = jaxify([x, n], total)
    same(f(values, 2), g(values, 2))
    slopes = [jax.grad(lambda x, h=h: (h(x, 2) ** 2).sum()) for h in (f, g)]
    same(interpreted(slopes[0])(values), slopes[1](values))
    batches = [jax.vmap(lambda x, h=h: h(x, 2)) for h in (f, g)]
    rows = np.stack([values, -values])
    same(interpreted(batches[0])(rows), batches[1](rows))
