"""`loopax.vmap`, `grad` and `value_and_grad`: of functions of variables, and of what `jaxify` returns."""

import inspect
import pickle
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import (
    LoopTypeError,
    NumbaFunction,
    StatefulFunctionError,
    TracedFunction,
    grad,
    jaxify,
    scan,
    value_and_grad,
    vmap,
    while_loop,
)
from loopax.ir import check
from tests.support.assorted_loops import PLAIN
from tests.support.compare import FAST_COMPILE, assert_trees_close, loops, primitives

X = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
x = pt.dvector("x")
m = pt.dmatrix("m")
s = pt.dscalar("s")


def run(outputs, inputs=(), values=()):
    leaves, tree = jax.tree.flatten(outputs, is_leaf=lambda v: hasattr(v, "owner"))
    f = pytensor.function(list(inputs), leaves, mode=PLAIN, on_unused_input="ignore")
    return jax.tree.unflatten(tree, f(*values))


def rolled(start, xs):
    final, ys = scan(lambda c, r: (pt.sin(c * r) + c, {"y": c**2}), start, xs)
    return final, ys


def by_hand(start, xs):
    return jax.lax.scan(lambda c, r: (jnp.sin(c * r) + c, {"y": c**2}), start, xs)


agrees = partial(assert_trees_close, rtol=1e-12, atol=1e-13)


# -- vmap --------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("in_axes", "out_axes", "start", "xs"),
    [
        (0, 0, np.ones(3), X),
        ((None, 0), 0, 1.0, X),
        ([None, 0], 0, 1.0, X),
        ((None, 1), 0, 1.0, X),
        ((None, -1), 0, 1.0, X),
        ((0, None), 0, np.arange(2.0), X[0]),
        ((0, 1), (0, {"y": 1}), np.arange(4.0), X),
        ((0, 1), (0, -1), np.arange(4.0), X),
    ],
)
def test_vmap_is_jax_vmap(in_axes, out_axes, start, xs):
    actual = run(vmap(rolled, in_axes, out_axes)(start, xs))
    # JAX has no list for in_axes
    of_jax = jax.vmap(by_hand, tuple(in_axes) if isinstance(in_axes, list) else in_axes, out_axes)
    agrees(actual, of_jax(start, xs))
    agrees(jaxify(vmap(rolled, in_axes, out_axes))(start, xs), of_jax(start, xs))


