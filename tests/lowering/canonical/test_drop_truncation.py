"""A gradient that is truncated to as many steps as there are is not truncated."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import explain, jaxify, map, scan
from loopax.ir import evaluate
from loopax.lowering.canonical.drop_truncation import drop_truncation
from tests.support.compare import FAST_COMPILE, assert_agrees, loops
from tests.support.kept import rewritten

x, s = pt.dvector("x"), pt.dscalar("s")
n = pt.lscalar("n")
XS = np.array([0.5, -1.0, 2.0, 3.0])


def left(outputs, given, *at):
    """What the loops truncate to after the pass."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    graph = rewritten(FunctionGraph(given, outputs, clone=True), drop_truncation, *at)
    return [node.op.options.truncate_gradient for node in loops(graph)]


def looped(steps, k=2, **options):
    return scan(lambda c, _: (c * s, None), s, length=steps, truncate_gradient=k, **options)[0]


@pytest.mark.parametrize(
    ("steps", "k"),
    [
        (0, -1),
        (2, -1),
        (3, 2),
        (n, 2),
        (pt.minimum(n, 2), -1),
        (pt.minimum(n, 3), 2),
        (pt.minimum(n, x.shape[0]), 2),
        (pt.minimum(pt.minimum(n, 7), 1) + 1, -1),
    ],
)
def test_where_no_step_is_cut_off(steps, k):
    assert left(looped(steps), [n, x, s], (3, XS, 0.6), (1, XS, 0.6)) == [k]


def test_in_a_body_and_where_the_loop_stops():
    nested = map(lambda r: r * looped(pt.minimum(n, 2)), x)
    assert left(nested, [n, x, s], (3, XS, 0.6)) == [-1, -1]
    stops, _, _ = scan(lambda c, _: (c * s, None, c > 9), s, length=2, truncate_gradient=2)
    assert left(stops, [s], (3.0,), (9.0,)) == [-1]


def test_what_is_only_true_where_something_raises_is_not_used():
    """The assertion may be dropped with what asked for it; then nothing says how many steps there are."""
    total = (x[: pt.minimum(n, 2)] + x).sum()  # as many rows as x has
    assert left([looped(x.shape[0]), total], [n, x, s], (2, XS[:2], 0.6)) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 9])
def test_the_gradient_of_a_truncated_loop(k):
    """Its loop is turned and divided as that of a whole gradient: the map leaves it, padded behind."""
    final = pytensor.scan(
        lambda r, c: pt.tanh(s * c) + pt.sin(r * s),
        sequences=x,
        outputs_info=s**2,
        truncate_gradient=k,
        return_updates=False,
    )[-1]
    slopes = pytensor.grad(final**2, [x, s])
    f = jaxify([x, s], slopes)
    for rows in (XS, XS[:2], XS[:1]):
        assert_agrees([x, s], slopes, [rows, 0.6])
        expected = pytensor.function([x, s], slopes, mode=FAST_COMPILE)(rows, 0.6)
        actual = [*f(rows, 0.6), *jaxify([x, s], slopes, backend="numba")(rows, 0.6)]
        np.testing.assert_allclose(actual[0], expected[0], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(actual[2], expected[0], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose([actual[1], actual[3]], expected[1], rtol=1e-12)
    lowered = explain([x, s], slopes).lowered
    inside = [str(step.op) for node in loops(lowered) for step in node.op.fgraph.apply_nodes]
    assert len(loops(lowered)) == 2
    assert not any(f in name.lower() for name in inside for f in ("sin", "cos"))


@pytest.mark.slow
def test_derivatives_of_the_program_are_those_of_a_plain_loop():
    f = jaxify([n, s], looped(pt.minimum(n, 2)), loops="xla")
    g = jaxify([n, s], looped(n), loops="native")
    for steps in (0, 1, 2):
        expected = (steps + 1) * 0.6**steps
        for h in (f, g):
            np.testing.assert_allclose(jax.grad(h, 1)(steps, 0.6), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(f, 1)(5, 0.6), 3 * 0.6**2, rtol=1e-12)
    graph = FunctionGraph([n, s], [pytensor.grad(looped(n), s)], clone=True)
    np.testing.assert_allclose(
        jax.grad(g, 1)(5, 0.6), evaluate(graph, np.asarray(5), np.asarray(0.6))
    )
