"""`JaxFunction`: a callable that JAX takes as it is, and what a call of it does."""

import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import DynamicShapeError, LoopTypeError, jaxify
from tests.support.compare import primitives
from tests.support.ops import SameType

scan = partial(pytensor.scan, return_updates=False)

XS = np.array([0.5, -1.0, 2.0])


def cubes(**options):
    """The sum of a x^3, and x^2: one number and one vector."""
    a, x = pt.dscalar("a"), pt.dvector("x")
    return jaxify([a, x], (a * x**3).sum(), **options)


def power():
    """a^n by a loop: n is a number of steps."""
    a, n = pt.dscalar("a"), pt.lscalar("n")
    trace = scan(lambda s, a: s * a, outputs_info=pt.ones(()), non_sequences=a, n_steps=n)
    return jaxify([a, n], trace[-1])


class Traces:
    """How often something was traced by JAX: an op's conversion runs once for each trace."""

    def __init__(self):
        from pytensor.link.jax.dispatch import jax_funcify

        self.count = 0

        class Spy(SameType):
            def perform(self, node, inputs, storage):
                storage[0][0] = inputs[0].copy()

        @jax_funcify.register(Spy)
        def _(op, **kwargs):
            def convert(x):
                self.count += 1
                return x

            return convert

        self.spy = Spy()

    def __call__(self, x):
        return self.spy(x)


# -- transformations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [True, False])
def test_a_direct_call(jit):
    actual = cubes(jit=jit)(2.0, XS)
    assert isinstance(actual, jax.Array) and actual.dtype == "float64"
    assert float(actual) == 2 * (XS**3).sum()


def test_jit_grad_and_value_and_grad():
    f = cubes()
    x = jnp.asarray(XS)
    assert float(jax.jit(f)(2.0, x)) == 2 * (XS**3).sum()
    chex.assert_trees_all_close(jax.grad(f, argnums=1)(2.0, x), jnp.asarray(6 * XS**2))
    value, slopes = jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(2.0, x)
    chex.assert_trees_all_close(
        (value, slopes), (2 * (XS**3).sum(), ((XS**3).sum(), 6 * XS**2)), rtol=1e-14
    )


def test_forward_derivatives_and_hessian():
    f = cubes()
    x, t = jnp.asarray(XS), jnp.array([1.0, 2.0, 3.0])
    value, tangent = jax.jvp(partial(f, 2.0), (x,), (t,))
    assert float(value) == 2 * (XS**3).sum()
    np.testing.assert_allclose(tangent, 6 * XS**2 @ np.asarray(t), rtol=1e-14)
    np.testing.assert_allclose(jax.hessian(f, 1)(2.0, x), np.diag(12 * XS), rtol=1e-14)


@pytest.mark.parametrize("outer", [jax.jit, lambda f: f])
def test_vmap_over_some_or_all_inputs(outer):
    f = cubes()
    a, x = jnp.array([1.0, 2.0]), jnp.stack([XS, 2 * XS])
    expected = np.asarray(a) * (np.asarray(x) ** 3).sum(1)
    np.testing.assert_allclose(outer(jax.vmap(f))(a, x), expected)
    np.testing.assert_allclose(
        outer(jax.vmap(f, in_axes=(0, None)))(a, XS), np.asarray(a) * (XS**3).sum()
    )


def test_keywords_under_a_transformation():
    f = cubes()
    chex.assert_trees_all_close(
        jax.jit(f)(x=jnp.asarray(XS), a=2.0), jax.grad(lambda a: f(a=a * a, x=XS) / 2)(2.0)
    )


def test_the_jaxpr_is_the_program():
    counts = primitives(jax.make_jaxpr(cubes())(2.0, XS))
    assert counts["reduce_sum"] == 1 and counts["pure_callback"] == 0
    loop = primitives(jax.make_jaxpr(power(), static_argnums=1)(2.0, 5))
    assert loop["scan"] + loop["while"] == 1


def test_export():
    # Not serialized: that needs the package flatbuffers.
    shapes = jax.ShapeDtypeStruct((), "float64"), jax.ShapeDtypeStruct((3,), "float64")
    exported = jax.export.export(jax.jit(cubes()))(*shapes)
    assert [(x.shape, x.dtype) for x in exported.out_avals] == [((), np.float64)]
    assert float(exported.call(jnp.asarray(2.0), jnp.asarray(XS))) == 2 * (XS**3).sum()


