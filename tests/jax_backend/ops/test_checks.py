"""Assertions about values that are only known when the program runs."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from jax.experimental import checkify
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.scan.utils import until

import loopax
from loopax import jaxify, scan

X = pt.dvector("x")
GOOD, BAD = np.array([1.0, 2.0]), np.array([1.0, -2.0])


def outside(x):
    return (Assert("a {positive} number")(x, pt.all(x > 0)) ** 2).sum()


def in_a_loop(x):
    def step(total, row):
        total = Assert("a {positive} number")(total + row, row > 0)
        return total, total

    return scan(step, pt.constant(0.0), x)[0] ** 2


PROGRAMS = pytest.mark.parametrize("program", [outside, in_a_loop])
TRANSFORMED = {
    "value": lambda f: f,
    "jit": jax.jit,
    "grad": jax.grad,
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([GOOD, x])),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([GOOD, x])),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    "hessian": jax.hessian,
}
IN_A_LOOP = ("value", "jit of grad", "checkpoint", "vmap of grad")
CASES = [(outside, name) for name in TRANSFORMED] + [(in_a_loop, name) for name in IN_A_LOOP]
_MADE = {}


def made(program, checks):
    key = program, checks
    if key not in _MADE:
        _MADE[key] = jaxify([X], program(X), checks=checks)
    return _MADE[key]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("program", "name"), CASES)
@pytest.mark.filterwarnings("ignore:The assertion .* depends on traced values:UserWarning")
def test_checkify_sees_a_check_under_every_transformation(program, name):
    f = TRANSFORMED[name](made(program, "checkify"))
    for call in (checkify.checkify(f), jax.jit(checkify.checkify(f))):
        assert call(jnp.asarray(GOOD))[0].get() is None
        error, _ = call(jnp.asarray(BAD))
        assert "AssertionError: a {positive} number" in error.get()
    error, _ = jax.vmap(checkify.checkify(made(program, "checkify")))(jnp.stack([GOOD, BAD]))
    assert "at mapped index 1:" in error.get() and "index 0:" not in error.get()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("program", "name"), [c for c in CASES if c[1] != "hessian"])
def test_a_check_raises_under_every_transformation(program, name, caplog):
    f = TRANSFORMED[name](made(program, "raise"))
    plain = TRANSFORMED[name](made(program, "ignore"))
    jax.tree.map(np.testing.assert_array_equal, f(jnp.asarray(GOOD)), plain(jnp.asarray(GOOD)))
    with pytest.raises(
        Exception, match=r"AssertionError: a .positive. number|^a .positive. number"
    ):
        jax.block_until_ready(f(jnp.asarray(BAD)))


@PROGRAMS
def test_a_direct_call_raises_what_the_op_does(program, caplog):
    f = made(program, "raise")
    for call in (
        f,
        pickle.loads(pickle.dumps(f)),
        jaxify([X], program(X), checks="raise", jit=False),
    ):
        assert call(GOOD) == made(program, "ignore")(GOOD)
        with pytest.raises(AssertionError, match=r"^a .positive. number$"):
            call(BAD)
    named = CheckAndRaise(ZeroDivisionError, "not zero")(X, pt.neq(X.sum(), 0))
    with pytest.raises(ZeroDivisionError, match="^not zero$"):
        jaxify([X], CheckAndRaise(ZeroDivisionError, "not")(named, X[0] > 0), checks="raise")(
            np.array([1.0, -1.0])
        )


@pytest.mark.sampled(1)
@PROGRAMS
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_by_default_a_direct_call_raises(program, backend):
    y = program(X)
    for options in ({}, {"loops": "xla"}, {"jit": False}) if backend == "jax" else ({},):
        f = jaxify([X], y, backend=backend, **options)
        for _ in range(2):  # the whole way, and the short one
            assert f(GOOD) == made(program, "ignore")(GOOD)
            for bad in (BAD, np.array([-1.0, 2.0, 3.0])):
                with pytest.raises(AssertionError, match=r"^a .positive. number$"):
                    f(bad)
        assert pickle.loads(pickle.dumps(f))(GOOD) == made(program, "ignore")(GOOD)


def stops_early(limit, x):
    small = Assert("a small number")
    state, n = (x[0], pt.constant(0)), pt.cast(limit, "int64")
    return {
        "while": loopax.while_loop(
            lambda s: s[1] < n, lambda s: (small(s[0] * 2, s[0] < 8), s[1] + 1), state, max_steps=20
        )[0],
        "for": loopax.fori_loop(0, n, lambda k, s: small(s * 2, s < 8), x[0], max_steps=20),
        "until": pytensor.scan(
            lambda s, k: ((small(s * 2, s < 8), k + 1), until(k + 1 >= n)),
            outputs_info=[*state],
            n_steps=20,
            return_updates=False,
        )[0][-1],
        "index": loopax.fori_loop(0, n, lambda k, s: s + x[k], x[0], max_steps=20),
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["while", "for", "until", "index"])
@pytest.mark.filterwarnings("ignore:The assertion .* depends on traced values:UserWarning")
def test_in_a_loop_that_stops_early(name):
    """JAX's checkify leaves out the checks in a primitive that it does not know."""
    limit = pt.lscalar("limit")
    kind, message = (IndexError, "out of bounds") if name == "index" else (AssertionError, "small")
    f = jaxify([limit, X], stops_early(limit, X)[name], loops="xla")
    at = np.ones(3)
    for _ in range(2):
        np.testing.assert_allclose(f(3, at), 4.0 if name == "index" else 8.0)
        with pytest.raises(kind, match=message):
            f(6, at)
    if name != "index":
        error, slope = checkify.checkify(jax.grad(f, 1))(3, at)
        assert error.get() is None
        np.testing.assert_allclose(slope, [8.0, 0.0, 0.0])
        assert message in checkify.checkify(jax.grad(f, 1))(6, at)[0].get()