ROWS = np.linspace(-1.0, 1.0, 28).reshape(7, 4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("batch_size", [1, 3, 7, 20])
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_so_many_rows_at_a_time(backend, batch_size):
    f = jaxify(rolled, backend=backend)
    told = []
    some = vmap(
        f, (None, 0), (0, {"y": 1}), batch_size=batch_size, progress=lambda *args: told.append(args)
    )
    actual = jax.block_until_ready(some(0.3, ROWS))
    agrees(actual, jax.vmap(by_hand, (None, 0), (0, {"y": 1}))(0.3, ROWS))
    jax.effects_barrier()
    assert sorted(told) == [(k, 7) for k in [*range(0, 7, batch_size), 7]]


def test_batches_have_gradients_in_jax():
    some = vmap(jaxify(rolled), (None, 0), batch_size=3)
    actual = jax.jit(jax.grad(lambda c: some(c, ROWS)[0].sum()))(0.3)
    wanted = jax.grad(lambda c: jax.vmap(by_hand, (None, 0))(c, ROWS)[0].sum())(0.3)
    np.testing.assert_allclose(actual, wanted, rtol=1e-12)
    jaxpr = jax.make_jaxpr(some)(0.3, ROWS)
    assert primitives(jaxpr)["scan"] == 3  # over the batches, of a batch, of the last one


def test_no_rows_at_all():
    for backend in "jax", "numba":
        final, ys = vmap(jaxify(rolled, backend=backend), (None, 0), batch_size=3)(0.3, ROWS[:0])
        assert final.shape == (0,) and ys["y"].shape == (0, 4)


def test_progress_on_stderr(capfd):
    vmap(jaxify([x], x.sum(), backend="numba"), batch_size=5, progress=True)(ROWS)
    assert capfd.readouterr().err.endswith("loopax: 7 of 7 rows\n")


def test_what_batches_cannot_be():
    with pytest.raises(ValueError, match="a number of rows from 1 on, got 0"):
        vmap(jaxify([x], x.sum()), batch_size=0)
    with pytest.raises(ValueError, match=r"loopax.vmap\(loopax.jaxify\(f\), batch_size=1000\)"):
        vmap(lambda x: x, batch_size=2)
    with pytest.raises(ValueError, match="out_axes cannot be None"):
        vmap(jaxify([x], x.sum()), 0, None, batch_size=2)(ROWS)
    with pytest.raises(LoopTypeError, match="out_axes is None for a result that differs"):
        vmap(jaxify([x], x.sum(), backend="numba"), 0, None, batch_size=2)
    two = jaxify([s, x], x.sum() * s)
    with pytest.raises(ValueError, match=r"lengths \[3, 7\]"):
        vmap(two, batch_size=2)(np.ones(3), ROWS)


def test_a_loop_stays_one_loop():
    final, ys = vmap(rolled, (None, 0))(s, m)
    graph = FunctionGraph([s, m], [final, ys["y"]], clone=True)
    check(graph)
    (loop,) = loops(graph)
    assert [v.type.ndim for v in loop.op.args.states] == [1]


@dataclass
class Box:
    low: Any
    high: Any


class Point(NamedTuple):
    at: Any
    weight: Any


def test_axes_are_given_for_pytrees():
    def f(point, box, extra):
        inside = point.weight * (point.at - box.low) / (box.high - box.low)
        return Box(inside.sum(), [extra["k"], None, point.at])

    low = X.T.copy()
    g = vmap(f, (Point(0, None), 1, {"k": None, "l": 0}), 0)
    actual = g(Point(X, 2.0), Box(low, low + 1.5), {"k": 5.0, "l": X})
    assert isinstance(actual, Box) and actual.high[1] is None
    total, repeated, same = run([actual.low, actual.high[0], actual.high[2]])
    np.testing.assert_allclose(total, np.zeros(3))
    np.testing.assert_allclose(repeated, [5.0, 5.0, 5.0])
    np.testing.assert_allclose(same, X)


def test_results_that_are_the_same_for_all_rows_are_repeated_unless_axes_say_not():
    def f(row, k):
        return row.sum(), k * 2, np.arange(2.0)

    actual = run(vmap(f, (0, None))(X, 3.0))
    agrees(actual, (X.sum(1), np.full(3, 6.0), np.tile(np.arange(2.0), (3, 1))))
    actual = run(vmap(f, (0, None), (0, None, 1))(X, 3.0))
    agrees(actual, (X.sum(1), np.asarray(6.0), np.tile(np.arange(2.0)[:, None], (1, 3))))
    assert vmap(lambda row: None)(X) is None


def test_vmap_of_vmap_and_of_grad():
    outer = run(
        vmap(vmap(lambda a, b: a * b, (0, None)), (None, 0))(np.arange(3.0), np.arange(2.0))
    )
    agrees(outer, np.outer(np.arange(2.0), np.arange(3.0)))

    def cost(start, xs):
        return rolled(start, xs)[0] ** 2

    actual = run(vmap(grad(grad(cost)), (None, 0))(1.0, X))
    hand = jax.vmap(jax.grad(jax.grad(lambda a, b: by_hand(a, b)[0] ** 2)), (None, 0))(1.0, X)
    agrees(actual, hand, rtol=1e-10)
    actual = run(grad(lambda start: vmap(cost, (None, 0))(start, X).sum())(1.0))
    agrees(
        actual,
        jax.grad(lambda a: jax.vmap(lambda b: by_hand(a, b)[0] ** 2)(X).sum())(1.0),
        rtol=1e-10,
    )


def test_rows_that_stop_on_their_own():
    def steps(rate):
        def body(c):
            return c[0] * rate, c[1] + 1

        return while_loop(lambda c: c[0] < 10, body, (1.0, 0), max_steps=50)

    rates = np.array([1.1, 2.0, 11.0])
    value, count = run(vmap(steps)(rates))
    np.testing.assert_array_equal(count, np.ceil(np.log(10) / np.log(rates)))
    np.testing.assert_allclose(value, rates**count)
    slope = run(vmap(grad(lambda rate: steps(rate)[0]))(rates))
    np.testing.assert_allclose(slope, count * rates ** (count - 1), rtol=1e-12)


def test_closures_are_the_same_for_all_rows():
    """Also those that an argument follows from."""
    actual = vmap(lambda row: (row * x).sum() + s)(pt.outer(x, x))
    at = np.array([1.0, -2.0, 0.5])
    expected = [(r * at).sum() + 3.0 for r in np.outer(at, at)]
    np.testing.assert_allclose(run(actual, [x, s], [at, 3.0]), expected)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: vmap(rolled, (0,))(s, x), r"in_axes for 1 arguments, but 2 were passed"),
        (lambda: vmap(rolled, (None, None))(s, x), "no axis to map over"),
        (lambda: vmap(rolled, None)(s, x), "no axis to map over"),
        (lambda: vmap(rolled)(s, m), r"axis 0 of args\[0\].*of rank 0"),
        (lambda: vmap(rolled, (None, 2))(s, m), r"axis 2 of args\[1\].*of rank 2"),
        (lambda: vmap(rolled, (None, -3))(s, m), r"axis -3 of args\[1\]"),
        (lambda: vmap(rolled, (None, "0"))(s, m), r"in_axes has '0' for args\[1\]"),
        (lambda: vmap(rolled, 0.5)(s, m), r"in_axes has 0.5 for args\[0\]"),
        (lambda: vmap(rolled, (None, (0, 0)))(s, m), "in_axes is .* not a prefix of"),
        (lambda: vmap(rolled, (None, 0), (0, 0, 0))(s, m), "out_axes is .* not a prefix of"),
        (
            lambda: vmap(rolled, (None, 0), (0, 3))(s, m),
            r"out_axes has 3, but the result has 2 axes",
        ),
        (
            lambda: vmap(rolled, (None, 0), (0, 1.5))(s, m),
            r"out_axes has 1.5 for result\[1\]\['y'\]",
        ),
        (lambda: vmap(rolled, (None, 0), None)(s, m), "out_axes is None for a result that differs"),
        (
            lambda: vmap(rolled)(np.ones(3), X.T),
            r"different lengths: 3 of args\[0\], 4 of args\[1\]",
        ),
        (lambda: vmap(rolled)(np.ones(1), X), r"different lengths: 1 of.*in_axes"),
        (lambda: vmap(rolled)("start", m), r"args\[0\] is 'start' of type str"),
        (
            lambda: vmap(lambda rng: rng)(pytensor.shared(np.random.default_rng(1))),
            r"args\[0\], which is.*only tensors have axes",
        ),
    ],
)
def test_vmap_says_what_is_wrong(call, match):
    with pytest.raises(LoopTypeError, match=match):
        call()


