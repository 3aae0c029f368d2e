"""What a step would not run is not run: a loop without steps raises nothing that its step would."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from jax.experimental import checkify
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import Assert
from pytensor.tensor.linalg.inverse import MatrixInverse

from loopax import DynamicShapeError, cond, fori_loop, jaxify, map, scan, while_loop
from loopax.ir import Scan
from tests.support.both_backends import NATIVE, in_both

X = np.array([0.5, -1.0, 2.0])
NONE, TWO = X[:0], X[:2]
x, y = pt.dvectors("x", "y")
a = pt.dscalar("a")
n = pt.lscalar("n")


def summed(term, rows=x):
    return scan(lambda s, r: (s + r * term(), None), 0.0, rows)[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("term", "given", "raised"),
    [
        (lambda: Assert("a must be positive")(a, a > 0), NONE, AssertionError),
        (lambda: y[0], NONE, IndexError),
        (lambda: y[3], TWO, IndexError),
        (lambda: (y + np.ones(3)).sum(), TWO, (ValueError, AssertionError)),
        (lambda: scan(lambda t, q: (t + q * y[0], None), 0.0, x)[0], NONE, IndexError),
    ],
    ids=["check", "index", "index behind the end", "shapes", "loop in a loop"],
)
def test_what_a_step_makes_of_captured_variables_is_not_run_without_steps(term, given, raised):
    inputs, out = [x, y, a], summed(term)
    assert in_both(inputs, out, [NONE, given, -1.0]) == 0.0
    for f in (jaxify(inputs, out, checks="raise"), jaxify(inputs, out, backend=NATIVE)):
        with pytest.raises(raised):
            f(X, given, -1.0)
    gradient = jax.grad(jaxify(inputs, out, checks="ignore"), argnums=(0, 1))(NONE, given, -1.0)
    assert [g.tolist() for g in gradient] == [[], [0.0] * len(given)]


def test_rows_of_no_step_have_their_shape():
    rows = map(lambda r: r * y[:2] + y[5], x)
    assert in_both([x, y], rows, [NONE, X]).shape == (0, 2)


@pytest.mark.slow
def test_a_loop_whose_flag_is_false_at_once():
    for bound in (None, 5):
        final = while_loop(lambda c: c < 0, lambda c: c + y[0], a, max_steps=bound)
        assert in_both([y, a], final, [NONE, 1.0]) == 1.0
        f = jaxify([y, a], final, checks="raise", loops="xla")
        with pytest.raises(Exception, match="out of bounds"):  # it runs
            jax.block_until_ready(f(NONE, -1.0))
        with pytest.warns(UserWarning, match="Index 0 is out of bounds"):
            f = jaxify([y, a], final, loops="xla")
            assert np.isnan(jax.jit(f)(NONE, -1.0))
        with pytest.raises(IndexError, match="out of bounds"):
            f(NONE, -1.0)
        error, _ = checkify.checkify(jax.jit(f))(NONE, -1.0)
        assert "out of bounds" in error.get()
        error, actual = checkify.checkify(jax.jit(f))(NONE, 1.0)
        assert error.get() is None and actual == 1.0


def test_a_number_of_steps_that_is_traced():
    final = fori_loop(0, n, lambda i, c: c + y[i] * Assert("no")(a, a > 0), 0.0)
    f = jax.jit(jaxify([y, a, n], final, checks="ignore", loops="xla"))
    assert f(NONE, -1.0, 0) == 0.0
    assert np.isnan(f(NONE, -1.0, 2))
    assert f(X, 2.0, 2) == -1.0


def test_a_branch_that_raises_while_jax_traces_it():
    out = cond(a > 0, lambda: y[3], lambda: y.sum())
    f = jaxify([y, a], out, checks="raise", loops="xla")
    assert f(TWO, -1.0) == -0.5
    assert jax.grad(f)(TWO, -1.0).tolist() == [1.0, 1.0]
    with pytest.raises(Exception, match="out of bounds"):
        jax.block_until_ready(f(TWO, 1.0))
    neither = cond(a > 0, lambda: y[3], lambda: y[4])
    with pytest.raises(IndexError, match="out of bounds"):
        jaxify([y, a], neither, loops="xla")(TWO, 1.0)


def test_what_jax_cannot_trace_is_refused_without_steps_too():
    taken = scan(
        lambda s, r: (s + x[: pt.cast(r, "int64")].sum() * 0 + x.repeat(n).sum(), None), 0.0, x
    )[0]
    with pytest.raises(DynamicShapeError):
        jax.jit(jaxify([x, n], taken, loops="xla"))(X, 1)


@pytest.mark.parametrize(("shape", "inside"), [((3,), False), ((0,), True), ((None,), True)])
def test_what_a_step_that_surely_runs_makes_of_captured_variables_is_captured(shape, inside):
    """It runs in any case; and a gradient pulls back once, not at every step."""
    m, rows = pt.dmatrix("m"), pt.tensor("rows", shape=shape, dtype="float64")
    total = summed(lambda: pt.linalg.inv(m).sum(), rows)
    (loop,) = [v.owner.op for v in ancestors([total]) if v.owner and isinstance(v.owner.op, Scan)]
    ops = {type(getattr(node.op, "core_op", None)) for node in loop.fgraph.apply_nodes}
    assert (MatrixInverse in ops) == inside