def test_natural_structure_survives_transformations():
    x = pt.dvector("x")
    f = jaxify([x], {"sum": x.sum(), "parts": (x * 2, [x[0]])})
    actual = jax.vmap(f)(jnp.stack([XS, XS]))
    assert set(actual) == {"sum", "parts"} and isinstance(actual["parts"], tuple)
    assert actual["parts"][1][0].shape == (2,)
    jacobian = jax.jacobian(f)(jnp.asarray(XS))
    np.testing.assert_array_equal(jacobian["parts"][0], 2 * np.eye(3))


def test_a_function_is_used_inside_another_jax_program():
    f = power()

    def total(a):
        return jax.lax.fori_loop(0, 3, lambda i, s: s + f(a, 2), 0.0)

    assert float(jax.jit(total)(3.0)) == 27.0
    assert float(jax.jit(jax.checkpoint(partial(f, n=3)))(2.0)) == 8.0


# -- its front door --------------------------------------------------------------------------------------


def test_signature_name_and_doc():
    a, x = pt.dscalar("a"), pt.dvector("x")
    f = jaxify([x, a, pt.dscalar("1 + 2")], x * a, name="scale")
    assert (f.__name__, f.__qualname__) == ("scale", "scale")
    assert str(inspect.signature(f)) == "(x, a, _2, /)"
    f = jaxify([x, a], x * a, name="scale")
    assert str(inspect.signature(f)) == "(x, a)"
    assert f.__doc__ in repr(f) and repr(f).startswith("JaxFunction(scale: (x: ")
    assert f(XS, 3.0).tolist() == f(a=3.0, x=XS).tolist() == (3 * XS).tolist()
    assert inspect.signature(f).bind(XS, a=1).arguments.keys() == {"x", "a"}


def test_the_doc_of_a_python_function():
    def scale(x, a):
        """Scale x by a."""
        return x * a

    f = jaxify(scale)
    assert (f.__name__, f.__doc__) == ("scale", "Scale x by a.")
    assert list(inspect.signature(f).parameters) == ["x", "a"]


def test_numbers_lists_and_arrays_are_taken():
    f = cubes()
    for a in (2, 2.0, np.float32(2), np.int8(2), jnp.asarray(2.0), True):
        for x in ([1.0, 2.0], [1, 2], np.array([1, 2], dtype="int16"), jnp.array([1.0, 2.0])):
            actual = f(a, x)
            assert float(actual) == 9.0 * float(a) and actual.dtype == "float64"


@pytest.mark.parametrize("shape", [(None,), (3,)])
@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_an_array_that_fits_is_not_looked_at_twice(kind, shape, monkeypatch):
    x = pt.tensor("x", shape=shape, dtype="float64")
    f = jaxify([x], x.sum())
    long = kind(np.ones(4))
    if shape == (3,):
        with pytest.raises(LoopTypeError, match=r"shape \(3\), but float64, shape \(4,\)"):
            f(long)
    for bad in (np.ones((3, 1)), np.ones(3, dtype=complex)):
        with pytest.raises(LoopTypeError, match="Input 'x'"):
            f(kind(bad))
    monkeypatch.delattr("loopax.jax_backend.callable.arguments.accept")
    assert float(f(kind(XS))) == XS.sum()


def test_no_weak_types_come_out():
    a = pt.dscalar("a")
    f = jaxify([a], [a * 2, pt.constant(1.5), a])
    assert not any(x.aval.weak_type for x in f(2.0))
    out = jax.eval_shape(f, 2.0)
    assert not any(x.weak_type for x in out)


# -- pickling --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("called", [False, True])
def test_a_function_pickles(called):
    f = power()
    if called:
        assert float(f(2.0, 3)) == 8.0
    again = pickle.loads(pickle.dumps(f))
    assert float(again(2.0, 3)) == 8.0 and str(inspect.signature(again)) == "(a, n)"
    assert again.__name__ == f.__name__