def test_lengths_that_are_known_when_it_runs():
    actual = vmap(lambda start, row: rolled(start, row)[0])(x, m)
    with pytest.raises((ValueError, AssertionError), match="mismatch|broadcast|shape"):
        run(actual, [x, m], [np.ones(2), X])


# -- grad --------------------------------------------------------------------------------------------


def cost(start, xs):
    final, ys = rolled(start, xs)
    return final**2 + ys["y"].sum()


def hand_cost(start, xs):
    final, ys = by_hand(start, xs)
    return final**2 + ys["y"].sum()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("argnums", [0, 1, -1, (0, 1), (1, 0), (1,), [0]])
def test_grad_is_jax_grad(argnums):
    numbers = tuple(argnums) if isinstance(argnums, list) else argnums
    value, actual = run(value_and_grad(cost, argnums)(0.7, X[0]))
    expected = jax.value_and_grad(hand_cost, numbers)(0.7, X[0])
    agrees((value, actual), expected, rtol=1e-10)
    agrees(run(grad(cost, argnums)(0.7, X[0])), expected[1], rtol=1e-10)
    agrees(jaxify(grad(cost, argnums))(0.7, X[0]), expected[1], rtol=1e-10)


def test_gradients_have_the_structure_of_the_arguments():
    def f(box, points):
        return (box.low * box.high).sum() + points[0]["a"] ** 2 * points[1].weight

    at = Box(X[0], X[1] + 2.0), [{"a": 3.0}, Point(1.0, 2.0)]
    by_box, by_points = grad(f, (0, 1))(*at)
    assert isinstance(by_box, Box) and isinstance(by_points[1], Point)
    agrees(run([by_box.low, by_box.high]), [X[1] + 2.0, X[0]])
    agrees(run(by_points), jax.tree.map(np.asarray, [{"a": 12.0}, Point(0.0, 9.0)]))


