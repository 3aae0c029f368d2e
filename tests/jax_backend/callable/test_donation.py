"""`jaxify(..., donate=)`: a direct call gives arguments away, as `jax.jit` with ``donate_argnums`` does."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.io import In
from pytensor.raise_op import assert_op

import loopax
from loopax import MissingInputError, jaxify
from tests.support.marking import needs_extension

X, Y = pt.dvector("x"), pt.dvector("y")
XS, YS = np.array([0.5, -1.0, 2.0]), np.array([3.0, 1.0, 2.0])


def moved(**options):
    """One step of a loop of the caller's: x goes on."""
    return jaxify([X, Y], pt.tanh(X) + Y, **options)


def given_away(f, *args, **kwargs):
    """Which arrays a call deletes; what it returns is what the function without `donate` does."""
    args = [jnp.asarray(x) + 0 for x in args]
    kwargs = {k: jnp.asarray(x) + 0 for k, x in kwargs.items()}
    actual = f(*args, **kwargs)
    return actual, [x.is_deleted() for x in (*args, *kwargs.values())]


@pytest.mark.parametrize("donate", [X, "x", 0, -2, (X,), ["x"], {0}, ("x", 0)])
def test_by_variable_name_and_number(donate):
    actual, deleted = given_away(moved(donate=donate), XS, YS)
    np.testing.assert_array_equal(actual, moved()(XS, YS))
    assert deleted == [True, False]


def test_again_and_by_keyword():
    f = moved(donate="x")
    for _ in range(3):
        actual, deleted = given_away(f, y=YS, x=XS)
        np.testing.assert_allclose(actual, np.tanh(XS) + YS, rtol=1e-15)
        assert deleted == [False, True]


def test_nothing_is_given_away_unasked():
    assert given_away(moved(), XS, YS)[1] == [False, False]
    assert given_away(moved(donate=None), XS, YS)[1] == [False, False]


@pytest.mark.parametrize("loops", ["native", "xla"])
def test_a_loop(loops):
    path = loopax.scan(lambda c, r: (0.5 * c + r,) * 2, 0.0, X)[1]
    actual, deleted = given_away(jaxify([X], path, donate=0, loops=loops), XS)
    np.testing.assert_allclose(actual, jaxify([X], path, backend="numba")(XS), rtol=1e-15)
    assert deleted == [True]


def test_arrays_of_numpy_are_not_touched():
    xs, ys = np.ones(100_000), np.ones(100_000)
    shared = jnp.asarray(ys)  # without a copy, where JAX can
    f = jaxify([X, Y], [X + 1, Y + 2], donate=(0, 1))
    actual = f(xs, shared)
    np.testing.assert_array_equal(actual, [np.full(100_000, 2.0), np.full(100_000, 3.0)])
    assert shared.is_deleted()
    assert (xs == 1).all() and (ys == 1).all()


def test_what_no_result_fits_is_kept_as_jax_says():
    f = jaxify([X], X.sum(), donate=0)
    with pytest.warns(UserWarning, match="donated buffers were not usable"):
        assert given_away(f, XS) == (XS.sum(), [False])


def test_under_a_transformation_nothing_is_given_away():
    f, xs = moved(donate=0), jnp.asarray(XS)
    jax.jit(f)(xs, YS)
    jax.vmap(f)(jnp.stack([xs, xs]), np.stack([YS, YS]))
    jax.jvp(lambda x: f(x, YS), (xs,), (xs,))
    total = lambda x: f(x, YS).sum()  # noqa: E731
    np.testing.assert_allclose(jax.grad(total)(xs), 1 - np.tanh(XS) ** 2, rtol=1e-12)
    assert not xs.is_deleted()
    slope = loopax.vjp(f, xs, jnp.asarray(YS))[1](jnp.ones(3))[0]
    np.testing.assert_allclose(slope, 1 - np.tanh(XS) ** 2, rtol=1e-12)
    assert not xs.is_deleted()
    jax.jit(f, donate_argnums=0)(xs, YS)
    assert xs.is_deleted()


def test_a_jaxpr_is_the_same_but_for_what_is_donated():
    actual, wanted = (jax.make_jaxpr(moved(donate=d))(XS, YS) for d in (0, ()))
    assert str(actual) == str(wanted)


def test_beside_an_input_that_is_static():
    """A number of steps is found to make a shape when the first call is traced: nothing is gone by then."""
    n = pt.lscalar("n")
    _, rows = loopax.scan(lambda c, _: (c * 0.5,) * 2, X, length=n)
    f = jaxify([n, X], rows[-1] + 0 * rows.sum(), donate=X)
    for steps in (3, 2):
        actual, deleted = given_away(lambda x, k=steps: f(k, x), XS)
        np.testing.assert_allclose(actual, XS / 2**steps, rtol=1e-15)
        assert deleted == [True]


def test_a_check_that_fails_is_found_in_one_run():
    """The first call finds out, while it is traced, that something can fail: it is not run again."""
    checked = assert_op(X * 2, pt.all(X > -5))
    f = jaxify([X], checked, donate=0, checks="raise")
    np.testing.assert_array_equal(given_away(f, XS)[0], 2 * XS)
    with pytest.raises(AssertionError):
        f(jnp.asarray(XS - 10))


@needs_extension("parallel")
def test_newtons_method_is_run_once():
    newton = loopax.scan(lambda c, r: (pt.tanh(c) + r,) * 2, 0.3, X, parallel="newton")[1]
    actual, deleted = given_away(jaxify([X], newton, donate=0), XS)
    np.testing.assert_allclose(actual, jaxify([X], newton, backend="numba")(XS), atol=1e-8)
    assert deleted == [True]


