"""``jaxify(..., checks="nan")``: the first state, trace row or output that is not finite, in all forms."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import NonFiniteError, jaxify
from tests.programs.record import ifelse
from tests.support.forms import FORMS, in_jax, over

in_all_forms = over("numba", "native", "xla", "auto")
x, xs = pt.dscalar("x"), pt.dvector("xs")


def looked_at(inputs, outputs, form, **options):
    return jaxify(inputs, outputs, checks="nan", **form, **options)


def raised(call):
    with pytest.raises(NonFiniteError) as caught:
        call()
    return caught.value


def garch(a, returns):
    def day(variance, r):
        variance = 0.1 + a * r**2 + 0.8 * variance
        return variance, variance

    _, variances = loopax.scan(day, 1.0, returns, name="garch")
    return -(pt.log(variances) + returns**2 / variances).sum()


RETURNS = np.random.default_rng(0).normal(size=200)
WITH_NAN = np.where(np.arange(200) == 137, np.nan, RETURNS)


@pytest.mark.sampled(1)
@in_all_forms
def test_step_name_and_line_of_a_state(form):
    f = looked_at([x, xs], garch(x, xs), form)
    np.testing.assert_allclose(
        f(0.1, RETURNS), garch(pt.constant(0.1), pt.constant(RETURNS)).eval()
    )
    error = raised(lambda: f(0.1, WITH_NAN))
    assert error.steps == (137,)
    assert "state variance is nan at step 137 of loop 'garch'" in str(error)
    assert "test_nan_checks.py:" in str(error)
    f(0.1, RETURNS)  # it can be called again


@pytest.mark.sampled(3)
@in_all_forms
@pytest.mark.parametrize(("bad", "kind"), [(np.inf, "infinite"), (-np.inf, "minus infinity")])
def test_infinities(form, bad, kind):
    total, _ = loopax.scan(lambda total, x: (total + x, None), 0.0, xs)
    f = looked_at([xs], total, form)
    assert f"state total is {kind} at step 2 " in str(raised(lambda: f([1.0, 2.0, bad, 3.0])))


@pytest.mark.sampled(1)
@in_all_forms
def test_loops_in_loops(form):
    m = pt.dmatrix("m")

    def row(total, r):
        inner, _ = loopax.scan(lambda s, v: (s + v, None), 0.0, r, name="inner")
        return total + inner, inner

    total, sums = loopax.scan(row, 0.0, m, name="outer")
    f = looked_at([m], {"total": total, "sums": sums}, form)
    values = np.ones((6, 30))
    f(values)
    values[3, 17] = values[4, 2] = np.nan
    error = raised(lambda: f(values))
    assert error.steps == (3, 17)
    assert "state s is nan at outer step 3, step 17 of loop 'inner'" in str(error)
    assert "in loop 'outer'" in str(error)


@pytest.mark.slow
@in_all_forms
def test_three_loops(form):
    t = pt.tensor3("t", dtype="float64")

    def last(s, v):
        return pt.minimum(s + v, 5.0), None  # which an infinity leaves

    def middle(s, r):
        return loopax.scan(last, s, r)[0], None

    total, _ = loopax.scan(lambda s, m: (loopax.scan(middle, s, m)[0], None), 0.0, t)
    f = looked_at([t], total, form)
    values = np.zeros((2, 3, 4))
    f(values)
    values[1, 2, 3] = -np.inf
    assert raised(lambda: f(values)).steps == (1, 2, 3)


@pytest.mark.sampled(1)
@in_all_forms
def test_what_becomes_finite_again(form):
    def step(s, v):
        s = pt.switch(pt.isnan(s), 0.0, s) + v
        return s, None

    total, _ = loopax.scan(step, 0.0, xs)
    f = looked_at([xs], pt.minimum(total, 10.0), form)
    assert f([1.0, 2.0]) == 3.0
    assert raised(lambda: f([1.0, np.nan, 2.0, 3.0])).steps == (1,)


@pytest.mark.sampled(1)
@in_all_forms
def test_rows_of_a_trace_that_are_masked_outside(form):
    logs = loopax.map(lambda v: pt.log(v), xs)
    f = looked_at([xs], pt.switch(pt.isinf(logs), 0.0, logs).sum(), form)
    f([1.0, 2.0])
    assert "trace y is minus infinity at step 1 " in str(raised(lambda: f([1.0, 0.0, 2.0])))


@pytest.mark.sampled(3)
@in_all_forms
def test_an_inner_infinity_that_a_mask_throws_away(form):
    def step(s, v):
        return s + pt.switch(v > 0, pt.log(v), 0.0), s / pt.switch(v > 0, v, 1.0)

    total, ys = loopax.scan(step, 0.0, xs)
    f = looked_at([xs], [total, ys], form)
    np.testing.assert_allclose(f([1.0, 0.0, 2.0])[0], np.log(2.0))


@in_all_forms
def test_what_nothing_needs(form):
    total, logs = loopax.scan(lambda s, v: (s + v, pt.log(v)), 0.0, xs)
    assert looked_at([xs], total, form)([1.0, 0.0]) == 1.0


@pytest.mark.sampled(1)
@in_all_forms
def test_branches(form):
    def logs(v):
        return loopax.scan(lambda s, r: (s + pt.log(r), None), 0.0, v, name="logs")[0]

    y = loopax.cond(x > 0, logs, lambda v: v.sum(), xs)
    f = looked_at([x, xs], y, form)
    assert f(-1.0, [1.0, 0.0]) == 1.0
    f(1.0, [1.0, 2.0])
    assert raised(lambda: f(1.0, [1.0, 0.0])).steps == (1,)


@pytest.mark.slow
@in_all_forms
def test_branches_of_pytensor(form):
    def clipped(s, r):
        return pt.maximum(s + pt.log(r), -9.0), None

    y = ifelse(x > 0, loopax.scan(clipped, 0.0, xs)[0], xs.sum())
    f = looked_at([x, xs], y, form)
    assert f(-1.0, [1.0, 0.0]) == 1.0
    assert raised(lambda: f(1.0, [1.0, 2.0, np.nan])).steps == (2,)


@pytest.mark.sampled(1)
@in_all_forms
def test_branches_in_steps(form):
    def step(s, v):
        s = loopax.cond(v > 0, lambda s, v: s + v, lambda s, v: s + pt.log(v), s, v)
        return s, s

    _, ys = loopax.scan(step, 0.0, xs)
    f = looked_at([xs], ys, form)
    assert raised(lambda: f([1.0, 2.0, -1.0])).steps == (2,)


@pytest.mark.sampled(1)
@in_all_forms
def test_loops_of_unknown_length(form):
    y = loopax.while_loop(lambda c: c < x, lambda c: c * c, 2.0, name="squares")
    f = looked_at([x], y, form)
    assert f(100.0) == 256.0
    error = raised(lambda: f(np.inf))
    assert "state c is infinite at step 9 of loop 'squares'" in str(error)


@pytest.mark.sampled(1)
@in_all_forms
def test_loops_that_stop(form):
    def step(c, v):
        return c / v, c, c > 100.0

    final, ys, _ = loopax.scan(step, 1.0, xs)
    f = looked_at([xs], final, form)
    f([0.5, 0.5])
    assert raised(lambda: f([0.5, 0.0, 1.0, 1.0])).steps == (1,)


@pytest.mark.sampled(1)
@in_all_forms
def test_loops_backwards(form):
    total, _ = loopax.scan(lambda s, v: (s + v, None), 0.0, xs, reverse=True)
    f = looked_at([xs], total, form)
    assert raised(lambda: f([np.nan, 1.0, 2.0])).steps == (2,)


@pytest.mark.sampled(1)
@in_all_forms
def test_loops_of_pytensor(form):
    h = pytensor.scan(
        lambda v, h: pt.sqrt(h) + v,
        sequences=[xs],
        outputs_info=[pt.ones(())],
        return_updates=False,
    )
    h.name = "h"
    f = looked_at([xs], [h[-1], h], form)
    f([1.0, 1.0])
    error = raised(lambda: f([1.0, -3.0, 1.0, 1.0]))
    assert "state h is nan at step 2 of" in str(error)
    assert error.steps == (2,)
    assert "is nan at step 2 of" in str(error)


@pytest.mark.sampled(1)
@in_all_forms
def test_outputs(form):
    m = pt.dmatrix("m")
    named = (m * 2.0).copy(name="twice")
    f = looked_at([m], {"a": named, "b": [pt.log(m).sum()]}, form)
    values = np.ones((2, 3))
    f(values)
    values[1, 2] = 0.0
    assert "output ['b'][0] is minus infinity." in str(raised(lambda: f(values)))
    values[1, 2] = np.inf
    error = raised(lambda: f(values))
    assert "entry [1, 2] of output 'twice' is infinite." in str(error)
    assert error.steps == ()


@pytest.mark.sampled(1)
@in_all_forms
def test_entries_of_vectors(form):
    m = pt.dmatrix("m")
    total, _ = loopax.scan(lambda s, r: (s * r, None), pt.ones(4), m)
    f = looked_at([m], total, form)
    values = np.ones((3, 4))
    values[1, 2] = np.nan
    assert "entry [2] of state s is nan at step 1 " in str(raised(lambda: f(values)))


@pytest.mark.sampled(2)
@in_all_forms
@pytest.mark.parametrize("n", [0, 1])
def test_few_steps(form, n):
    ints = pt.lvector("ints")

    def step(carry, v):
        s, k = carry
        return (pt.minimum(s, 3.0) / v, k + v), (s, k)

    (s, k), (ys, _) = loopax.scan(step, (np.float32(1.0), 0), ints)
    f = looked_at([ints], [s, k, ys.sum()], form)
    f(np.ones(n, int))
    if n:
        assert raised(lambda: f([0])).steps == (0,)


@pytest.mark.sampled(2)
@in_all_forms
def test_float32(form):
    v = pt.fvector("v")
    total, _ = loopax.scan(lambda s, r: (s * r, None), np.float32(1.0), v)
    f = looked_at([v], total, form)
    assert f(np.full(3, 2.0, "float32")).dtype == "float32"
    assert raised(lambda: f(np.full(60, 10.0, "float32"))).steps == (38,)


@pytest.mark.slow
@in_all_forms
def test_shared_values(form):
    data, total = pytensor.shared(RETURNS, name="data"), pytensor.shared(0.0, name="total")
    y = garch(x, pt.exp(data))
    f = looked_at([x], y, form)
    f(0.1)
    data.set_value(WITH_NAN)
    assert raised(lambda: f(0.1)).steps == (137,)
    g = looked_at([x], y, form, updates={total: total / x})
    data.set_value(RETURNS)
    context, _ = g.apply(g.init_context(), 0.1)
    assert "output 'total', updated is nan" in str(raised(lambda: g.apply(context, 0.0)))


@pytest.mark.sampled(1)
@in_all_forms
def test_functions(form):
    @jaxify(checks="nan", **form)
    def f(a, returns):
        return garch(a, returns)

    f(0.1, RETURNS)
    assert raised(lambda: f(0.1, WITH_NAN)).steps == (137,)


@pytest.mark.sampled(1)
@in_all_forms
def test_pickled(form):
    f = pickle.loads(pickle.dumps(looked_at([x, xs], garch(x, xs), form)))
    assert raised(lambda: f(0.1, WITH_NAN)).steps == (137,)


@pytest.mark.slow
@in_jax
def test_under_transformations_of_jax(form):
    f = looked_at([x, xs], garch(x, xs), form)
    plain = jaxify([x, xs], garch(x, xs), **form)
    for transform in (
        jax.jit,
        jax.grad,
        lambda f: jax.jit(jax.value_and_grad(f)),
        lambda f: jax.jit(jax.hessian(f)),
        lambda f: jax.jit(lambda a, r: jax.jvp(f, (a, r), (a, r))),
    ):
        expected, actual = transform(plain)(0.1, RETURNS), transform(f)(0.1, RETURNS)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), actual, expected)
        with pytest.raises(Exception, match="state variance is nan at step 137 of"):
            jax.block_until_ready(transform(f)(0.1, WITH_NAN))
    transform(f)(0.1, RETURNS)


@pytest.mark.slow
@in_jax
def test_rows_of_a_batch(form):
    f = looked_at([x, xs], garch(x, xs), form)
    rows = np.stack([RETURNS] * 6 + [WITH_NAN])
    for transform in (
        lambda f: jax.vmap(f, (None, 0)),
        lambda f: jax.jit(jax.vmap(f, (None, 0))),
        lambda f: jax.jit(jax.vmap(jax.grad(f), (None, 0))),
        lambda f: loopax.vmap(f, (None, 0)),
    ):
        transform(f)(0.1, rows[:6])
        with pytest.raises(
            Exception, match="In row 6 of the batch: state variance is nan at step 137"
        ):
            jax.block_until_ready(transform(f)(0.1, rows))
    twice = jax.jit(jax.vmap(jax.vmap(f, (None, 0)), (0, None)))
    with pytest.raises(Exception, match="In row 0, 6 of the batch"):
        jax.block_until_ready(twice(jnp.array([0.1, 0.2]), rows))


@pytest.mark.sampled(1)
@in_jax
def test_gradients_that_are_not_finite(form):
    f = looked_at([xs], pt.sqrt(xs).sum(), form)
    f([0.0, 1.0])
    assert jax.grad(f)(jnp.array([4.0, 1.0])).tolist() == [0.25, 0.5]
    with pytest.raises(
        Exception, match=r"the gradient by 'xs' is infinite, at \[1\]; the values are"
    ):
        jax.block_until_ready(jax.jit(jax.grad(f))(jnp.array([1.0, 0.0])))


@pytest.mark.slow
def test_gradients_and_batches_of_native_code():
    f = looked_at([x, xs], garch(x, xs), FORMS["numba"])
    g = loopax.grad(f)
    expected = loopax.grad(jaxify([x, xs], garch(x, xs), backend="numba"))(0.1, RETURNS)
    np.testing.assert_allclose(g(0.1, RETURNS), expected)
    assert "state variance is nan at step 137 of" in str(raised(lambda: g(0.1, WITH_NAN)))
    assert "test_nan_checks.py:" in str(raised(lambda: g(0.1, WITH_NAN)))
    batch = loopax.vmap(f, (None, 0))
    rows = np.stack([RETURNS] * 6 + [WITH_NAN])
    np.testing.assert_allclose(batch(0.1, rows[:6]), f(0.1, RETURNS))
    error = raised(lambda: batch(0.1, rows))
    assert (error.row, error.steps) == ((6,), (137,))
    assert "In row 6 of the batch: state variance is nan at step 137" in str(error)
    in_parts = loopax.vmap(f, (None, 0), batch_size=4)
    assert raised(lambda: in_parts(0.1, rows)).row == (6,)
    assert raised(lambda: pickle.loads(pickle.dumps(batch))(0.1, rows)).row == (6,)
    of_function = jaxify(garch, checks="nan", backend="numba")
    assert raised(lambda: loopax.vmap(of_function, (None, 0))(0.1, rows)).row == (6,)
    assert raised(lambda: f.as_jax()(0.1, WITH_NAN)).steps == (137,)


def test_assertions_raise():
    from pytensor.raise_op import Assert

    y = Assert("x is above 0")(x, x > 0)
    for form in FORMS.values():
        with pytest.raises(AssertionError, match="x is above 0"):
            looked_at([x], pt.sqrt(y), form)(-1.0)


def test_nothing_without_the_option():
    y = garch(x, xs)
    plain, other = (jaxify([x, xs], y, backend="numba", checks=c) for c in (None, "raise"))
    looking = looked_at([x, xs], y, FORMS["numba"])
    assert plain.source == other.source
    assert len(looking.program.graph.outputs) == len(plain.program.graph.outputs) + 1
    jaxprs = [
        str(jax.make_jaxpr(jaxify([x, xs], y, loops="xla", checks=c))(0.1, RETURNS))
        for c in ("auto", "ignore")
    ]
    assert jaxprs[0] == jaxprs[1]


def test_arithmetic_has_nothing_in_its_steps():
    def text_of_loops(f):
        lines = f.source.split("\n")
        return [line.strip() for line in lines if line.startswith("        ")]

    plain, looking = (
        jaxify([x, xs], garch(x, xs), backend="numba", checks=c) for c in ("raise", "nan")
    )
    assert text_of_loops(plain) == text_of_loops(looking)


def test_no_other_value():
    with pytest.raises(ValueError, match="checks must be one of"):
        jaxify([x], x, checks="inf")