def test_what_transformations_make_of_a_function_pickles():
    f = power()
    f(2.0, 3)
    by_loopax = pickle.loads(pickle.dumps(loopax.grad(f)))
    assert float(by_loopax(2.0, 3)) == 12.0 and by_loopax.__name__ == loopax.grad(f).__name__
    # JAX copies the attributes of a function to what it makes of it; cloudpickle writes them.
    copied = {k: v for k, v in vars(jax.grad(f)).items() if k != "__wrapped__"}
    assert "program" in pickle.loads(pickle.dumps(copied))


@pytest.mark.parametrize("transform", [jax.grad, jax.jit, loopax.grad])
def test_what_transformations_make_of_a_function_goes_to_other_processes(transform):
    cloudpickle = pytest.importorskip("cloudpickle")
    f = transform(power())
    f(2.0, 3)
    again = cloudpickle.loads(cloudpickle.dumps(f))
    assert float(again(2.0, 3)) == float(f(2.0, 3))


def test_a_pickled_function_keeps_names_and_structure():
    a, x = pt.dscalar("a"), pt.dvector("x")
    f = jaxify([x, a], {"y": (x * a,)}, name="scale")
    again = pickle.loads(pickle.dumps(f))
    chex.assert_trees_all_equal(again(XS, a=3.0), {"y": (jnp.asarray(3 * XS),)})
    assert again.__name__ == "scale"


def test_a_pickled_function_takes_its_shared_values_along():
    a, w = pt.dscalar("a"), pytensor.shared(np.ones(2), name="w")
    f = jaxify([a], a * w)
    again = pickle.loads(pickle.dumps(f))
    w.set_value(np.zeros(2))
    assert again(2.0).tolist() == [2, 2] and f(2.0).tolist() == [0, 0]


# -- shared variables --------------------------------------------------------------------------------------


def test_shared_values_are_read_afresh_without_recompiling():
    traces = Traces()
    a, w = pt.dscalar("a"), pytensor.shared(np.array([1.0, 2.0]), name="w")
    f = jaxify([a], traces(a * w))
    assert f(2.0).tolist() == [2, 4]
    w.set_value(np.array([5.0, 6.0]))
    assert f(2.0).tolist() == [10, 12]
    assert traces.count == 1
    w.set_value(np.ones(3))
    assert f(2.0).tolist() == [2, 2, 2] and f(1.0).tolist() == [1, 1, 1]
    assert traces.count == 2


def test_a_change_in_place_is_seen():
    a, w = pt.dscalar("a"), pytensor.shared(np.array([1.0, 2.0]), name="w", borrow=True)
    f = jaxify([a], a * w)
    actual = f(2.0)
    w.get_value(borrow=True, return_internal_type=True)[:] = 7.0
    assert f(2.0).tolist() == [14, 14]
    assert actual.tolist() == [2, 4]


def test_pytensor_updates_of_a_shared_variable_are_seen():
    w = pytensor.shared(np.zeros(2), name="w")
    step = pytensor.function([], [], updates={w: w + 1}, mode="FAST_COMPILE")
    f = jaxify([], w * 10)
    for k in range(3):
        assert f().tolist() == [10.0 * k] * 2
        step()


def test_a_shared_value_that_makes_a_shape_recompiles():
    n = pytensor.shared(np.asarray(2), name="n")
    x = pt.dscalar("x")
    f = jaxify([x], pt.full((n,), x))
    assert f(1.5).tolist() == [1.5] * 2
    n.set_value(np.asarray(4))
    assert f(1.5).tolist() == [1.5] * 4
    assert jax.jit(f)(2.5).tolist() == [2.5] * 4


def test_under_a_foreign_jit_shared_values_are_captured():
    a, w = pt.dscalar("a"), pytensor.shared(np.array([1.0, 2.0]), name="w", borrow=True)
    f = jaxify([a], a * w)
    foreign = jax.jit(f)
    assert foreign(2.0).tolist() == [2, 4]
    w.get_value(borrow=True, return_internal_type=True)[:] = 100.0
    assert foreign(2.0).tolist() == [2, 4] and foreign(3.0).tolist() == [3, 6]
    assert f(2.0).tolist() == [200, 200]
    assert jax.grad(lambda a: f(a).sum())(1.0) == 200


