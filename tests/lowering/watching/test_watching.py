"""`watch`, `breakpoint_if`, `Print` and `watched`: values by step, nothing where nobody watches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.printing import Print

import loopax
from loopax import LoopTypeError, breakpoint_if, jaxify, watch, watched
from tests.programs.record import ifelse
from tests.support.forms import FORMS, in_all_forms, in_jax

x, xs = pt.dscalar("x"), pt.dvector("xs")


def garch(a, returns, see=watch):
    def day(variance, r):
        variance = see(0.1 + a * r**2 + 0.8 * variance, "variance")
        return variance, see(pt.log(variance), "log")

    return loopax.scan(day, 1.0, returns)[1].sum()


def variances(a, returns):
    actual, last = [], 1.0
    for r in returns:
        last = 0.1 + a * r**2 + 0.8 * last
        actual.append(last)
    return np.array(actual)


RETURNS = np.random.default_rng(0).normal(size=20)


def check(record, name, values, steps):
    np.testing.assert_allclose(record[name].values, values, rtol=1e-12)
    np.testing.assert_array_equal(record[name].steps, steps)


@pytest.mark.sampled(1)
@in_all_forms
def test_all_steps_and_the_last_ones(form):
    f = jaxify([x, xs], garch(x, xs), **form)
    expected = variances(0.1, RETURNS)
    out, record = watched(f)(0.1, RETURNS)
    np.testing.assert_allclose(out, f(0.1, RETURNS))
    assert list(record) == ["variance", "log"]
    check(record, "variance", expected, np.arange(20))
    check(record, "log", np.log(expected), np.arange(20))
    _, record = watched(f, last=3)(0.1, RETURNS)
    check(record, "variance", expected[-3:], [17, 18, 19])
    _, record = watched(f, last=50)(0.1, RETURNS)
    check(record, "variance", expected, np.arange(20))
    with pytest.raises(KeyError, match="the names are variance, log"):
        record["sigma"]


def test_nothing_where_nobody_watches():
    plain, with_watch = (garch(x, xs, see) for see in (lambda v, name: v, watch))
    native = [jaxify([x, xs], y, backend="numba").source for y in (plain, with_watch)]
    assert native[0] == native[1]
    fs = [jaxify([x, xs], y, loops="xla") for y in (plain, with_watch)]
    jaxprs = [str(jax.make_jaxpr(f)(0.1, RETURNS)) for f in fs]
    assert jaxprs[0] == jaxprs[1]


def test_the_last_rows_alone_are_stored():
    total, _ = loopax.scan(lambda s, v: (watch(s + v, "s"), None), 0.0, xs)
    f = jaxify([xs], total, backend="numba")
    a_row_for_each_step = "empty((n0,), np.float64)"
    assert a_row_for_each_step in watched(f).source
    assert a_row_for_each_step not in watched(f, last=2).source


@pytest.mark.slow
@in_all_forms
def test_loops_in_loops(form):
    m = pt.dmatrix("m")

    def row(total, r):
        inner, _ = loopax.scan(lambda s, v: (watch(s + v, "s"), None), 0.0, r)
        return watch(total + inner, "total"), None

    f = jaxify([m], loopax.scan(row, 0.0, m)[0], **form)
    values = np.arange(6.0).reshape(2, 3)
    _, record = watched(f)(values)
    check(record, "total", [3.0, 15.0], [0, 1])
    steps = [[i, j] for i in range(2) for j in range(3)]
    check(record, "s", np.cumsum(values, axis=1).ravel(), steps)
    _, record = watched(f, last=2)(values)
    check(record, "s", [7.0, 12.0], [[1, 1], [1, 2]])


@pytest.mark.sampled(2)
@in_all_forms
def test_branches(form):
    def up(s, v):
        return watch(s + v, "up")

    def step(s, v):
        s = loopax.cond(v > 0, up, lambda s, v: watch(s * v, "down"), s, v)
        return s, s

    f = jaxify([xs], loopax.scan(step, 1.0, xs)[1], **form)
    _, record = watched(f)([1.0, -2.0, 3.0, -4.0, 5.0])
    check(record, "up", [2.0, -1.0, 9.0], [0, 2, 4])
    check(record, "down", [-4.0, 4.0], [1, 3])
    _, record = watched(f, last=1)([1.0, -2.0, 3.0, -4.0, 5.0])
    check(record, "down", [4.0], [3])


@in_all_forms
def test_one_name_in_both_branches(form):
    def step(s, v):
        branches = (lambda s, v: watch(s + v, "s"), lambda s, v: watch(s * v, "s"))
        return loopax.cond(v > 0, *branches, s, v), None

    f = jaxify([xs], loopax.scan(step, 1.0, xs)[0], **form)
    _, record = watched(f)([1.0, -2.0, 3.0])
    check(record, "s", [2.0, -4.0, -1.0], [0, 1, 2])


@pytest.mark.sampled(2)
@in_all_forms
def test_arrays_in_branches(form):
    y = loopax.cond(x > 0, lambda v: watch(v * 2.0, "twice").sum(), lambda v: v.sum(), xs)
    f = jaxify([x, xs], y, **form)
    _, record = watched(f)(1.0, [1.0, 2.0])
    check(record, "twice", [[2.0, 4.0]], np.zeros((1, 0)))
    _, record = watched(f)(-1.0, [1.0, 2.0])
    assert record["twice"].values.shape == (0, 2)
    z = ifelse(x > 0, watch(xs * 2.0, "twice").sum(), xs.sum())
    assert watched(jaxify([x, xs], z, **form))(-1.0, [1.0])[1]["twice"].values.shape == (0, 1)


def made_with_print(inputs, outputs, form):
    if "backend" not in form:
        return jaxify(inputs, outputs, **form)
    with pytest.warns(UserWarning, match="run as Python"):
        return jaxify(inputs, outputs, **form)


@in_all_forms
def test_loops_of_pytensor_and_print(form):
    def step(v, h):
        return Print("h")(0.5 * h + v)

    h = pytensor.scan(step, sequences=[xs], outputs_info=[pt.zeros(())], return_updates=False)
    f = made_with_print([xs], watch(h[-1], "last"), form)
    _, record = watched(f)([1.0, 2.0, 3.0])
    check(record, "h", [1.0, 2.5, 4.25], [0, 1, 2])
    check(record, "last", [4.25], np.zeros((1, 0)))


@in_all_forms
def test_print_does_not_print(form, capfd):
    f = made_with_print([x], Print("x")(x) * 2.0, form)
    watched(f)(1.0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.sampled(1)
@in_all_forms
def test_breakpoints(form):
    def step(s, v):
        s = watch(s * v, "s")
        breakpoint_if(s > 10.0)
        return s, s

    f = jaxify([xs], loopax.scan(step, 1.0, xs)[1].sum(), **form)
    out, record = watched(f, last=2)(np.full(8, 2.0))
    np.testing.assert_allclose(out, f(np.full(8, 2.0)))
    check(record, "s", [8.0, 16.0], [2, 3])
    _, record = watched(f, last=2)(np.full(3, 2.0))
    check(record, "s", [4.0, 8.0], [1, 2])
    without = jaxify(
        [xs], loopax.scan(lambda s, v: (s * v, s * v), 1.0, xs)[1].sum(), backend="numba"
    )
    if form == FORMS["numba"]:
        assert f.source == without.source


@pytest.mark.sampled(1)
@in_all_forms
def test_breakpoints_in_branches_and_in_pytensors_loops(form):
    def down(s, v):
        breakpoint_if(v < -1.0)
        return s

    def step(s, v):
        return watch(loopax.cond(v > 0, lambda s, v: s + v, down, s, v), "s"), None

    f = jaxify([xs], loopax.scan(step, 0.0, xs)[0], **form)
    _, record = watched(f)([1.0, -1.0, 2.0, -2.0, 3.0])
    check(record, "s", [1.0, 1.0, 3.0, 3.0], [0, 1, 2, 3])

    def legacy(v, h):
        h = watch(h + v, "h")
        return breakpoint_if(h > 2.0, h)

    h = pytensor.scan(legacy, sequences=[xs], outputs_info=[pt.zeros(())], return_updates=False)
    _, record = watched(jaxify([xs], h, **form))([1.0, 2.0, 3.0])
    check(record, "h", [1.0, 3.0], [0, 1])


@pytest.mark.sampled(1)
@in_all_forms
def test_loops_backwards_that_stop_and_maps(form):
    def step(s, v):
        return watch(s + v, "s"), None

    backwards = jaxify([xs], loopax.scan(step, 0.0, xs, reverse=True)[0], **form)
    check(watched(backwards)([1.0, 2.0, 3.0])[1], "s", [3.0, 5.0, 6.0], [0, 1, 2])
    squares = jaxify([xs], loopax.map(lambda v: watch(v**2, "square") + 1.0, xs).sum(), **form)
    check(watched(squares)([1.0, 2.0])[1], "square", [1.0, 4.0], [0, 1])

    def until(s, v):
        s = watch(s + v, "s")
        return s, None, s > 2.0

    stops = jaxify([xs], loopax.scan(until, 0.0, xs)[0], **form)
    check(watched(stops)([1.0, 2.0, 3.0])[1], "s", [1.0, 3.0], [0, 1])


@pytest.mark.sampled(1)
@in_all_forms
def test_loops_of_unknown_length(form):
    y = loopax.while_loop(lambda s: s < xs.sum(), lambda s: watch(s + 1.0, "s"), 0.0)
    f = jaxify([xs], y, **form)
    check(watched(f, last=2)([3.0])[1], "s", [2.0, 3.0], [1, 2])
    check(watched(f, last=5)([3.0])[1], "s", [1.0, 2.0, 3.0], [0, 1, 2])
    check(watched(f, last=5)([0.0])[1], "s", [], [])
    rows = loopax.while_loop(lambda s: s < 20.0, lambda s: s + watch(s * xs, "row").sum(), 1.0)
    _, record = watched(jaxify([xs], rows, **form), last=2)([1.0, 2.0])
    check(record, "row", [[4.0, 8.0], [16.0, 32.0]], [1, 2])


@pytest.mark.slow
@in_all_forms
def test_inner_loops_of_several_lengths(form):
    m = pt.dmatrix("m")

    def row(carry, r):
        i, s = carry
        s = loopax.fori_loop(0, i, lambda k, s: watch(s + r, "s"), s)
        return (i + 1, s), None

    f = jaxify([m], loopax.scan(row, (0, pt.zeros(2)), m)[0][1], **form)
    values = np.arange(6.0).reshape(3, 2)
    _, record = watched(f, last=2)(values)
    check(record, "s", [[6.0, 8.0], [10.0, 13.0]], [[2, 0], [2, 1]])
    _, record = watched(f, last=9)(values)
    check(record, "s", [[2.0, 3.0], [6.0, 8.0], [10.0, 13.0]], [[1, 0], [2, 0], [2, 1]])
    with pytest.raises(LoopTypeError, match="last=100"):
        watched(f)


@pytest.mark.sampled(3)
@in_all_forms
@pytest.mark.parametrize("n", [0, 1])
def test_few_steps_and_pytrees(form, n):
    f = pt.fvector("f")

    def step(c, v):
        c = watch({"a": c["a"] + v, "k": c["k"] + 1}, "c")
        return c, None

    out = loopax.scan(step, {"a": np.float32(0.0), "k": 0}, f)[0]
    _, record = watched(jaxify([f], out, **form))(np.ones(n, "float32"))
    check(record, "c['a']", np.arange(1, n + 1), np.arange(n))
    assert record["c['a']"].values.dtype == "float32"
    assert record["c['k']"].values.dtype == "int64"


@pytest.mark.sampled(2)
@in_all_forms
def test_functions(form):
    @jaxify(**form)
    def f(a, returns):
        return {"out": garch(a, returns)}

    out, record = watched(f)(0.1, RETURNS)
    assert set(out) == {"out"}
    check(record, "variance", variances(0.1, RETURNS), np.arange(20))
    if "backend" not in form:
        record = watched(lambda a: watch(a * 2.0, "a"))(3.0)[1]
        check(record, "a", [6.0], np.zeros((1, 0)))


@pytest.mark.slow
@in_jax
def test_transformations_of_jax(form):
    f = jaxify([x, xs], garch(x, xs), **form)
    rows = np.stack([RETURNS, 2.0 * RETURNS])
    out, record = jax.jit(jax.vmap(watched(f), (None, 0)))(0.1, rows)
    np.testing.assert_allclose(out, jax.vmap(f, (None, 0))(0.1, rows))
    assert record["variance"].values.shape == (2, 20)
    one = jax.tree.map(lambda leaf: leaf[1], record)
    check(one, "variance", variances(0.1, 2.0 * RETURNS), np.arange(20))
    slope, record = jax.jit(jax.grad(watched(f), has_aux=True))(0.1, RETURNS)
    np.testing.assert_allclose(slope, jax.grad(f)(0.1, RETURNS))
    check(record, "variance", variances(0.1, RETURNS), np.arange(20))


@in_jax
def test_branches_in_a_batch(form):
    y = loopax.cond(x > 0, lambda v: watch(v * 2.0, "up"), lambda v: v, x)
    _, record = jax.vmap(watched(jaxify([x], y, **form)))(jnp.array([1.0, -1.0]))
    assert record["up"].values.shape == (2, 1)
    assert jax.tree.map(lambda leaf: leaf[1], record)["up"].values.shape == (0,)


@pytest.mark.slow
def test_gradients_and_batches_of_native_code():
    f = jaxify([x, xs], garch(x, xs), backend="numba")
    slope, record = loopax.grad(watched(f), has_aux=True)(0.1, RETURNS)
    np.testing.assert_allclose(slope, loopax.grad(f)(0.1, RETURNS))
    check(record, "variance", variances(0.1, RETURNS), np.arange(20))
    _, record = loopax.vmap(watched(f), (None, 0))(0.1, np.stack([RETURNS, 2.0 * RETURNS]))
    np.testing.assert_allclose(record["variance"].values[1], variances(0.1, 2.0 * RETURNS))


def test_a_watched_value_is_the_value():
    y = watch(xs**2, "square").sum()
    f = pytensor.function([xs], [y, pt.grad(y, xs)], mode="FAST_COMPILE")
    assert f([3.0])[1] == [6.0]
    assert pytensor.function([xs], y)([3.0]) == 9.0


@pytest.mark.slow
def test_with_checks():
    f = watched(jaxify([x, xs], garch(x, xs), checks="nan", backend="numba"))
    f(0.1, RETURNS)
    with pytest.raises(loopax.NonFiniteError, match="step 0"):
        f(np.nan, RETURNS)


def test_refusals():
    with pytest.raises(LoopTypeError, match="takes the name as its second argument"):
        watch(x, 3)
    with pytest.raises(LoopTypeError, match="outside the steps"):
        breakpoint_if(x > 0)
    with pytest.raises(LoopTypeError, match="last must be .*, got 0"):
        watched(jaxify([x], x), last=0)
    y = loopax.map(lambda v: watch(v * 2.0, "v"), xs).sum() + watch(x, "v")
    with pytest.raises(LoopTypeError, match="Use two names"):
        watched(jaxify([x, xs], y))
