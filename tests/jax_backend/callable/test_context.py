"""Shared variables as a pytree: `init_context`, `apply`, `SharedContext`."""

import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import DynamicShapeError, LoopTypeError, SharedContext, StatefulFunctionError, jaxify
from tests.support.compare import FAST_COMPILE

X = pt.dvector("x")
XS = np.array([0.5, -1.0, 2.0])


def accumulator():
    """A running sum and a count, of which the second has no name: the variables, and the function."""
    total = pytensor.shared(np.zeros(3), name="total")
    count = pytensor.shared(np.int64(0))
    scale = pytensor.shared(np.float64(2.0), name="scale")
    f = jaxify([X], scale * total + count, updates={total: total + X, count: count + 1})
    return total, count, scale, f


def test_apply_returns_the_next_values():
    total, count, scale, f = accumulator()
    first = f.init_context()
    assert list(first) == ["scale", "total", "shared"]
    second, out = f.apply(first, XS)
    chex.assert_trees_all_equal(np.asarray(out), np.zeros(3))
    third, out = f.apply(second, XS)
    np.testing.assert_allclose(out, 2 * XS + 1)
    np.testing.assert_allclose(third[total], 2 * XS)
    assert int(third["shared"]) == int(third.get(count)) == 2
    # Neither an earlier context nor PyTensor's own values have changed.
    assert int(first[count]) == 0 and float(first[scale]) == 2.0
    assert (total.get_value() == 0).all() and count.get_value() == 0


def test_apply_of_a_function_without_updates():
    w = pytensor.shared(XS, name="w")
    f = jaxify([X], w * X)
    context, out = f.apply(f.init_context(), XS)
    np.testing.assert_allclose(out, XS**2)
    assert context["w"].shape == (3,)
    nothing, out = jaxify([X], X + 1).apply(SharedContext.of(), XS)
    assert len(nothing) == 0 and out.shape == (3,)


def test_scan_over_calls_is_the_calls_one_by_one():
    *_, f = accumulator()
    context, rows = f.init_context(), np.stack([XS, 2 * XS, -XS])
    last, outs = jax.jit(lambda c, r: jax.lax.scan(f.apply, c, r))(context, rows)
    for row, out in zip(rows, outs, strict=True):
        context, expected = f.apply(context, row)
        np.testing.assert_allclose(out, expected)
    chex.assert_trees_all_close(dict(last), dict(context))


def test_vmap_over_contexts():
    *_, f = accumulator()
    one, _ = f.apply(f.init_context(), XS)
    other, _ = f.apply(one, 3 * XS)
    both = jax.tree.map(lambda *xs: jnp.stack(xs), one, other)
    after, outs = jax.vmap(f.apply, in_axes=(0, None))(both, XS)
    for k, context in enumerate((one, other)):
        expected, out = f.apply(context, XS)
        np.testing.assert_allclose(outs[k], out)
        chex.assert_trees_all_close(jax.tree.map(lambda x, k=k: x[k], dict(after)), dict(expected))


def test_gradient_with_respect_to_an_entry():
    w = pytensor.shared(XS, name="w")
    loss = ((w - X) ** 2).sum()
    f = jaxify([X], loss, updates={w: w - 0.1 * pt.grad(loss, w)})
    context = f.init_context()

    def cost(value):
        after, before = f.apply(context.set(w, value), 2 * XS)
        return before + after["w"].sum()

    actual = jax.jit(jax.grad(cost))(jnp.asarray(3 * XS))
    np.testing.assert_allclose(actual, 2 * (3 * XS - 2 * XS) + 0.8)
    of_all = jax.grad(lambda c: f.apply(c, 2 * XS)[1])(context)
    np.testing.assert_allclose(of_all["w"], 2 * (XS - 2 * XS))


def test_set_returns_a_new_context():
    total, count, scale, f = accumulator()
    context = f.init_context()
    mine = np.ones(3)
    changed = context.set(total, mine).set("scale", 5)
    mine[:] = 7.0
    np.testing.assert_allclose(changed["total"], np.ones(3))
    assert float(changed[scale]) == 5.0 and float(context[scale]) == 2.0
    assert scale.get_value() == 2.0
    assert context.get(pytensor.shared(1.0, name="other")) is None
    assert context.get("nobody", 3) == 3


