"""Derivatives of a `Call`: by its own pullback where it has one, else those of its body."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import disconnected_type
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph

import loopax
from loopax import jaxify
from loopax.importer.import_graph import import_graph
from loopax.ir import Call, evaluate
from loopax.ir.derivatives.pullback import PullbackRule
from tests.programs.record import ifelse

X, S, K = pt.dvector("x"), pt.dscalar("s"), pt.lscalar("k")
XS = np.array([0.5, -1.0, 2.0])
BODY = FunctionGraph([X, K, S], [pt.sin(X) * S * K, (X**2).sum()], clone=True).freeze()


def derivative(call):
    """That of a weighted sum of both outputs, by x and s."""
    a, b = call(X, K, S)
    slopes = pytensor.grad((a * [1.0, 2.0, 3.0]).sum() + 5 * b, [X, S])
    return evaluate(FunctionGraph([X, K, S], slopes), XS, np.asarray(3), np.asarray(0.7))


def test_the_derivative_of_the_body():
    weights = np.array([1.0, 2.0, 3.0])
    by_x, by_s = derivative(Call(BODY))
    np.testing.assert_allclose(by_x, weights * np.cos(XS) * 0.7 * 3 + 10 * XS)
    np.testing.assert_allclose(by_s, (weights * np.sin(XS) * 3).sum())


def own(pullback):
    """`BODY` with a pullback of its own."""
    outputs = [pt.sin(X) * S * K, (X**2).sum()]
    op = OpFromGraph([X, K, S], outputs, pullback=pullback)
    return Call(BODY, PullbackRule(op, [v.type for v in BODY.inputs], import_graph))


def test_a_pullback_of_its_own_is_taken():
    """It is given inputs, outputs and the cotangents of these; of an integer it returns none."""

    def pullback(inputs, outputs, cotangents):
        (x, k, s), (a, b), (da, db) = inputs, outputs, cotangents
        return [x * k + a + da, disconnected_type(), s + b + db]

    by_x, by_s = derivative(own(pullback))
    np.testing.assert_allclose(by_x, XS * 3 + np.sin(XS) * 0.7 * 3 + [1.0, 2.0, 3.0])
    np.testing.assert_allclose(by_s, 0.7 + (XS**2).sum() + 5)


def test_an_output_without_cotangent_has_a_cotangent_of_zeros():
    def pullback(inputs, outputs, cotangents):
        return [inputs[0] + cotangents[0], disconnected_type(), inputs[2] + cotangents[1]]

    slopes = pytensor.grad(2 * own(pullback)(X, K, S)[1], [X, S])
    by_x, by_s = evaluate(FunctionGraph([X, K, S], slopes), XS, np.asarray(3), np.asarray(0.7))
    np.testing.assert_allclose(by_x, XS)
    np.testing.assert_allclose(by_s, 2.7)


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_gradient_that_somebody_wrote(backend):
    """``loopax.grad`` of native code takes the derivative of the graph, in which the op is a Call."""
    own = OpFromGraph([S], [S**2], pullback=lambda inputs, outputs, cotangents: [3 * cotangents[0]])
    x = pt.dscalar("x")
    f = loopax.grad(jaxify([x], own(x), backend=backend))
    np.testing.assert_allclose(f(2.0), 3.0)


def test_a_batch_of_branches_is_evaluated():
    rows, flags = pt.dmatrix("rows"), pt.bvector("flags")
    flag = pt.bscalar("flag")
    batched = vectorize_graph(ifelse(flag, pt.exp(X), X**2), {X: rows, flag: flags})
    graph = FunctionGraph([rows, flags], [batched])
    given = np.stack([XS, 2 * XS])
    (actual,) = evaluate(graph, given, np.array([1, 0], dtype="int8"))
    np.testing.assert_allclose(actual, [np.exp(XS), (2 * XS) ** 2])
    with pytest.raises(NotImplementedError, match="of no rows"):
        evaluate(graph, given[:0], np.zeros(0, dtype="int8"))
