"""Objects that `loopax.native` is called with: no trace answers for what an object held before."""

import enum
import gc
import math
import weakref
from dataclasses import dataclass
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import LoopTypeError

native = partial(loopax.native, loops="native", cache=False)


def filtered(a, xs):
    return jax.lax.scan(lambda c, x: (a * c + x, c), 0.0, xs)[0]


class Model:
    def __init__(self, a):
        self.a = a

    def plain(self, xs):
        return filtered(self.a, xs)

    __call__ = plain
    method = native(plain)


@dataclass(slots=True)
class WithSlots:
    a: float

    def plain(self, xs):
        return filtered(self.a, xs)


of_an_object = native(lambda model, xs: model.plain(xs))
of_a_method = native(lambda method, xs: method(xs))

CALLS = {
    "a method of a class": lambda model: model.method,
    "a bound method": lambda model: native(model.plain),
    "a callable object": native,
    "an argument": lambda model: partial(of_an_object, model),
    "a method as an argument": lambda model: partial(of_a_method, model.plain),
    "a partial": lambda model: native(partial(Model.plain, model)),
    "a partial by keyword": lambda model: native(partial(lambda xs, m: m.plain(xs), m=model)),
    "a partial as an argument": lambda model: partial(of_a_method, partial(Model.plain, model)),
    "a native method": lambda model: native(model.method),
}


@pytest.mark.parametrize("case", CALLS)
def test_an_attribute_that_changed_is_read_again(case):
    model, value = Model(0.1), np.array(0.7)
    function = CALLS[case](model)

    def check(a):
        for xs in (jnp.arange(5.0), jnp.arange(5.0 + round(10 * float(a)))):
            np.testing.assert_allclose(function(xs), filtered(a, xs))

    for a in (0.5, 2.0, value, jnp.asarray(0.25), 0.5):
        model.a = a
        check(a)
    model.a = value
    check(0.7)
    value[()] = 3.0
    check(3.0)


@pytest.mark.parametrize("kind", [Model, WithSlots])
def test_equal_objects_share_no_trace(kind):
    first, second = kind(1.0), kind(1.0)
    np.testing.assert_allclose(of_an_object(first, jnp.arange(3.0)), filtered(1.0, jnp.arange(3.0)))
    first.a = 2.0
    xs = jnp.arange(11.0)
    np.testing.assert_allclose(of_an_object(second, xs), filtered(1.0, xs))
    np.testing.assert_allclose(of_an_object(first, xs), filtered(2.0, xs))


def test_traces_are_kept_for_each_state_and_go_with_the_object():
    traces = []

    @native
    def f(model, xs):
        traces.append(model.a)
        return model.plain(xs)

    model, xs = Model(1.0), jnp.arange(4.0)
    for a in (1.0, 2.0, 1.0, 2.0):
        model.a = a
        f(model, xs)
    assert traces == [1.0, 2.0]
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_functions_are_known_by_identity_though_an_object_wraps_them():
    traces = []

    class Scaled:
        def __init__(self):
            self.steps = native(lambda xs: filtered(0.5, xs)), jax.jit(lambda x: 2 * x)

        @native
        def run(self, xs):
            traces.append(xs)
            return self.steps[1](self.steps[0](xs))

    model, xs = Scaled(), jnp.arange(4.0)
    for _ in range(3):
        np.testing.assert_allclose(model.run(xs), 2 * filtered(0.5, xs))
    assert len(traces) == 1


def test_what_cannot_be_compared_counts_by_identity():
    model, xs = Model(0.5), jnp.arange(4.0)
    for _ in range(2):
        model.rows = (k for k in range(3))  # a generator, which no pickle takes
        np.testing.assert_allclose(of_an_object(model, xs), filtered(0.5, xs))


def test_an_object_may_hold_a_tracer():
    xs = jnp.arange(4.0)
    slope = jax.grad(lambda a: Model(a).method(xs))(0.5)
    np.testing.assert_allclose(slope, jax.grad(filtered)(0.5, xs))


def test_an_attribute_that_changes_at_every_call_is_named():
    model = Model(0.0)
    with pytest.warns(UserWarning, match="traced 16 times, because the attribute 'a' changed"):
        for k in range(16):
            model.a = float(k)
            model.method(jnp.arange(2.0))


class Kind(enum.IntEnum):
    SINGLE, DOUBLE = 1, 2


class Shared:
    unit = 2.0

    @native
    @classmethod
    def of_class(cls, xs):
        return cls.unit * filtered(0.5, xs)

    @classmethod
    @native
    def of_class_too(cls, xs):
        return cls.unit * filtered(0.5, xs)

    @native
    @staticmethod
    def static(xs):
        return filtered(0.5, xs)


def test_methods_of_a_class():
    xs = jnp.arange(4.0)
    expected = filtered(0.5, xs)
    for _ in range(2):
        np.testing.assert_allclose(Shared.of_class(xs), Shared.unit * expected)
        np.testing.assert_allclose(Shared().of_class_too(xs), Shared.unit * expected)
        np.testing.assert_allclose(Shared.static(xs), expected)
        Shared.unit = 3.0
    Shared.unit = 2.0


def test_the_class_of_an_argument():
    f = native(lambda kind, xs: kind.unit * filtered(0.5, xs))
    xs = jnp.arange(4.0)
    for unit in (2.0, 3.0):
        Shared.unit = unit
        np.testing.assert_allclose(f(Shared, xs), unit * filtered(0.5, xs))
    Shared.unit = 2.0


