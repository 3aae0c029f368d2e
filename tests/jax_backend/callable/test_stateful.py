"""`stateful()`: PyTensor's function, call for call. And `set_value`, threads, pickles."""

import pickle
import threading
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.io import In

from loopax import StatefulFunctionError, jaxify
from tests.support.compare import FAST_COMPILE, FAST_RUN

X = pt.dvector("x")
XS = np.array([0.5, -1.0, 2.0])


def machine():
    """Shared variables of several ranks and dtypes, with updates that read one another."""
    w = pytensor.shared(np.array([1.0, 2.0, 3.0]), name="w")
    n = pytensor.shared(np.int64(1), name="n")
    m = pytensor.shared(np.ones((3, 3), dtype="float32"), name="m")
    fixed = pytensor.shared(np.float64(0.5), name="fixed")
    updates = [(w, w * fixed + X), (n, n + 2), (m, m.T * pt.cast(n, "float32"))]
    return (w, n, m, fixed), [w.sum() * n, m @ w], updates


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("mode", "compiled"),
    [
        pytest.param(FAST_COMPILE, False, id="variables-FAST_COMPILE"),
        # Of variables, only what it is compared with depends on the mode.
        pytest.param(FAST_RUN, False, id="variables-FAST_RUN", marks=pytest.mark.slow),
        pytest.param(FAST_COMPILE, True, id="compiled-FAST_COMPILE"),
        pytest.param(FAST_RUN, True, id="compiled-FAST_RUN"),
    ],
)
@pytest.mark.parametrize("live", [False, True], ids=["own", "live"])
def test_equals_pytensor_call_for_call(mode, compiled, live):
    (w, n, m, fixed), outputs, updates = machine()
    (w2, n2, m2, fixed2), outputs2, updates2 = machine()
    run = pytensor.function([X], outputs, updates=updates, mode=mode)
    if compiled:
        f = jaxify(pytensor.function([X], outputs2, updates=updates2, mode=mode))
    else:
        f = jaxify([X], outputs2, updates=updates2)
    g = f.stateful(live=live)
    for k in range(4):
        for actual, expected in zip(g(XS * k), run(XS * k), strict=True):
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(actual, expected, rtol=1e-12)
        for mine, theirs in ((w2, w), (n2, n), (m2, m)):
            np.testing.assert_allclose(g.context[mine], theirs.get_value(), rtol=1e-6)
            if live:
                assert mine.get_value().dtype == theirs.get_value().dtype
                np.testing.assert_allclose(mine.get_value(), theirs.get_value(), rtol=1e-6)
        if k == 1 and live:
            fixed.set_value(2.0)
            fixed2.set_value(2.0)
    if not live:
        np.testing.assert_allclose(w2.get_value(), [1.0, 2.0, 3.0])


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_random_updates(seed):
    """Random sums of shared variables as updates of one another, some of them left alone."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 5))
    start = random.normal(size=(count, 2))

    def build():
        shared = [pytensor.shared(start[k].copy(), name=f"s{k}") for k in range(count)]
        fresh = np.random.default_rng(seed + 1)
        terms = [*shared, X[:2]]

        def term():
            a, b = (terms[int(fresh.integers(len(terms)))] for _ in range(2))
            return pt.tanh(a) * 0.5 + b * float(fresh.normal())

        updates = {s: term() for s in shared if fresh.random() < 0.7}
        return shared, term(), updates

    shared, out, updates = build()
    run = pytensor.function([X], out, updates=updates, mode=FAST_COMPILE, on_unused_input="ignore")
    mine, out, updates = build()
    g = jaxify([X], out, updates=updates).stateful()
    for k in range(3):
        np.testing.assert_allclose(g(XS + k), run(XS + k), rtol=1e-10)
    for theirs, own in zip(shared, mine, strict=True):
        if own in updates:
            np.testing.assert_allclose(g.context[own], theirs.get_value(), rtol=1e-10)


def test_default_updates_and_givens():
    count = pytensor.shared(np.int64(0), name="count")
    with pytest.warns(DeprecationWarning, match="default_update"):
        count.default_update = count + 1
    n = pt.lscalar("n")
    g = jaxify([X], X.sum() * n, givens={n: count}).stateful()
    assert [float(g(XS)) for _ in range(3)] == [0.0, 1.5, 3.0]


def test_an_input_that_stands_for_a_shared_variable():
    w, v = pytensor.shared(2.0, name="w"), pt.dscalar("v")
    run = pytensor.function([In(v, value=w, update=v + 1), X], v * X, mode=FAST_COMPILE)
    for f in (jaxify(run), jaxify([In(v, value=w, update=v + 1), X], v * X)):
        g = f.stateful()
        assert [float(g(XS)[2]) for _ in range(3)] == [4.0, 6.0, 8.0]
    assert w.get_value() == 2.0


def test_an_update_of_a_given_input_has_no_effect():
    v = pt.dscalar("v")
    run = pytensor.function([In(v, update=v + 1)], v * 2, mode=FAST_COMPILE)
    for f in (jaxify(run), jaxify([In(v, update=v + 1)], v * 2)):
        assert float(f(3.0)) == float(f(3.0)) == float(run(3.0)) == 6.0


def test_its_own_context():
    n = pytensor.shared(np.int64(0), name="n")
    f = jaxify([], n, updates={n: n + 1})
    one, other = f.stateful(), f.stateful()
    assert [int(one()), int(one()), int(other())] == [0, 1, 0]
    third = one.copy()
    assert [int(third()), int(one()), int(one())] == [2, 2, 3]
    one.context = one.context.set(n, 10)
    assert int(one()) == 10
    assert [int(g()) for g in pickle.loads(pickle.dumps([one, third]))] == [11, 3]
    assert "StatefulFunction" in repr(one) and "live" in repr(f.stateful(live=True))
    with pytest.raises(StatefulFunctionError, match=r"is live: .*Set them with variable.set_value"):
        f.stateful(live=True).context = one.context


def test_a_context_of_another_type_is_refused():
    n = pytensor.shared(np.int64(0), name="n")
    g = jaxify([], n, updates={n: n + 1}).stateful()
    with pytest.raises(
        StatefulFunctionError, match=r"must be a JaxContext.*got \{'n': 1\} of type dict"
    ):
        g.context = {"n": 1}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("live", [False, True], ids=["own", "live"])
def test_a_function_of_jax_mode_with_a_generator(live):
    """That mode keeps a dict in a shared variable of its own, in the place of the generator."""
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    next_rng, z = rng.normal(size=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "The RandomType SharedVariables ..."
        run = pytensor.function([], z, updates={rng: next_rng}, mode="JAX")
    g = jaxify(run).stateful(live=live)
    draws = np.array([f() for f in (run, g, run, g, g)])
    if not live:  # It starts from the same key, and the mode splits keys as we do.
        np.testing.assert_allclose(draws[[1, 3]], draws[[0, 2]])
        draws = draws[[1, 3, 4]]
    assert np.unique(draws).size == draws.size


def test_under_a_transformation():
    n = pytensor.shared(np.float64(0.0), name="n")
    f = jaxify([X], n * X, updates={n: n + X.sum()})
    for g in (f.stateful(), f.stateful(live=True)):
        with pytest.raises(
            StatefulFunctionError, match=r"would turn them into tracers.*apply\(ctx"
        ):
            jax.jit(g)(XS)
        np.testing.assert_allclose(g(XS), 0 * XS)
        np.testing.assert_allclose(g(XS), 1.5 * XS)


def test_a_traced_function_keeps_what_each_call_needs():
    w, b = pytensor.shared(2.0, name="w"), pytensor.shared(1.0, name="b")
    with pytest.warns(DeprecationWarning, match="default_update"):
        b.default_update = b * 2

    def f(x):
        return w * x + b if x.type.ndim else w * x

    for live in (False, True):
        g = jaxify(f).stateful(live=live)
        assert float(g(3.0)) == 6.0
        assert [float(g(np.ones(1))[0]) for _ in range(2)] == [3.0, 4.0]
        assert float(g.context["b"]) == 4.0
    assert b.get_value() == 4.0


# -- shared variables and direct calls --------------------------------------------------------------------


def test_set_value_is_seen_without_compiling_again():
    w = pytensor.shared(XS, name="w")
    f = jaxify([], w.sum() * 2)
    assert float(f()) == 3.0
    compiled = f._execution.whole.plain
    for k in range(3):
        w.set_value(XS * k)
        assert float(f()) == 3.0 * k
    assert compiled._cache_size() == 1
    w.set_value(np.ones(5))
    assert float(f()) == 10.0 and float(f()) == 10.0
    assert compiled._cache_size() == 2


def test_an_update_in_place_by_pytensor_is_seen():
    w = pytensor.shared(np.zeros(100), name="w")
    run = pytensor.function([], updates={w: w + 1}, mode="FAST_RUN")
    f = jaxify([], w.sum())
    for k in range(3):
        assert float(f()) == 100.0 * k
        run()
    w.get_value(borrow=True)[:] = 5.0
    assert float(f()) == 500.0


def test_an_update_in_place_does_not_reach_a_call_that_is_running():
    """JAX reads an aligned NumPy array in place, and computes after the call has returned."""
    raw = np.zeros(2000 * 8 + 64, dtype=np.uint8)
    values = raw[-raw.ctypes.data % 64 :][: 2000 * 8].view(np.float64)
    values[:] = 1.0
    w = pytensor.shared(values, name="w", borrow=True)
    product = pt.outer(w[:600], w[:600])
    for _ in range(4):
        product = product @ product * 1e-3
    f = jaxify([], [w.sum() + 0.0 * product.sum(), w])
    f()
    total, kept = f()
    values[:] = 5.0
    assert float(total) == 2000.0 and float(kept[0]) == 1.0


def test_what_a_foreign_jit_captured_stays_captured():
    w = pytensor.shared(XS, name="w")
    f = jaxify([X], w * X)
    captured, explicit = jax.jit(f), jax.jit(f.apply)
    np.testing.assert_allclose(captured(XS), XS**2)
    w.set_value(np.zeros(3))
    w.get_value(borrow=True)[:] = 0.0
    np.testing.assert_allclose(captured(XS), XS**2)
    np.testing.assert_allclose(f(XS), 0.0)
    np.testing.assert_allclose(explicit(f.init_context(), XS)[1], 0.0)


def test_a_large_shared_array_is_an_argument():
    w = pytensor.shared(np.ones(10_000), name="w")
    f = jaxify([X], w.sum() * X)
    text = jax.jit(f.apply).lower(f.init_context(), XS).as_text()
    assert "tensor<10000xf64>" in text and len(text) < 20_000
    assert "constant dense<1.0" not in text


# -- threads ----------------------------------------------------------------------------------------------


def threads(calls, count=16):
    """Run ``calls(k)`` in ``count`` threads at once; raise what any of them raised."""
    failures, start = [], threading.Barrier(count)

    def work(k):
        try:
            start.wait()
            calls(k)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for t in running:
        t.start()
    for t in running:
        t.join()
    if failures:
        raise failures[0]


def contexts_side_by_side(n_calls):
    total = pytensor.shared(np.zeros(3), name="total")
    rows = pytensor.shared(np.int64(2), name="rows")
    f = jaxify([X], [total[:rows].sum(), total.copy()], updates={total: total + X})
    contexts = [f.init_context().set(rows, 1 + k % 3) for k in range(16)]

    def calls(k):
        context, step = contexts[k], XS * (k + 1)
        for done in range(n_calls):
            context, (part, before) = f.apply(context, step)
            np.testing.assert_allclose(before, step * done, rtol=1e-9)
            np.testing.assert_allclose(part, (step * done)[: 1 + k % 3].sum(), rtol=1e-9, atol=1e-9)

    threads(calls)
    assert (total.get_value() == 0).all()


def test_threads_with_contexts_of_their_own():
    """The first call of all, which traces and compiles, is among them."""
    contexts_side_by_side(20)


@pytest.mark.slow
def test_threads_with_contexts_of_their_own_for_many_calls():
    contexts_side_by_side(500)


def test_threads_of_one_stateful_function_take_turns():
    n = pytensor.shared(np.int64(0), name="n")
    g = jaxify([], n, updates={n: n + 1}).stateful()
    seen = []
    threads(lambda k: seen.extend(int(g()) for _ in range(5)), count=8)
    assert sorted(seen) == list(range(40))


def test_results_do_not_depend_on_jit():
    (w, *_), outputs, updates = machine()
    f = jaxify([X], outputs, updates=updates, jit=False)
    context, outs = f.apply(f.init_context(), XS)
    np.testing.assert_allclose(outs[0], 6.0)
    chex.assert_shape(jnp.asarray(context[w]), (3,))