def test_aux():
    def f(start, xs):
        final, ys = rolled(start, xs)
        return final**2, {"ys": ys, "n": 3, "none": None}

    def by_jax(start, xs):
        final, ys = by_hand(start, xs)
        return final**2, {"ys": ys, "n": 3, "none": None}

    (value, aux), slope = value_and_grad(f, has_aux=True)(0.7, X[0])
    expected = jax.value_and_grad(by_jax, has_aux=True)(0.7, X[0])
    agrees(run(((value, aux), slope)), jax.tree.map(np.asarray, expected), rtol=1e-10)
    slope, aux = grad(f, has_aux=True)(0.7, X[0])
    agrees(run((slope, aux)), jax.tree.map(np.asarray, (expected[1], expected[0][1])), rtol=1e-10)


def test_an_argument_that_follows_from_another_is_one_of_its_own():
    by_a, by_b = grad(lambda a, b: (a * b).sum(), (0, 1))(x, 2 * x)
    actual = run([by_a, by_b], [x], [np.array([1.0, 3.0])])
    agrees(actual, [np.array([2.0, 6.0]), np.array([1.0, 3.0])])
    (same,) = {*map(float, run(grad(lambda a, b: a * b**2, (0, 0))(s, s), [s], [3.0]))}
    assert same == 9.0


def test_what_is_returned_can_be_differentiated_by_what_was_given():
    made = 2 * s
    value, slope = value_and_grad(lambda c: c**3)(made)
    actual = (
        run(pytensor.grad(value, made), [s], [1.5]),
        run(pytensor.grad(slope, made), [s], [1.5]),
    )
    agrees(actual, (np.asarray(27.0), np.asarray(18.0)))


@pytest.mark.slow
def test_orders():
    f = cost
    hand = hand_cost
    for _ in range(3):
        f, hand = grad(f), jax.grad(hand)
    agrees(run(f(0.7, X[0])), np.asarray(hand(0.7, X[0])), rtol=1e-9)


def test_what_a_closure_has_is_constant():
    shared = pytensor.shared(2.0)
    by_a = grad(lambda a: a**2 * s * shared)(s)
    assert run(by_a, [s], [3.0]) == 2 * 3 * 3 * 2
    assert run(grad(lambda a: s**2)(s), [s], [3.0]) == 0


@pytest.mark.parametrize("integer", [3, np.arange(3), pt.lscalar()])
def test_integers_have_no_gradient(integer):
    with pytest.raises(LoopTypeError, match=re.escape("with respect to args[1], which is")):
        grad(lambda a, n: a * pt.sum(n), (0, 1))(s, integer)
    agrees(run(grad(lambda a, n: a * pt.sum(n))(s, 2), [s], [1.0]), np.asarray(2.0))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: grad(cost, 2)(s, x), "argnums has 2, but there are 2 arguments"),
        (lambda: grad(cost, -3)(s, x), "argnums has -3"),
        (lambda: grad(cost, "x")(s, x), "argnums has 'x'"),
        (lambda: grad(lambda: s)(), "there are 0 arguments"),
        (lambda: grad(lambda a: a * 2)(x), r"returned Vector.*\.sum\(\).*has_aux=True"),
        (lambda: grad(lambda a: (a, a))(s), "one float scalar, but this one returned"),
        (lambda: grad(lambda a: 1.0)(s), "this one returned 1.0"),
        (lambda: grad(lambda a: a.astype("int64"))(s), r"int64.*has no gradient.*y.astype"),
        (lambda: grad(lambda a: a, has_aux=True)(s), r"returns \(value, aux\)"),
        (lambda: grad(lambda a: (a, a, a), has_aux=True)(s), r"returns \(value, aux\)"),
        (lambda: grad(lambda a: (a, "aux"), has_aux=True)(s), r"aux is 'aux' of type str"),
        (lambda: grad(lambda a: a)("s"), r"args\[0\] is 's' of type str"),
    ],
)
def test_grad_says_what_is_wrong(call, match):
    with pytest.raises(LoopTypeError, match=match):
        call()