def test_set_refuses_what_does_not_fit():
    total, _, _, f = accumulator()
    context = f.init_context()
    with pytest.raises(LoopTypeError, match="The value of 'total' must be float64 of rank 1"):
        context.set(total, 1.0)
    with pytest.raises(LoopTypeError, match="The value of 'total' must be float64"):
        context.set(total, np.ones(3, dtype=complex))
    with pytest.raises(KeyError, match=r"no value named .*totl.*: it has scale, "):
        context.set("totl", XS)
    with pytest.raises(KeyError, match="no value of the shared variable other: it has scale, "):
        context[pytensor.shared(XS, name="other")]
    with pytest.raises(TypeError, match="by name or by shared variable, not by 3"):
        context.get(3)


def test_a_batch_outside_of_vmap_is_refused():
    *_, f = accumulator()
    batch = f.init_context().replicate(2)
    assert batch["total"].shape == (2, 3) and batch["shared"].shape == (2,)
    with pytest.raises(
        LoopTypeError,
        match=r"in the context has rank 1, but the variable has rank 0.*jax.vmap\(program.apply",
    ):
        f.apply(batch, XS)


def test_names():
    a, b, c = (pytensor.shared(np.float64(k), name=n) for k, n in enumerate(["w", "w", "w_1"]))
    d, e = pytensor.shared(np.float64(3)), pytensor.shared(np.float64(4))
    context = jaxify([], a + 10 * b + 100 * c + 1000 * d + 10_000 * e).init_context()
    assert set(context) == {"w", "w_2", "w_1", "shared", "shared_1"}
    assert [float(context[v]) for v in (a, b, c, d, e)] == [0, 1, 2, 3, 4]
    assert float(context["w_1"]) == 2.0  # a name of its own is kept


def test_one_context_for_several_functions():
    w, b = pytensor.shared(XS, name="w"), pytensor.shared(0.5, name="b")
    train = jaxify([X], (w * X).sum(), updates={w: w - X})
    predict = jaxify([X], (w * X).sum() + b)
    by_pytensor = pytensor.function([X], b * X, mode=FAST_COMPILE)
    context = SharedContext.of(train, predict, by_pytensor)
    assert set(context) == {"w", "b"}
    context, _ = train.apply(context, XS)
    context, out = predict.apply(context, XS)
    np.testing.assert_allclose(out, 0.5, atol=1e-12)
    with pytest.raises(
        StatefulFunctionError, match=r"no value for b, which program needs: it has w"
    ):
        predict.apply(train.init_context(), XS)


def test_equal_names_in_another_order():
    """Position is not enough where two variables have one name."""
    a, b = (pytensor.shared(np.float64(k), name="w") for k in (1, 2))
    f, g = jaxify([], a - 10 * b), jaxify([], b - 10 * a)
    assert float(g.apply(f.init_context())[1]) == float(g()) == 2 - 10
    assert float(f.apply(pickle.loads(pickle.dumps(f.init_context())))[1]) == 1 - 20
    both = pickle.loads(pickle.dumps(SharedContext.of(f, jaxify([X], X * pytensor.shared(1.0)))))
    with pytest.raises(StatefulFunctionError, match="no value for w, w_1"):
        f.apply(both)


def test_variables_of_one_name_are_not_mixed_up():
    """Not by calls, and not by a cache of JAX, in which contexts of equal names could look alike."""
    u, v = (pytensor.shared(np.float64(k), name="w") for k in (2, 7))
    traced = jaxify(lambda x: x * (v if x.ndim else u))
    with pytest.raises(StatefulFunctionError, match="no value for w, which"):
        traced.apply(traced.init_context(1.0), np.ones(2))
    g = traced.stateful()
    assert float(g(1.0)) == 2.0 and float(g(np.ones(2))[0]) == 7.0
    assert set(g.context) == {"w", "w_1"}

    f, g = jaxify([], [u * 1, v * 1]), jaxify([], [v * 1, u * 1])
    h = jax.jit(lambda c: g.apply(c)[1])
    for context in (f.init_context(), g.init_context()):
        assert [float(x) for x in h(context)] == [7.0, 2.0]
    other = jaxify([], [pytensor.shared(np.float64(k)) * 1 for k in (3, 4)])
    unnamed = jaxify([], [pytensor.shared(np.float64(k)) * 1 for k in (5, 6)])
    with pytest.raises(StatefulFunctionError, match="no value for shared, shared_1"):
        unnamed.apply(other.init_context())
    with pytest.raises(StatefulFunctionError, match="no value for shared, shared_1"):
        unnamed.stateful().context = other.init_context()


