"""`loopax.vmap`, `grad` and `value_and_grad`: of functions of variables, and of what `jaxify` returns."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import LoopTypeError, grad, jaxify, scan, value_and_grad, vmap, while_loop
from loopax.ir import check
from tests.assorted_loops import PLAIN
from tests.compare import FAST_COMPILE, loops

pytestmark = pytest.mark.usefixtures("quickly_compiled")

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


def agrees(found, expected, rtol=1e-12):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (np.shape(f), np.asarray(f).dtype) == (np.shape(e), np.asarray(e).dtype)
        np.testing.assert_allclose(f, e, rtol=rtol, atol=1e-13)


# -- vmap --------------------------------------------------------------------------------------------


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
    found = run(vmap(rolled, in_axes, out_axes)(start, xs))
    # JAX has no list for in_axes
    of_jax = jax.vmap(by_hand, tuple(in_axes) if isinstance(in_axes, list) else in_axes, out_axes)
    agrees(found, of_jax(start, xs))
    agrees(jaxify(vmap(rolled, in_axes, out_axes))(start, xs), of_jax(start, xs))


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
    found = g(Point(X, 2.0), Box(low, low + 1.5), {"k": 5.0, "l": X})
    assert isinstance(found, Box) and found.high[1] is None
    total, repeated, same = run([found.low, found.high[0], found.high[2]])
    np.testing.assert_allclose(total, np.zeros(3))
    np.testing.assert_allclose(repeated, [5.0, 5.0, 5.0])
    np.testing.assert_allclose(same, X)


def test_results_that_are_the_same_for_all_rows_are_repeated_unless_axes_say_not():
    def f(row, k):
        return row.sum(), k * 2, np.arange(2.0)

    found = run(vmap(f, (0, None))(X, 3.0))
    agrees(found, (X.sum(1), np.full(3, 6.0), np.tile(np.arange(2.0), (3, 1))))
    found = run(vmap(f, (0, None), (0, None, 1))(X, 3.0))
    agrees(found, (X.sum(1), np.asarray(6.0), np.tile(np.arange(2.0)[:, None], (1, 3))))
    assert vmap(lambda row: None)(X) is None


def test_vmap_of_vmap_and_of_grad():
    outer = run(
        vmap(vmap(lambda a, b: a * b, (0, None)), (None, 0))(np.arange(3.0), np.arange(2.0))
    )
    agrees(outer, np.outer(np.arange(2.0), np.arange(3.0)))

    def cost(start, xs):
        return rolled(start, xs)[0] ** 2

    found = run(vmap(grad(grad(cost)), (None, 0))(1.0, X))
    hand = jax.vmap(jax.grad(jax.grad(lambda a, b: by_hand(a, b)[0] ** 2)), (None, 0))(1.0, X)
    agrees(found, hand, rtol=1e-10)
    found = run(grad(lambda start: vmap(cost, (None, 0))(start, X).sum())(1.0))
    agrees(
        found, jax.grad(lambda a: jax.vmap(lambda b: by_hand(a, b)[0] ** 2)(X).sum())(1.0), 1e-10
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
    found = vmap(lambda row: (row * x).sum() + s)(pt.outer(x, x))
    at = np.array([1.0, -2.0, 0.5])
    expected = [(r * at).sum() + 3.0 for r in np.outer(at, at)]
    np.testing.assert_allclose(run(found, [x, s], [at, 3.0]), expected)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: vmap(rolled, (0,))(s, x), r"in_axes for 1 arguments, and 2 are given"),
        (lambda: vmap(rolled, (None, None))(s, x), "no axis to map over"),
        (lambda: vmap(rolled, None)(s, x), "no axis to map over"),
        (lambda: vmap(rolled)(s, m), r"axis 0 of args\[0\].*of rank 0"),
        (lambda: vmap(rolled, (None, 2))(s, m), r"axis 2 of args\[1\].*of rank 2"),
        (lambda: vmap(rolled, (None, -3))(s, m), r"axis -3 of args\[1\]"),
        (lambda: vmap(rolled, (None, "0"))(s, m), r"in_axes has '0' for args\[1\]"),
        (lambda: vmap(rolled, 0.5)(s, m), r"in_axes has 0.5 for args\[0\]"),
        (lambda: vmap(rolled, (None, (0, 0)))(s, m), "in_axes is .* no prefix of"),
        (lambda: vmap(rolled, (None, 0), (0, 0, 0))(s, m), "out_axes is .* no prefix of"),
        (lambda: vmap(rolled, (None, 0), (0, 3))(s, m), r"out_axes has 3 for a result of rank 2"),
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
    found = vmap(lambda start, row: rolled(start, row)[0])(x, m)
    with pytest.raises((ValueError, AssertionError), match="mismatch|broadcast|shape"):
        run(found, [x, m], [np.ones(2), X])


# -- grad --------------------------------------------------------------------------------------------


def cost(start, xs):
    final, ys = rolled(start, xs)
    return final**2 + ys["y"].sum()


def hand_cost(start, xs):
    final, ys = by_hand(start, xs)
    return final**2 + ys["y"].sum()


@pytest.mark.parametrize("argnums", [0, 1, -1, (0, 1), (1, 0), (1,), [0]])
def test_grad_is_jax_grad(argnums):
    numbers = tuple(argnums) if isinstance(argnums, list) else argnums
    value, found = run(value_and_grad(cost, argnums)(0.7, X[0]))
    expected = jax.value_and_grad(hand_cost, numbers)(0.7, X[0])
    agrees((value, found), expected, rtol=1e-10)
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
    found = run([by_a, by_b], [x], [np.array([1.0, 3.0])])
    agrees(found, [np.array([2.0, 6.0]), np.array([1.0, 3.0])])
    (same,) = {*map(float, run(grad(lambda a, b: a * b**2, (0, 0))(s, s), [s], [3.0]))}
    assert same == 9.0


def test_what_is_returned_can_be_differentiated_by_what_was_given():
    made = 2 * s
    value, slope = value_and_grad(lambda c: c**3)(made)
    found = run(pytensor.grad(value, made), [s], [1.5]), run(pytensor.grad(slope, made), [s], [1.5])
    agrees(found, (np.asarray(27.0), np.asarray(18.0)))


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
        (lambda: grad(lambda a: (a, a))(s), "one float scalar; it returned"),
        (lambda: grad(lambda a: 1.0)(s), "it returned 1.0"),
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


# -- names, and what jaxify returns ------------------------------------------------------------------


def test_names_and_documents_stay():
    def energy(a):
        """Of a spring."""
        return a**2

    assert (vmap(energy).__name__, vmap(energy).__doc__) == ("energy", "Of a spring.")
    assert value_and_grad(energy).__doc__ == grad(energy).__doc__ == "Of a spring."
    assert grad(energy).__name__ == "grad of energy"


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