def test_what_is_given_by_name():
    """It is constant for `grad`, and its first axis is mapped by `vmap`: as in JAX."""

    def f(a, *, k, more):
        return (a * more["by"]).sum() * k

    named = {"k": 2.0, "more": {"by": X[0]}}
    agrees(run(value_and_grad(f)(X[1], **named)), jax.value_and_grad(f)(X[1], **named))
    agrees(run(grad(f)(X[1], **named)), jax.grad(f)(X[1], **named))
    rows = {"k": np.arange(3.0), "more": {"by": X}}
    agrees(run(vmap(f)(X, **rows)), jax.vmap(f)(X, **rows))
    agrees(run(vmap(f, None)(X[0], **rows)), jax.vmap(f, (None,))(X[0], **rows))
    with pytest.raises(LoopTypeError, match=r"3 of args\[0\], 2 of kwargs\['k'\]"):
        vmap(f)(X, k=np.arange(2.0), more=rows["more"])


# -- names, and what jaxify returns ------------------------------------------------------------------


def test_names_and_documents_stay():
    def energy(a):
        """Of a spring."""
        return a**2

    assert (vmap(energy).__name__, vmap(energy).__doc__) == ("energy", "Of a spring.")
    assert value_and_grad(energy).__doc__ == grad(energy).__doc__ == "Of a spring."
    assert grad(energy).__name__ == "grad of energy"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "make",
    [
        lambda: jaxify(cost),
        lambda: jaxify([s, x], cost(s, x)),
        lambda: jaxify(pytensor.function([s, x], cost(s, x), mode=FAST_COMPILE)),
    ],
    ids=["traced", "graph", "compiled"],
)
def test_of_what_jaxify_returns(make):
    f = make()
    args = 0.7, jnp.asarray(X[0])
    expected = jax.value_and_grad(hand_cost, (0, 1))(*args)
    if f.__class__.__name__ == "JaxFunction" and isinstance(f(*args), list):
        pytest.fail("one output is no list")
    agrees(value_and_grad(f, (0, 1))(*args), expected, rtol=1e-10)
    agrees(grad(f, (0, 1))(*args), expected[1], rtol=1e-10)
    agrees(jax.jit(grad(grad(f)))(*args), jax.grad(jax.grad(hand_cost))(*args), rtol=1e-9)
    agrees(vmap(f, (None, 0), 0)(0.7, X), jax.vmap(hand_cost, (None, 0))(0.7, X), rtol=1e-12)
    assert isinstance(vmap(f, (None, 0))(0.7, X), jax.Array)


# -- of native code ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def native():
    """`cost` times a shared variable, as native code: that variable, the function, one of a dict."""
    scale = pytensor.shared(np.float64(2.0), name="scale")
    priced = cost(s, x) * scale
    f = jaxify([s, x], priced, backend="numba", name="priced")
    return scale, f, jaxify([s, x], {"cost": priced}, backend="numba")


@pytest.mark.slow
def test_derivatives_of_native_code_are_native_code(native):
    scale, f, _ = native
    both = value_and_grad(f, (0, -1))
    second = grad(grad(f))
    for g, name in ((both, "priced"), (second, "grad of grad of priced")):
        assert isinstance(g, NumbaFunction) and g.__name__ == name
        assert str(inspect.signature(g)) == "(s, x)" and list(g.init_context()) == ["scale"]
    for k in (2.0, 3.0):
        scale.set_value(k)
        expected = jax.value_and_grad(lambda a, b, k=k: hand_cost(a, b) * k, (0, 1))(0.7, X[0])
        agrees(both(x=X[0], s=0.7), expected, rtol=1e-10)
        hand = jax.grad(jax.grad(lambda a, b, k=k: hand_cost(a, b) * k))
        agrees(second(0.7, X[1]), hand(0.7, X[1]), rtol=1e-9)
    actual = both.apply(both.init_context().set(scale, 1.0), 0.7, X[0])[1]
    agrees(actual, jax.value_and_grad(hand_cost, (0, 1))(0.7, X[0]), rtol=1e-10)
    scale.set_value(2.0)


@pytest.mark.slow
def test_batches_of_native_code(native):
    _, f, _ = native
    batch = vmap(grad(f, 1), (0, None), 1)
    starts = np.linspace(0.1, 0.9, 3)
    hand = jax.vmap(jax.grad(lambda a, b: hand_cost(a, b) * 2, 1), (0, None), 1)
    agrees(batch(starts, X[0]), hand(starts, X[0]), rtol=1e-10)
    assert isinstance(batch, NumbaFunction) and str(inspect.signature(batch)) == "(s, x)"
    with pytest.raises(LoopTypeError, match="'s'.*must be float64 of rank 1"):
        batch(0.5, X[0])
    paired = vmap(f)
    with pytest.raises(ValueError, match="mismatch|shape|dimension"):  # nothing is broadcast
        paired(starts[:1], X)