def test_of_another_type_than_a_context():
    *_, f = accumulator()
    with pytest.raises(
        StatefulFunctionError, match=r"apply must be a JaxContext, which init_context"
    ):
        f.apply(XS, XS)


def test_it_is_a_pytree_with_names():
    *_, f = accumulator()
    context = f.init_context()
    paths = [jax.tree_util.keystr(at) for at, _ in jax.tree_util.tree_flatten_with_path(context)[0]]
    assert sorted(paths) == ["['scale']", "['shared']", "['total']"]
    again = pickle.loads(pickle.dumps(context))
    assert jax.tree.structure(again) == jax.tree.structure(context)
    _, out = f.apply(again, XS)
    np.testing.assert_allclose(out, f.apply(context, XS)[1])
    assert "total: float64[3]" in repr(context)
    assert context == context and context != again


def test_saved_and_restored(tmp_path):
    total, _, _, f = accumulator()
    context, _ = f.apply(f.init_context(), XS)
    context.save(tmp_path / "state.npz")
    restored = f.init_context().restore(tmp_path / "state.npz")
    chex.assert_trees_all_equal(dict(restored), dict(context))
    other = jaxify([X], X * pytensor.shared(1.0, name="other")).init_context()
    with pytest.raises(
        LoopTypeError, match=r"has the values \['scale', .*but the context has \['other'\]"
    ):
        other.restore(tmp_path / "state.npz")
    narrow = pytensor.shared(np.zeros(3, dtype="float32"), name="total")
    jaxify([], narrow * 1).init_context().save(tmp_path / "narrow.npz")
    with pytest.raises(
        LoopTypeError, match="'total' must be float64 of rank 1, but the file has float32"
    ):
        jaxify([], total * 1).init_context().restore(tmp_path / "narrow.npz")


def test_saved_with_any_name(tmp_path):
    names = ["file", "allow_pickle", "a/b c", "w[0]"]
    shared = [pytensor.shared(float(k), name=name) for k, name in enumerate(names)]
    context = jaxify([], shared).init_context()
    context.save(tmp_path / "state")
    changed = context.set("file", 9.0).restore(tmp_path / "state")
    assert [float(changed[name]) for name in names] == [0.0, 1.0, 2.0, 3.0]


def test_a_context_shares_nothing_with_pytensor():
    values = np.arange(4.0)
    w = pytensor.shared(values, name="w", borrow=True)
    f = jaxify([], w * 1.0)
    context = f.init_context()
    values[:] = -1.0  # as an update in place does
    np.testing.assert_allclose(context["w"], np.arange(4.0))
    np.testing.assert_allclose(f(), -np.ones(4))


def test_a_shape_that_follows_from_a_context():
    n = pytensor.shared(np.int64(2), name="n")
    f = jaxify([X], X[pt.arange(n)].sum())  # a slice would have a bound
    context = f.init_context()
    assert float(f.apply(context, XS)[1]) == -0.5
    assert float(f.apply(context.set(n, 3), XS)[1]) == 1.5
    with pytest.raises(
        DynamicShapeError, match=r"'n' \(a shared variable\).*apply\(context.set\('n', 3\)"
    ):
        jax.jit(f.apply)(context, XS)
    actual = jax.jit(lambda c, x: f.apply(c.set(n, 3), x)[1])(context, XS)
    assert float(actual) == 1.5


def test_a_traced_function():
    w = pytensor.shared(XS, name="w")
    f = jaxify(lambda x: {"scaled": w * x})
    context = f.init_context(XS).set(w, np.ones(3))
    _, out = f.apply(context, XS)
    np.testing.assert_allclose(out["scaled"], XS)