def test_by_default_the_first_check_that_fails_raises_what_it_says():
    named = CheckAndRaise(ZeroDivisionError, "zero")(X, pt.neq(X[0], 0))
    y = CheckAndRaise(ValueError, "zero or less")(named, X[1] > 0) * 2
    f = jaxify([X], y)
    for _ in range(2):
        assert f(GOOD).tolist() == [2, 4]
        with pytest.raises(ZeroDivisionError, match="^zero$"):
            f(np.array([0.0, 1.0]))
        with pytest.raises(ValueError, match="^zero or less$"):
            f(np.array([1.0, 0.0]))


def test_by_default_apply_stateful_and_donating_calls_raise():
    total = pytensor.shared(0.0)
    f = jaxify([X], outside(X) + total, updates={total: total + 1})
    stateful = f.stateful()
    donating = jaxify([X], outside(X) + 0 * X, donate=0)
    for call in (lambda x: f.apply(f.init_context(), x)[1], stateful, donating, jaxify(outside)):
        assert np.all(call(jnp.array(GOOD)) == 5)
        with pytest.raises(AssertionError, match=r"^a .positive. number$"):
            call(jnp.array(BAD))
    assert float(stateful.context.get(total)) == 1  # the call that failed has updated nothing


def test_by_default_a_trace_of_the_callers_has_checkifys_checks():
    f = jaxify([X], outside(X), loops="xla")
    assert f(GOOD) == 5  # and no warning
    with pytest.warns(UserWarning, match=r"depends on traced.*checkify.*checks=\"raise\""):
        assert jax.jit(f)(BAD) == 5
    assert jax.grad(f)(BAD).tolist() == [2, -4]  # said once
    assert jax.jit(lambda x: x + f(BAD))(1.0) == 6  # all of it is part of the trace
    error, _ = jax.jit(checkify.checkify(f))(BAD)
    assert "AssertionError: a {positive} number" in error.get()
    assert "callback" not in str(f._execution.whole.plain.lower(GOOD).as_text())
    plain = jaxify([X], (X**2).sum(), loops="xla")
    plain(GOOD)
    assert len(jax.tree.leaves(plain._execution.whole.plain(GOOD))) == 1  # no flag


def test_apply_and_stateful_raise_too(caplog):
    f = jaxify([X], outside(X), checks="raise")
    for call in (lambda x: f.apply(f.init_context(), x), f.stateful()):
        call(GOOD)
        with pytest.raises(AssertionError, match="positive"):
            call(BAD)
    traced = jaxify(outside, checks="raise")
    with pytest.raises(AssertionError, match="positive"):
        traced(BAD)


def test_a_check_leaves_no_effect_in_the_program():
    for checks in ("ignore", "raise"):
        assert not jax.make_jaxpr(made(outside, checks))(GOOD).effects
    with pytest.warns(
        UserWarning, match=r'depends on traced.*checkify.*checks="raise".*checks="ign'
    ):
        f = jaxify([X], outside(X))
        assert not jax.make_jaxpr(f)(GOOD).effects
    compiled = jax.jit(f).lower(GOOD).compile().as_text()
    assert "multiply" in compiled and "compare" not in compiled


def test_ignored_checks_say_nothing_and_decidable_ones_raise():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jaxify([X], outside(X), checks="ignore")(BAD) == 5
    for checks in ("checkify", "raise", "ignore"):
        f = jaxify([X], Assert("two rows")(X, pt.eq(X.shape[0], 2)), checks=checks)
        with pytest.raises(AssertionError, match="^two rows"):
            f(np.ones(3))


def test_several_conditions_of_one_check(caplog):
    f = jaxify([X], Assert("both")(X, X[0] > 0, X[1] > 0), checks="raise")
    assert f(GOOD).tolist() == GOOD.tolist()
    for x in (BAD, -BAD):
        with pytest.raises(AssertionError, match="^both$"):
            f(x)


def test_a_static_value_with_a_traced_condition(caplog):
    f = jaxify([X], Assert("positive")(pt.constant(3.0), X[0] > 0) * 2, checks="raise")
    assert f(GOOD) == 6
    with pytest.raises(AssertionError, match="^positive$"):
        f(-GOOD)


def test_other_values_of_checks():
    with pytest.raises(
        ValueError, match=r"checks must be one of .'auto', 'checkify', 'raise', 'ignore'.*'rais'"
    ):
        jaxify([X], X, checks="rais")
    assert jaxify([X], X * 2, backend="numba", checks="raise")(GOOD).tolist() == [2, 4]
    for checks in ("checkify", "ignore"):
        message = rf"checks must be one of .'raise', 'nan'. with backend='numba', got '{checks}'"
        with pytest.raises(ValueError, match=message):
            jaxify([X], X, backend="numba", checks=checks)
