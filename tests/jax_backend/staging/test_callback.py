"""Ops without a JAX conversion run on the host: values, derivatives, batches, and what is refused."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.special
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from loopax import DynamicShapeError, LoopaxError, UnsupportedOpError, jaxify
from loopax.base.upstream import pytensor as upstream
from tests.support.compare import primitives
from tests.support.ops import SameType

XS = np.array([0.5, -1.0, 2.0])


class PerformOnly(SameType):
    """x^2, elementwise."""

    def perform(self, node, inputs, storage):
        (x,) = inputs
        assert isinstance(x, np.ndarray) and x.dtype == node.inputs[0].type.dtype
        storage[0][0] = np.asarray(x**2)


class WithShape(upstream.WithShapes, PerformOnly):
    """With an ``infer_shape``, in the form that either release takes."""

    def shapes_of(self, node, shapes):
        return list(shapes)


class Square(WithShape):
    """With a pullback of ordinary ops."""

    def pullback(self, inputs, outputs, cotangents):
        return [2 * inputs[0] * cotangents[0]]


class BlackBoxPullback(WithShape):
    """With a pullback that is itself an op without a conversion."""

    def pullback(self, inputs, outputs, cotangents):
        return [SquareGrad()(inputs[0], cotangents[0])]


class SquareGrad(Op):
    __props__ = ()

    def make_node(self, x, dy):
        return Apply(self, [x, dy], [x.type()])

    def perform(self, node, inputs, storage):
        storage[0][0] = np.asarray(2 * inputs[0] * inputs[1])


class CumulativeCount(Op):
    """A float and an integer output, of inputs of both kinds; only the float ones connect."""

    __props__ = ()

    def make_node(self, x, k):
        return Apply(self, [pt.as_tensor(x), pt.as_tensor(k)], [pt.dvector(), pt.lscalar()])

    def perform(self, node, inputs, storage):
        x, k = inputs
        storage[0][0], storage[1][0] = x * float(k), np.asarray((x > k).sum())

    def pullback(self, inputs, outputs, cotangents):
        x, k = inputs
        return [cotangents[0] * k, pytensor.gradient.DisconnectedType()()]

    def connection_pattern(self, node):
        return [[True, True], [False, False]]


class KeepPositive(Op):
    """As many elements as are positive: a shape that follows from values."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [pt.dvector()])

    def perform(self, node, inputs, storage):
        storage[0][0] = inputs[0][inputs[0] > 0]


class Refusing(KeepPositive):
    def perform(self, node, inputs, storage):
        raise ValueError("not on ones")