@pytest.mark.slow
def test_batches_of_batches_of_native_code(native):
    _, f, _ = native
    starts = np.linspace(0.1, 0.9, 3)
    twice = vmap(vmap(f, (None, -1)), (0, None))
    hand = jax.vmap(jax.vmap(lambda a, b: hand_cost(a, b) * 2, (None, -1)), (0, None))
    agrees(twice(starts, X), hand(starts, X), rtol=1e-10)


def test_native_code_that_has_been_pickled_can_be_differentiated(native):
    _, f, _ = native
    again = grad(pickle.loads(pickle.dumps(f)))
    agrees(again(0.7, X[0]), jax.grad(lambda a: hand_cost(a, X[0]) * 2)(0.7), rtol=1e-10)


def total(point, k):
    final, ys = rolled(point["start"], point["xs"])
    return (final**2 + ys["y"].sum()) * k, {"final": final}


def hand_total(point, k):
    final, ys = by_hand(point["start"], point["xs"])
    return (final**2 + ys["y"].sum()) * k, {"final": final}


def test_a_traced_function_of_native_code():
    both = value_and_grad(jaxify(total, backend="numba"), has_aux=True)
    at = {"start": np.float64(0.7), "xs": X[0]}
    assert isinstance(both, TracedFunction) and not hasattr(both, "lower")
    expected = jax.value_and_grad(hand_total, has_aux=True)(at, k=3.0)
    agrees(both(at, k=3.0), expected, rtol=1e-10)


@pytest.mark.slow
def test_batches_of_gradients_of_a_traced_function_of_native_code():
    axes = {"start": None, "xs": 0}, None
    batch = vmap(grad(jaxify(total, backend="numba"), has_aux=True), axes)
    points = {"start": np.float64(0.7), "xs": X}
    expected = jax.vmap(jax.grad(hand_total, has_aux=True), axes)(points, 3.0)
    agrees(batch(points, 3.0), expected, rtol=1e-10)


@pytest.mark.slow
def test_a_batch_that_is_summed_and_differentiated():
    """Functions of variables in between."""
    summed = jaxify(lambda a: vmap(cost, (None, 0))(a, X).sum(), backend="numba")
    agrees(
        grad(summed)(0.7),
        jax.grad(lambda a: jax.vmap(lambda b: hand_cost(a, b))(X).sum())(0.7),
        rtol=1e-10,
    )


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda f, d: grad(f, 2), "argnums has 2, but there are 2 arguments"),
        (lambda f, d: grad(d), r"one float scalar, but this one returned \{'cost'"),
        (lambda f, d: grad(f, has_aux=True), r"returns \(value, aux\)"),
        (lambda f, d: vmap(f, (0,)), "in_axes for 1 arguments, but 2 were passed"),
        (lambda f, d: vmap(f, (0, 2)), r"axis 2 of args\[1\].*of rank 2"),
        (lambda f, d: vmap(f, (0, -3)), r"axis -3 of args\[1\].*of rank 2"),
        (lambda f, d: vmap(f, None), "no axis to map over"),
        (lambda f, d: vmap(f, (0, "1")), r"in_axes has '1' for args\[1\]"),
        (lambda f, d: vmap(f, 0, None), "out_axes is None for a result that differs"),
        (lambda f, d: grad(jaxify([s, x], s.astype("int64"), backend="numba")), "has no gradient"),
    ],
)
def test_what_native_code_cannot_be_transformed_to_is_said_at_once(native, call, match):
    with pytest.raises(LoopTypeError, match=match):
        call(*native[1:])


def test_what_updates_has_no_derivative():
    n = pytensor.shared(np.float64(1.0), name="n")
    f = jaxify([s], s * n, updates={n: n + 1}, backend="numba")
    for transform in (grad, value_and_grad, vmap):
        with pytest.raises(
            StatefulFunctionError, match="updates the shared variables n, so it has no derivative"
        ):
            transform(f)