# -- compiling again ---------------------------------------------------------------------------------------


def test_a_change_of_shape_compiles_once_more():
    traces = Traces()
    x = pt.dvector("x")
    f = jaxify([x], traces(x).sum())
    for values in ([1.0, 2.0], [3.0, 4.0], [1.0, 2.0, 3.0], [5.0, 6.0], [4.0, 5.0, 6.0]):
        assert float(f(values)) == sum(values)
    assert traces.count == 2


def test_the_kind_of_array_does_not_compile_again():
    traces = Traces()
    x = pt.dvector("x")
    f = jaxify([x], traces(x) * 2)
    for values in ([1.0, 2.0], np.array([1, 2]), jnp.array([1.0, 2.0]), jnp.array([1, 2])):
        assert f(values).tolist() == [2, 4]
    assert traces.count == 1


def trace_of(x, traces):
    n = pt.lscalar("n")
    return n, scan(lambda s: traces(s + 1), outputs_info=x, n_steps=n)


def test_n_steps_as_an_input_compiles_once_for_each_value():
    traces, x = Traces(), pt.dscalar("x")
    n, ys = trace_of(x, traces)
    f = jaxify([x, n], ys)
    counts = []
    for k in (3, 3, 2, 3, 2, 0):
        assert f(1.0, k).tolist() == [2.0 + j for j in range(k)]
        counts.append(traces.count)
    steps = np.diff(counts)
    assert steps[0] == 0 and steps[1] > 0 and (steps[2:4] == 0).all() and steps[4] > 0


def test_a_traced_number_of_steps_compiles_once():
    traces, x = Traces(), pt.dscalar("x")
    n, ys = trace_of(x, traces)
    f = jaxify([x, n], ys[-1])
    assert [float(f(1.0, k)) for k in (3, 5, 0)][:2] == [4.0, 6.0]
    assert traces.count == 1
    assert float(jax.jit(f)(1.0, jnp.asarray(4))) == 5.0


def test_concrete_numbers_are_static_under_the_callers_transformations():
    f = power()
    assert float(jax.grad(f)(2.0, 3)) == 12.0
    assert float(jax.jit(jax.grad(partial(f, n=4)))(2.0)) == 32.0
    assert jax.vmap(f, in_axes=(0, None))(jnp.array([1.0, 2.0]), 3).tolist() == [1, 8]
    assert float(jax.hessian(f)(2.0, np.asarray(3))) == 12.0


def test_a_length_without_a_bound_recompiles_for_each_value_and_says_so_once():
    x = pt.dvector("x")
    f = jaxify([x], pt.alloc(x[0], pt.cast(x.sum(), "int64")))
    assert f([1.0, -1.0, 3.0]).tolist() == [1, 1, 1]
    with pytest.warns(
        UserWarning, match="makes a shape of the values of 'x'.*compiled again for each"
    ):
        assert f([-1.0, -1.0, 3.0]).tolist() == [-1]
    assert f([2.0, -4.0, 6.0]).tolist() == [2] * 4


def test_a_static_input_of_another_sign_of_zero_or_type_is_another_value():
    x = pt.dscalar("x")
    f = jaxify([x], pt.zeros((pt.switch(pt.gt(1 / x, 0), 2, 3),)))
    with np.errstate(divide="ignore"):
        assert (f(0.0).shape, f(-0.0).shape, f(0.0).shape) == ((2,), (3,), (2,))


# -- values that make shapes, under foreign tracers --------------------------------------------------


def test_a_tracer_that_makes_a_shape_is_refused_with_what_to_write():
    n, x = pt.lscalar("n"), pt.dscalar("x")
    f = jaxify([x, n], pt.full((n,), x))
    with pytest.raises(DynamicShapeError) as caught:
        jax.jit(f)(1.0, 3)
    message = str(caught.value)
    for part in (
        "Alloc needs the value of 'n' of type Scalar(int64, shape=())",
        "'n' (argument 1), of which only a tracer arrives",
        "jax.jit(f, static_argnums=(1,))",
        "functools.partial(f, n=...)",
    ):
        assert part in message
    # what the message says works
    assert jax.jit(f, static_argnums=(1,))(1.0, 3).tolist() == [1, 1, 1]
    assert jax.jit(partial(f, n=3))(1.0).tolist() == [1, 1, 1]