def test_what_is_converted_first_is_not_touched():
    xs = jnp.arange(3, dtype="int32")
    np.testing.assert_allclose(moved(donate=0)(xs, YS), np.tanh(np.arange(3)) + YS)
    assert not xs.is_deleted()


# -- where the inputs come from ----------------------------------------------------------------------


def step(state, /, data, *more, scale, **rest):
    return {k: v * scale + data for k, v in state.items()}


@pytest.mark.parametrize(
    ("donate", "gone"),
    [
        (0, "ab"),
        ("state", "ab"),
        (1, "d"),
        ("data", "d"),
        ("scale", ""),
        (2, ""),
        ("unheard", ""),
        ((0, 1), "abd"),
    ],
)
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_a_python_function(donate, gone):
    a, b, d = (jnp.asarray(x) + 0 for x in (XS, YS, XS))
    f = jaxify(step, donate=donate)
    actual = f({"a": a, "b": b}, data=d, scale=2.0)
    np.testing.assert_array_equal(actual["b"], 2 * YS + XS)
    deleted = [n for n, x in zip("abd", (a, b, d), strict=True) if x.is_deleted()]
    # Two results: of three arrays given away the first two are taken.
    assert deleted == list(gone[:2])


def test_as_a_decorator():
    @jaxify(donate="x")
    def double(x):
        return 2 * x

    assert given_away(double, XS)[1] == [True]


def test_pytrees_of_inputs():
    f = jaxify([{"x": X, "y": Y}, pt.dscalar("a")], [X + 1, Y + 1], donate=0)
    x, y = jnp.asarray(XS) + 0, jnp.asarray(YS) + 0
    np.testing.assert_array_equal(f({"x": x, "y": y}, 1.0)[1], YS + 1)
    assert x.is_deleted() and y.is_deleted()
    a = pt.dvector("a")
    named = jaxify([{"x": X}, In(a)], X * 2 + a, donate=a)
    x, y = jnp.asarray(XS) + 0, jnp.asarray(YS) + 0
    named({"x": x}, y)
    assert not x.is_deleted() and y.is_deleted()


def test_broadcasting_of_numpy():
    f = jaxify([X, Y], X + Y, donate=Y, broadcasting="numpy")
    actual, deleted = given_away(f, np.ones(1), YS)
    np.testing.assert_array_equal(actual, YS + 1)
    assert deleted == [False, True]


def test_compiled_functions_and_graphs():
    compiled = pytensor.function([X, Y], X + 2 * Y, mode="FAST_COMPILE")
    assert given_away(jaxify(compiled, donate="y"), XS, YS)[1] == [False, True]
    graph = pytensor.graph.fg.FunctionGraph([X, Y], [X + 2 * Y], clone=False)
    assert given_away(jaxify(graph, donate=X), XS, YS)[1] == [True, False]


def test_it_survives_pickling_and_goes_with_shared_variables():
    level = pytensor.shared(YS.copy(), name="level")
    f = jaxify([X], X + level, donate=0)
    for g in (f, pickle.loads(pickle.dumps(f))):
        actual, deleted = given_away(g, XS)
        np.testing.assert_array_equal(actual, XS + YS)
        assert deleted == [True]
    np.testing.assert_array_equal(level.get_value(), YS)


def test_a_context_is_given_away_by_the_callers_jit():
    total = pytensor.shared(YS.copy(), name="total")
    f = jaxify([X], [], updates={total: total + X})
    before = f.init_context()
    after, _ = jax.jit(f.apply, donate_argnums=0)(before, XS)
    np.testing.assert_array_equal(after["total"], XS + YS)
    assert before["total"].is_deleted()


# -- errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("donate", ["z", 2, -3, ("x", "z")])
def test_no_such_input(donate):
    with pytest.raises(MissingInputError, match=r"not an input of program\..*'x' \(0\), 'y' \(1\)"):
        moved(donate=donate)


def test_a_name_that_two_have():
    with pytest.raises(
        MissingInputError, match="'x', which is not an input of program, more than once"
    ):
        jaxify([X, pt.dvector("x")], X, donate="x")


def test_a_variable_that_is_no_input():
    with pytest.raises(MissingInputError, match="which is not an entry of the inputs.*donate=x"):
        jaxify([{"x": X}, Y], X + Y, donate=X)
    total = pytensor.shared(YS, name="total")
    with pytest.raises(MissingInputError, match="donate has 'total'.*donate their context"):
        jaxify([X], X + total, donate="total")


def test_of_a_function_it_is_said_at_once():
    with pytest.raises(MissingInputError, match="'z', which is not an input of <lambda>"):
        jaxify(lambda x: x, donate="z")
    with pytest.raises(MissingInputError, match="4, which is not an input of program"):
        jaxify([{"x": X}], X, donate=4)
    with pytest.raises(MissingInputError, match="4, which is not an input of program"):
        jaxify([X], X, donate=4, broadcasting="numpy")


@pytest.mark.parametrize("donate", [True, 1.5, [None]])
def test_no_input_at_all(donate):
    with pytest.raises(TypeError, match="donate takes inputs, their names or their numbers"):
        moved(donate=donate)


def test_where_there_is_nothing_to_give_away():
    with pytest.raises(ValueError, match="works only with backend='jax'.*Leave donate out"):
        moved(donate=0, backend="numba")
    with pytest.raises(ValueError, match="works only with jit=True"):
        moved(donate=0, jit=False)
    with pytest.raises(TypeError, match="it is called donate"):
        moved(donate_argnums=0)
