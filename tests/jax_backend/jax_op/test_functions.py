"""`loopax.from_jax`: functions of JAX in PyTensor programs, inlined or called."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

import loopax
from loopax import LoopTypeError, from_jax, jaxify

X = np.array([0.3, -0.8, 1.1])
MODES = ["FAST_COMPILE", "LOOPAX", "JAX", "LOOPAX_NUMBA"]


def energy(x, options):
    """A sum of sines, and its terms."""
    terms = jnp.sin(options["rate"] * x) ** options["power"]
    return {"terms": terms, "total": terms.sum()}


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        # Native code says that it has none for it: see test_native_code_says_so.
        warnings.filterwarnings("ignore", "These ops have no conversion to Numba")
        yield


def test_structure_types_and_names():
    x, rate = pt.dvector("x"), pt.dscalar("rate")
    f = from_jax(energy)
    actual = f(x, {"rate": rate, "power": 2})
    assert sorted(actual) == ["terms", "total"] and f.__doc__ == energy.__doc__
    assert actual["terms"].type == pt.dvector().type and actual["total"].type == pt.dscalar().type
    assert "energy" in str(actual["total"].owner.op)
    known = f(pt.dvector("x", shape=(3,)), {"rate": rate, "power": 2})
    assert known["terms"].type.shape == (3,)
    assert from_jax(lambda x: x.sum(0, keepdims=True))(pt.dmatrix()).type.shape == (1, None)
    assert from_jax(lambda x: x > 0)(x).type.dtype == "bool"


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_values_and_derivatives_in_every_mode(mode, quiet):
    x, rate = pt.dvector("x"), pt.dscalar("rate")
    actual = from_jax(energy)(x, {"rate": rate, "power": 3})
    first = pytensor.grad(actual["total"] + actual["terms"][0], [x, rate])
    second = pytensor.grad((first[0] ** 2).sum(), x)
    f = pytensor.function([x, rate], [actual["terms"], *first, second], mode=mode)

    def plain(x, rate):
        actual = energy(x, {"rate": rate, "power": 3})
        return actual["total"] + actual["terms"][0]

    slopes = jax.grad(plain, (0, 1))
    curved = jax.grad(lambda x: (slopes(x, 2.0)[0] ** 2).sum())
    expected = [energy(X, {"rate": 2.0, "power": 3})["terms"], *slopes(X, 2.0), curved(X)]
    for a, b in zip(f(X, 2.0), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_jaxify_inlines_it():
    x, rate = pt.dvector("x"), pt.dscalar("rate")
    f = jaxify([x, rate], from_jax(energy)(x, {"rate": rate, "power": 2})["total"])
    text = str(jax.make_jaxpr(f)(X, 2.0))
    assert "callback" not in text and "sin" in text
    np.testing.assert_allclose(
        jax.hessian(f)(X, 2.0), np.diag(8 * np.cos(4 * X)), rtol=1e-10, atol=1e-12
    )


def test_pytensors_own_op_is_inlined():
    x = pt.dvector("x", shape=(3,))
    y = pytensor.wrap_jax(lambda x: jnp.cos(x))(x).sum()
    f = jaxify([x], [y, pytensor.grad(y, x)])
    assert "callback" not in str(jax.make_jaxpr(f)(X))
    np.testing.assert_allclose(f(X)[1], -np.sin(X), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(lambda x: f(x)[0])(X), -np.sin(X), rtol=1e-12)


@pytest.mark.parametrize("loops", ["xla", "native"])
def test_in_the_step_of_a_loop(loops):
    x = pt.dvector("x")
    g = from_jax(lambda c, x: jnp.tanh(c + x))
    final, _ = loopax.scan(lambda c, x: (g(c, x), None), 0.5, x)
    f = jaxify([x], final, loops=loops)

    def plain(x):
        return jax.lax.scan(lambda c, x: (jnp.tanh(c + x), None), 0.5, x)[0]

    np.testing.assert_allclose(f(X), plain(X), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(f)(X), jax.grad(plain)(X), rtol=1e-12)


def test_native_code_says_so():
    x = pt.dvector("x")
    y = from_jax(lambda x: x**2)(x).sum()
    with pytest.warns(UserWarning, match="no conversion to Numba"):
        native = jaxify([x], y, backend="numba")
    np.testing.assert_allclose(native(X), (X**2).sum())


def test_batches():
    x, rate = pt.dvector("x"), pt.dscalar("rate")
    total = from_jax(energy)(x, {"rate": rate, "power": 2})["total"]
    rows, rates = pt.dtensor3("rows"), pt.dvector("rates")
    values = {
        rows: np.arange(12.0).reshape(2, 2, 3) / 10,
        rates: np.array([1.0, 2.0]),
        x: X,
        rate: 3.0,
    }
    for replace in ({x: rows}, {x: rows, rate: rates}, {rate: rates}):
        batch = vectorize_graph(total, replace)
        given = [replace.get(v, v) for v in (x, rate)]
        f = pytensor.function(given, batch, mode="FAST_COMPILE")
        at_x, at_rate = (values[v] for v in given)
        expected = (np.sin(np.asarray(at_rate)[..., None] * at_x) ** 2).sum(-1)
        np.testing.assert_allclose(f(at_x, at_rate), expected, rtol=1e-12)
    assert vectorize_graph(total, {x: pt.dmatrix(shape=(4, None))}).type.shape == (4,)

    f = loopax.vmap(lambda x: from_jax(energy)(x, {"rate": 2.0, "power": 2})["total"])
    np.testing.assert_allclose(
        jaxify(f)(values[rows][0]), (np.sin(2 * values[rows][0]) ** 2).sum(-1)
    )


def test_forward_derivatives():
    x, t = pt.dvector("x"), pt.dvector("t")
    y = from_jax(lambda x, n: (jnp.sin(x), n + 1))(x, np.int64(2))[0]
    push = getattr(pytensor.gradient, "pushforward", None) or pytensor.gradient.Rop
    moved = pytensor.function([x, t], push(y, x, t), mode="FAST_COMPILE", on_unused_input="ignore")
    np.testing.assert_allclose(moved(X, X), np.cos(X) * X, rtol=1e-12)


def test_integers_have_no_slope():
    x, n = pt.dvector("x"), pt.lvector("n")
    values, counts = from_jax(lambda x, n: (x * n, n + 1))(x, n)
    np.testing.assert_allclose(
        pytensor.grad(values.sum(), x).eval({x: X, n: [1, 2, 3]}, mode="FAST_COMPILE"), [1, 2, 3]
    )
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pytensor.grad(values.sum(), n)
    assert counts.type.dtype == "int64"


def test_equal_calls_are_one_op():
    x, f = pt.dvector("x"), from_jax(energy)
    one, same = (f(x, {"rate": 1.0, "power": 2})["total"].owner.op for _ in range(2))
    assert one == same and hash(one) == hash(same)
    others = [{"rate": 1.0, "power": 2.0}, {"rate": -1.0, "power": 2}, {"rate": True, "power": 2}]
    assert all(f(x, other)["total"].owner.op != one for other in others)
    zeros = [f(x, {"rate": z, "power": 2})["total"].owner.op for z in (0.0, -0.0)]
    assert zeros[0] != zeros[1]
    # What has no hash is compared by what it is.
    keep = [from_jax(lambda x, k: x * len(k))(x, k).owner.op for k in ({1}, {1})]
    assert keep[0] != keep[1]


def test_it_pickles():
    x = pt.dvector("x")
    y = from_jax(energy)(x, {"rate": 2.0, "power": 2})["total"]
    again = pickle.loads(pickle.dumps(jaxify([x], pytensor.grad(y, x))))
    np.testing.assert_allclose(again(X), 2 * np.sin(4 * X), rtol=1e-12)


def test_lengths_that_it_takes():
    x, m = pt.dvector("x"), pt.dmatrix("m")
    even = from_jax(lambda x: x.reshape(-1, 2))(x)
    assert even.type.shape == (None, None)
    nine = from_jax(lambda x: jnp.dot(x, jnp.ones(9)))
    with pytest.raises(LoopTypeError, match=r"specify_shape.*it raised: "):
        nine(x)
    assert nine(pt.specify_shape(x, (9,))).type.ndim == 0
    both = from_jax(lambda m, x: m @ x)(m, x)
    assert both.type.shape == (None,)
    with pytest.raises(LoopTypeError, match="ranks or dtypes"):
        from_jax(lambda x: x if len(x) > 5 else x[0])(x)
    # What is known from looking at it holds when it runs.
    narrow = from_jax(lambda x: x[: 1 if len(x) > 4 else 2])(x)
    with pytest.raises(ValueError, match="for all lengths of its arguments"):
        narrow.eval({x: X}, mode="FAST_COMPILE")


def test_refusals():
    f = from_jax(lambda x: x)
    with pytest.raises(LoopTypeError, match="takes tensors"):
        f(pytensor.shared(np.random.default_rng(1)))
    with pytest.raises(TypeError):  # JAX's own, where all lengths are known
        from_jax(lambda x: x + "a")(pt.dscalar())
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(LoopTypeError, match="32-bit mode"):
            f(pt.dvector("x"))
    finally:
        jax.config.update("jax_enable_x64", True)