@pytest.mark.parametrize("known", [False, True])
def test_a_tracer_is_refused_also_where_the_input_is_known_to_be_static(known):
    x = pt.dvector("x")
    f = jaxify([x], pt.cumsum(pt.alloc(x[0], pt.cast(x.sum(), "int64")))[-1])
    if known:
        assert float(f([2.0, 1.0])) == 6.0
    for transformed, at in [(jax.jit(f), XS), (jax.grad(f), XS), (jax.vmap(f), XS[None])]:
        with pytest.raises(DynamicShapeError, match=r"'x' \(argument 0\), of which only a tracer"):
            transformed(jnp.asarray(at))
    assert float(f([2.0, 1.0])) == 6.0


def test_several_tracers_are_named():
    n, m = pt.lscalar("n"), pt.lscalar("m")
    f = jaxify([n, m], pt.zeros((n + m,)))
    with pytest.raises(
        DynamicShapeError, match=r"'n' \(argument 0\), 'm' \(argument 1\).*\(0, 1\)"
    ):
        jax.jit(f)(1, 2)
    with pytest.raises(DynamicShapeError, match=r"follows from 'm' \(argument 1\), of which"):
        jax.jit(lambda m: f(1, m))(2)
    assert f(1, 2).shape == (3,)


# -- threads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["variables", "python function", "static"])
def test_threads_that_call_first_at_once(kind):
    traces = Traces()
    x, n = pt.dvector("x"), pt.lscalar("n")
    if kind == "variables":
        f = jaxify([x], traces(pt.exp(x)).sum())
        expected = np.exp(XS).sum()
    elif kind == "python function":
        f = jaxify(lambda x: traces(pt.exp(x)).sum())
        expected = np.exp(XS).sum()
    else:
        f = partial(jaxify([x, n], traces(pt.tile(x, n)).sum()), n=2)
        expected = 2 * XS.sum()
    barrier = Barrier(8)

    def call(k):
        barrier.wait()
        return float(f(XS) if k % 2 else jax.jit(f)(jnp.asarray(XS)))

    with ThreadPoolExecutor(8) as pool:
        actual = list(pool.map(call, range(8)))
    np.testing.assert_allclose(actual, [expected] * 8)


def test_options_are_checked():
    x = pt.dscalar("x")
    with pytest.raises(ValueError, match="on_missing must be 'callback' or 'raise', got 'ignore'"):
        jaxify([x], x, on_missing="ignore")
    with pytest.raises(ValueError, match="backend must be one of .*, got 'numpy'"):
        jaxify([x], x, backend="numpy")


def test_threads_that_make_functions_leave_pytensors_configuration_alone():
    before = pytensor.config.traceback__limit

    def make(k):
        x = pt.dvector("x")
        return float(jaxify([x], pt.log(pt.exp(x * k).sum()))(XS))

    with ThreadPoolExecutor(6) as pool:
        actual = list(pool.map(make, range(1, 13)))
    np.testing.assert_allclose(actual, [np.log(np.exp(XS * k).sum()) for k in range(1, 13)])
    assert pytensor.config.traceback__limit == before


def test_a_length_that_no_bound_is_known_of():
    """The error says what to write, and that runs."""
    n, x = pt.lscalar("n"), pt.dvector("x")
    for of_length in (lambda n: pt.arange(n).sum(), lambda n: pt.repeat(x, n).sum()):
        with pytest.raises(DynamicShapeError, match=r"with pt.minimum\(n, 100\) in the place of n"):
            jax.jit(jaxify([n, x], of_length(n)))(3, np.ones(2))
        bounded = jaxify([n, x], of_length(pt.minimum(n, 100)))
        np.testing.assert_allclose(jax.jit(bounded)(3, np.ones(2)), bounded(3, np.ones(2)))
    with pytest.raises(DynamicShapeError) as caught:
        jax.jit(jaxify([n], pt.eye(n)))(3)
    assert "pt.minimum" not in str(caught.value)  # of a matrix two lengths would be open