def test_numbers_whose_values_tracing_needs_are_fixed():
    """As in plain JAX; other numbers stay arrays, so that a new value of them does not trace again."""
    traced = []

    def filtered(x, *, steps=50, rate=0.9):
        traced.append(isinstance(steps, int))
        return jax.lax.scan(lambda c, i: (c * rate + i, c), x, jnp.arange(steps))

    f = native(filtered)
    for steps, rate, is_traced in [
        (4, 0.9, True),
        (4, 0.5, False),
        (5, 0.5, True),
        (4, 0.1, False),
    ]:
        traced.clear()
        actual = f(1.0, steps=steps, rate=rate)
        assert any(traced) == is_traced, (steps, rate)
        chex.assert_trees_all_close(actual, filtered(1.0, steps=steps, rate=rate), rtol=1e-12)
    value = jax.jit(f, static_argnames="steps")(1.0, steps=3)
    chex.assert_trees_all_close(value, filtered(1.0, steps=3), rtol=1e-12)
    slope = jax.grad(lambda x: f(x, steps=3)[0])(2.0)
    np.testing.assert_allclose(slope, 0.9**3, rtol=1e-12)
    batch = jax.vmap(lambda x: f(x, steps=3)[0])(jnp.arange(3.0))
    expected = [filtered(x, steps=3)[0] for x in (0.0, 1.0, 2.0)]
    np.testing.assert_allclose(batch, expected, rtol=1e-12)
    checked = loopax.native(filtered, checks="nan")
    chex.assert_trees_all_close(checked(1.0, steps=3), filtered(1.0, steps=3), rtol=1e-12)


def test_floats_are_fixed_if_integers_do_not_suffice():
    def halved(x, steps, least):
        x = x + 1 if least > 0.5 else x
        return jax.lax.fori_loop(0, steps, lambda i, c: jnp.maximum(c / 2, least), x)

    f = native(halved)
    for least in (0.2, 0.7, 0.2):
        np.testing.assert_allclose(f(8.0, 3, least), halved(8.0, 3, least), rtol=1e-12)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        f(8.0, 3, jnp.asarray(0.2))


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x, n: jnp.asarray(x)[:n].sum(), (np.arange(6.0), 3)),  # IndexError
        (jax.jit(lambda x, n: x + jnp.zeros(n), static_argnums=1), (1.0, 3)),  # ValueError
        (lambda x, n: x * n.bit_length(), (1.0, 7)),  # AttributeError
        (lambda x, kind: x if kind == Kind.SINGLE else 2 * x, (3.0, Kind.DOUBLE)),
        (jnp.cumsum, (np.eye(2), 1)),
        (jnp.median, (np.eye(3), 1)),
    ],
    ids=["slice", "static", "method", "enumeration", "cumsum", "median"],
)
def test_numbers_are_fixed_whatever_error_tracing_raises(f, args):
    np.testing.assert_allclose(native(f)(*args), f(*args))


def test_an_error_of_the_function_is_raised_at_once():
    calls = []

    def f(x, n):
        calls.append(n)
        raise ValueError("of my own")

    with pytest.raises(ValueError, match="of my own"):
        native(f)(1.0, 2)
    assert len(calls) == 1


def test_zeros_of_two_signs_share_no_trace_and_nan_has_one():
    traced = []

    def f(x, sign):
        traced.append(sign)
        return x * math.copysign(1.0, sign)

    g = native(f)
    for sign in (0.0, -0.0, 0.0, float("nan"), float("nan")):
        np.testing.assert_array_equal(g(1.0, sign), math.copysign(1.0, sign))
    assert len([sign for sign in traced if isinstance(sign, float)]) == 3


def test_equal_numbers_of_other_classes_share_no_trace():
    def brighter(image, gain):
        return image if gain == 1 else image * gain

    f, image = native(brighter), jnp.array([100, 200], jnp.uint8)
    for gain in (2, 2.0, 2, True, 1, 1.0):
        expected = brighter(image, gain)
        actual = f(image, gain)
        assert actual.dtype == expected.dtype, gain
        np.testing.assert_array_equal(actual, expected)


def test_an_array_whose_value_tracing_needs_is_refused():
    f = native(lambda x, n: jnp.zeros(n) + x)
    np.testing.assert_array_equal(f(1.0, 2), [1.0, 1.0])
    f.compile(1.0, 3)
    with pytest.raises((TypeError, jax.errors.ConcretizationTypeError)):
        f(1.0, jnp.asarray(2))


def test_an_argument_without_a_hash_is_named():
    f = native(lambda names, x: filtered(len(names), x))
    with pytest.warns(UserWarning, match="no hash: set.*frozenset"):
        np.testing.assert_allclose(f({"a", "b"}, np.ones(3)), 7.0)
    np.testing.assert_allclose(f({"a"}, np.ones(3)), 3.0)  # the warning is given once
    np.testing.assert_allclose(f(frozenset("abc"), np.ones(2)), 4.0)


@pytest.mark.parametrize(
    "use",
    [
        loopax.compare,
        loopax.diagnose,
        lambda f, x: loopax.grad(f)(x),
        lambda f, x: loopax.vmap(f)(np.full(3, x)),
        lambda f, x: f(pt.dscalar("x")),
    ],
    ids=["compare", "diagnose", "grad", "vmap", "call"],
)
def test_a_variable_is_refused(use):
    f = loopax.native(lambda x: jnp.sin(x))
    with pytest.raises(LoopTypeError, match=r"loopax.from_jax\(f\)\(x\)(.|\n)*jax.grad"):
        use(f, 2.0)