def quiet(function, *args):
    """``function(*args)``, without the warning that something runs on the host."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*has no JAX conversion", UserWarning)
        return function(*args)


def of(op):
    x = pt.dvector("x")
    return jaxify([x], op(x).sum())


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [PerformOnly(), WithShape(), Square(), BlackBoxPullback()], ids=str)
def test_values_and_one_warning_that_names_it(op):
    f = of(op)
    with pytest.warns(UserWarning) as caught:
        assert float(f(XS)) == (XS**2).sum()
    (warning,) = caught
    name = type(op).__name__
    assert f"class {name}" in str(warning.message) and "jax.pure_callback" in str(warning.message)
    assert "has no JAX conversion: it runs on the host" in str(warning.message)
    assert (
        float(f(XS[:2])) == (XS[:2] ** 2).sum()
    )  # compiled again, and silent: warnings are errors
    assert float(jax.jit(f)(jnp.asarray(XS))) == (XS**2).sum()


def test_it_runs_on_the_host_when_the_program_does():
    counts = primitives(quiet(jax.make_jaxpr(of(Square())), jnp.asarray(XS)))
    assert counts["pure_callback"] == 1


def test_in_a_loop_and_twice():
    xs = pt.dvector("xs")
    out = pytensor.scan(
        lambda x, s: Square()(s) / 2 + x, xs, outputs_info=pt.ones(()), return_updates=False
    )[-1]
    f = jaxify([xs], out + Square()(xs).sum())
    s, slope = 1.0, np.zeros(3)
    for k, x in enumerate(XS):
        slope[:k] *= s
        s, slope[k] = s**2 / 2 + x, 1.0
    value, by_jax = quiet(jax.value_and_grad(f), jnp.asarray(XS))
    np.testing.assert_allclose(value, s + (XS**2).sum())
    np.testing.assert_allclose(by_jax, slope + 2 * XS)


def test_several_outputs_of_several_kinds():
    x, k = pt.dvector("x"), pt.lscalar("k")
    y, count = CumulativeCount()(x, k)
    f = jaxify([x, k], [(y**2).sum(), count])
    value, n = quiet(f, XS, 1)
    assert (float(value), int(n), n.dtype) == ((XS**2).sum(), 1, np.dtype("int64"))
    slopes = quiet(jax.grad(lambda x: f(x, 3)[0]), jnp.asarray(XS))
    np.testing.assert_allclose(slopes, 2 * 9 * XS)
    np.testing.assert_allclose(jax.vmap(f, in_axes=(None, 0))(XS, jnp.arange(2))[1], [2, 1])


# -- derivatives -------------------------------------------------------------------------------------------


def test_all_derivatives_of_an_op_with_a_pullback():
    f, x = of(Square()), jnp.asarray(XS)
    assert quiet(jax.jit(jax.grad(f)), x).tolist() == (2 * XS).tolist()
    value, tangent = jax.jvp(f, (x,), (jnp.ones(3),))
    assert float(value) == (XS**2).sum() and float(tangent) == 2 * XS.sum()
    np.testing.assert_array_equal(jax.hessian(f)(x), 2 * np.eye(3))
    np.testing.assert_array_equal(jax.jacrev(jax.grad(f))(x), 2 * np.eye(3))


def test_a_pullback_that_is_a_black_box_gives_both_modes():
    f = of(BlackBoxPullback())
    slopes = quiet(jax.grad(f), jnp.asarray(XS))
    np.testing.assert_array_equal(slopes, 2 * XS)
    _, pushed = quiet(jax.jvp, f, (jnp.asarray(XS),), (jnp.ones(3),))
    np.testing.assert_allclose(pushed, 2 * XS.sum())


@pytest.mark.parametrize("op", [PerformOnly(), SquareGrad], ids=["PerformOnly", "SquareGrad"])
def test_an_op_without_a_pullback_is_refused_where_it_is_differentiated(op):
    x = pt.dvector("x")
    y = op(x) if op is not SquareGrad else op()(x, x)
    f = jaxify([x], y.sum())
    quiet(f, XS)
    for derivative in (
        lambda: jax.grad(f)(jnp.asarray(XS)),
        lambda: jax.jvp(f, (jnp.asarray(XS),), (jnp.ones(3),)),
    ):
        with pytest.raises(
            UnsupportedOpError, match="has no `pullback`, so it cannot be diff"
        ) as e:
            derivative()
        assert "disconnected_grad" in str(e.value) and str(y.owner.op) in str(e.value)


def test_an_input_without_a_derivative_is_an_error_where_it_has_one(recwarn):
    """Its cotangent was taken for zero: the gradient of ``jv`` by its order was 0."""
    v, x = pt.dvectors("v", "x")
    f = jaxify([v, x], pt.jv(v, x).sum())
    orders, values = jnp.array([0.5, 1.5]), jnp.array([1.0, 2.0])
    expected = scipy.special.jvp(orders, values)
    np.testing.assert_allclose(jax.grad(f, argnums=1)(orders, values), expected)
    with pytest.raises(UnsupportedOpError, match="has no derivative by its input 0"):
        jax.grad(f)(orders, values)


@pytest.mark.parametrize("inside", [True, False], ids=["its input", "its output"])
def test_disconnected_grad_keeps_it_out_of_a_derivative(inside):
    x = pt.dvector("x")
    y = PerformOnly()(disconnected_grad(x)) if inside else disconnected_grad(PerformOnly()(x))
    f = jaxify([x], (y * x).sum())
    np.testing.assert_array_equal(quiet(jax.grad(f), jnp.asarray(XS)), XS**2)
    _, tangent = quiet(jax.jvp, f, (jnp.asarray(XS),), (jnp.ones(3),))
    np.testing.assert_allclose(tangent, (XS**2).sum())


def test_the_pullback_of_an_op_of_integers_is_not_asked_for():
    """PyTensor asks no op whose outputs are all disconnected, and some raise where they are."""

    class Counting(WithShape):
        def pullback(self, inputs, outputs, cotangents):
            return [pt.as_tensor(cotangents[0])]

    x, k = pt.dvector("x"), pt.lvector("k")
    f = jaxify([x, k], (Counting()(k) * x).sum())
    ks = np.array([3, 0, 2])
    assert quiet(f, XS, ks) == (ks**2 * XS).sum()
    np.testing.assert_array_equal(quiet(jax.grad(f), XS, ks), ks**2)


def test_pytensors_gradient_of_an_op_without_a_conversion():
    x = pt.dvector("x")
    for op in (Square(), BlackBoxPullback()):
        f = jaxify([x], pytensor.grad(op(x).sum(), x))
        np.testing.assert_array_equal(quiet(f, XS), 2 * XS)


# -- batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [PerformOnly(), Square()], ids=str)
def test_vmap_runs_it_row_by_row(op):
    f, rows = of(op), jnp.stack([XS, 2 * XS])
    np.testing.assert_array_equal(quiet(jax.vmap(f), rows), (np.asarray(rows) ** 2).sum(1))
    if isinstance(op, Square):
        np.testing.assert_array_equal(jax.vmap(jax.grad(f))(rows), 2 * rows)
        np.testing.assert_array_equal(jax.jit(jax.vmap(jax.hessian(f)))(rows)[1], 2 * np.eye(3))


# -- shapes ------------------------------------------------------------------------------------------------


def test_another_shape_than_expected_is_an_error():
    x = pt.dvector("x")
    f = jaxify([x], KeepPositive()(x))
    assert quiet(f, np.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(
        Exception, match=r"the shape \(2,\), but loopax expected \(3,\) from its static type"
    ):
        jax.block_until_ready(f(XS))


def test_an_output_shape_that_nothing_says():
    x = pt.dvector("x")
    f = jaxify([x], Refusing()(x))
    with pytest.raises(
        DynamicShapeError,
        match="runs on ones and on other numbers failed .not on ones.. Give the Op an",
    ):
        quiet(f, XS)


# -- refusal -----------------------------------------------------------------------------------------------


def test_on_missing_raise_refuses_before_anything_is_traced():
    x = pt.dvector("x")
    with pytest.raises(UnsupportedOpError, match="on_missing='callback'") as caught:
        jaxify([x], PerformOnly()(x) + Square()(x), on_missing="raise")
    assert "class PerformOnly" in str(caught.value) and "class Square" in str(caught.value)
    assert len(caught.value.ops) == 2 and isinstance(
        caught.value, LoopaxError | NotImplementedError
    )
    assert float(jaxify([x], x.sum(), on_missing="raise")(XS)) == XS.sum()


def test_on_missing_raise_also_refuses_what_only_a_derivative_needs():
    from pytensor.link.jax.dispatch import jax_funcify

    class Converted(BlackBoxPullback):
        pass

    @jax_funcify.register(Converted)
    def _(op, **kwargs):
        return lambda x: x**2

    x = pt.dvector("x")
    f = jaxify([x], Converted()(x).sum(), on_missing="raise")
    assert float(f(XS)) == (XS**2).sum()
    np.testing.assert_array_equal(jax.grad(f)(jnp.asarray(XS)), 2 * XS)
