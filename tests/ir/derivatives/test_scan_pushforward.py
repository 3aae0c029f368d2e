"""Forward mode through loops: by their own pushforward, and by their pullback's pullback."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import disconnected_grad, disconnected_type, pushforward
from pytensor.graph.fg import FunctionGraph

from loopax import cond, jaxify, scan, while_loop
from tests.support.assorted_loops import CASES, PLAIN, V, X, a, s, v, x
from tests.support.compare import loops

BOTH = pytest.mark.parametrize("own", [True, False], ids=["own", "through the pullback"])


@pytest.mark.sampled(5)
@BOTH
@pytest.mark.parametrize("name", ["recurrent network", "nested", "branching", "coupled", "echoed"])
def test_as_jvp(name, own):
    case = CASES[name]()
    outs = [out for out in case.outs if out.type.dtype == "float64"]
    tangents = [np.cos(np.arange(np.size(t)).reshape(np.shape(t))) for t in case.values]
    actual = pushforward(
        outs, case.inputs, [pt.constant(t) for t in tangents], use_op_pushforward=own
    )
    actual = pytensor.function(case.inputs, actual, mode=PLAIN)(*case.values)
    f = jaxify(case.inputs, outs)
    _, expected = jax.jvp(f, tuple(map(np.asarray, case.values)), tuple(tangents))
    for t, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(t, e, rtol=1e-11, atol=1e-14)


STEPS = {
    "joined": lambda c, r: pt.concatenate([c[1:] * a, pt.ones(1) * r]),
    "made": lambda c, r: pt.stack([r, c[0] * a]),
    "cut off": lambda c, r: pt.concatenate([disconnected_grad(c[:1]), c[1:] * a]),
    "set": lambda c, r: pt.zeros(2)[1].set(c[0] * a) + r,
    "set in what is cut off": lambda c, r: disconnected_grad(c)[1].set(c[0] * a),
    "argmax": lambda c, r: c * a + c[pt.argmax(c)],
    "largest": lambda c, r: r * c + pt.max(c * a),
    "sorted": lambda c, r: pt.sort(c * a) - c[::-1],
    "solved": lambda c, r: pt.linalg.solve(pt.eye(2) + pt.outer(c, c), c * a + r),
    "summed": lambda c, r: pt.cumsum(pt.sin(c * a)) + r,
    "a cotangent that feeds another": lambda c, r: (r - (a * np.eye(2)[::-1] @ c)[0]) * np.ones(2),
    "a loop": lambda c, r: pt.stack(
        [scan(lambda d, _: (d * r, None), c[1], length=2)[0], c[0] * a]
    ),
    "a loop of constants": lambda c, r: pt.stack(
        [scan(lambda d, _: (2 * d, None), 1.0, length=2)[0], c[0] * a]
    ),
    "a branch": lambda c, r: pt.stack([cond(r > 0, lambda: r, lambda: 2 * c[1]), c[0] * a]),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", STEPS)
def test_nothing_is_lost_in_a_step(name):
    """Where only some of what an op reads moves, and where an op has no pushforward."""
    final, ys = scan(lambda c, r: (STEPS[name](c, r), c**2), v, x)
    outs = [final, ys]
    tangents = [pt.ones(()), pt.constant([1.0, -0.5])]
    actual = [
        pytensor.function(
            [x, v, a], pushforward(outs, [a, v], tangents, use_op_pushforward=own), mode=PLAIN
        )(X, V, 0.7)
        for own in (True, False)
    ]
    for one, other in zip(*actual, strict=True):
        assert np.any(one)
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_a_loop_in_a_step_that_the_tangent_does_not_reach_stays_as_it_is():
    def step(c, r):
        inner, _ = scan(lambda d, _: (2 * pt.sin(d), None), r, length=2)
        return c * a + inner, None

    final, _ = scan(step, s, x)
    actual = pushforward(final, a, pt.ones(()), use_op_pushforward=True)
    (outer,) = final.owner.op.pushforward(
        final.owner.inputs, [final], [disconnected_type()] * 3 + [pt.ones(())]
    )
    nodes = loops(FunctionGraph([x, s, a], [outer], clone=True))
    assert [node.op.n_states for node in nodes] == [2, 1]
    f = pytensor.function([x, s, a], [actual, outer], mode=PLAIN)
    np.testing.assert_allclose(*f(X, 0.6, 0.7), rtol=1e-14)


def test_it_stores_nothing():
    final, _ = scan(lambda c, r: (pt.sin(c * a) + r, None), s, x)
    actual = pushforward(final, [s, a], [pt.ones(()), pt.ones(())], use_op_pushforward=True)
    nodes = loops(FunctionGraph([x, s, a], [actual], clone=True))
    assert [node.op.n_ys for node in nodes] == [0]
    assert [node.op.n_states for node in nodes] == [2]


def test_integers_do_not_move():
    (n, z), ys = scan(lambda c, r: ((c[0] + 1, c[1] * a), c[0] * r), (0, s), x)
    actual = pushforward([z, ys], [s, x], [pt.ones(()), pt.ones_like(x)], use_op_pushforward=True)
    z, ys = pytensor.function([x, s, a], actual, mode=PLAIN)(X, 0.6, 0.5)
    np.testing.assert_allclose(z, 0.5**4)
    np.testing.assert_allclose(ys, [0.0, 1.0, 2.0, 3.0])


@BOTH
def test_stopping_loops(own):
    def until(c, r):
        new = c + a * r**2
        return new, new * r, new > 1.0

    final, ys, _ = scan(until, s, x)
    start = while_loop(lambda c: c < 5, lambda c: c * (1 + a), s, max_steps=9)
    actual = pushforward(
        [final, ys, start], [s, a], [pt.ones(()), pt.ones(())], use_op_pushforward=own
    )
    final, ys, start = pytensor.function([x, s, a], actual, mode=PLAIN)(X, 0.6, 0.7)
    rows = X[:2]  # two steps are taken
    np.testing.assert_allclose(final, 1 + (rows**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(ys, (1 + np.cumsum(rows**2)) * rows, rtol=1e-12)
    np.testing.assert_allclose(start, 1.7**4 + 0.6 * 4 * 1.7**3, rtol=1e-12)


@BOTH
@pytest.mark.parametrize("name", ["recurrence", "reverse", "counted", "branching", "stopping"])
def test_no_steps(name, own):
    case = CASES[name]()
    outs = [out for out in case.outs if out.type.dtype == "float64"]
    tangents = [pt.ones_like(w) for w in case.inputs]
    actual = pushforward(outs, case.inputs, tangents, use_op_pushforward=own)
    f = pytensor.function(case.inputs, [*outs, *actual], mode=PLAIN)
    values = [z[:0] if w is x else z for w, z in zip(case.inputs, case.values, strict=True)]
    actual = f(*values)
    final, ys, *_ = actual[: len(outs)]
    t_final, t_ys, *_ = actual[len(outs) :]
    np.testing.assert_array_equal(t_final, np.ones(np.shape(final)))
    assert t_ys.shape == ys.shape == (0, *ys.shape[1:])
