"""What is asked of a Kronecker product is asked of its factors, and the product is never made."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import explain, jaxify
from loopax.ir import check, evaluate

pytest.importorskip("egglog", reason="the extra egraph")

from loopax.extensions.egraph.kronecker import kron
from loopax.extensions.egraph.optimize import egraph, take_cheapest
from loopax.lowering.canonical.stabilize import stabilize_for_loops
from tests.extensions.egraph.prices import by_chance
from tests.support.marking import slow_where

N, M = 7, 9
A, B, C = (pt.tensor(name, shape=(n, n)) for name, n in (("A", N), ("B", M), ("C", N)))
W = pt.tensor("W", shape=(6, N))  # no square
x, z = pt.tensor("x", shape=(N * M,)), pt.tensor("z", shape=(N * M, 1))
INPUTS = [A, B, C, W, x, z]
RNG = np.random.default_rng(0)
AT = [RNG.normal(size=v.type.shape) + 3 * np.eye(*v.type.shape) for v in INPUTS[:4]]
AT += [RNG.normal(size=v.type.shape) for v in INPUTS[4:]]
K = kron(A, B)  # the form that PyTensor's op has when it is a program's
PRODUCT = pt.linalg.kron(A, B)

ASKED = {
    "K @ x": K @ x,
    "K @ z": K @ z,
    "x @ K": x @ K,
    "z' @ K": z.T @ K,
    "K' @ x": K.T @ x,
    "kron(W, B) @ x": kron(W, B) @ x,
    "solve(K, x)": pt.linalg.solve(K, x, b_ndim=1),
    "inv(K) @ x": pt.linalg.inv(K) @ x,
    "inv(K) @ z": pt.linalg.inv(K) @ z,
    "x @ inv(K) @ x": x @ pt.linalg.inv(K) @ x,
    "x @ K @ x": x @ K @ x,
    "det(K)": pt.linalg.det(K),
    "slogdet(K)": pt.linalg.slogdet(K)[1],
    "trace(K)": pt.trace(K),
    "trace(K @ kron(C, B))": pt.trace(K @ kron(C, B)),
    "density": -0.5 * x @ pt.linalg.inv(K) @ x - 0.5 * pt.linalg.slogdet(K)[1],
}


def lowered(asked):
    graph = FunctionGraph(INPUTS, [asked], clone=True)
    stabilize_for_loops(graph)
    return graph


def largest(graph):
    return max(np.prod(v.type.shape) for n in graph.toposort() for v in n.outputs)


@pytest.mark.parametrize("asked", ASKED)
def test_no_product_is_made(asked):
    graph = lowered(ASKED[asked])
    wanted, before = evaluate(graph, *AT), largest(graph)
    egraph(graph)
    check(graph)
    np.testing.assert_allclose(evaluate(graph, *AT), wanted, rtol=1e-9)
    assert before >= (N * M) ** 2 * 6 / N > largest(graph)


@pytest.mark.parametrize("asked", slow_where(lambda asked: asked != "density", ASKED))
def test_terms_by_chance(asked):
    for seed in range(4):
        graph = lowered(ASKED[asked])
        wanted = evaluate(graph, *AT)
        take_cheapest(graph, by_chance(seed), enough=np.inf)
        check(graph)
        np.testing.assert_allclose(evaluate(graph, *AT), wanted, rtol=1e-7, atol=1e-7)


def test_a_determinant_that_one_factor_overflows():
    """``det(A)**9`` is infinite, ``det(B)**7`` is zero, and their product is neither."""
    graph = lowered(pt.linalg.det(K))
    egraph(graph)
    at = [1e6 * np.eye(N), 1e-6 * np.eye(M), *AT[2:]]
    np.testing.assert_allclose(evaluate(graph, *at)[0], 1.0, rtol=1e-10)


@pytest.mark.slow
def test_a_density_with_its_gradient():
    density = -0.5 * x @ pt.linalg.inv(PRODUCT) @ x - 0.5 * pt.linalg.slogdet(PRODUCT)[1]
    outputs = [density, *pytensor.grad(density, [x, A])]
    inputs, at = [A, B, x], [AT[0] @ AT[0].T, AT[1] @ AT[1].T, AT[4]]
    plain, few = (jaxify(inputs, outputs, optimize=how) for how in ("none", "egraph"))
    assert any("Kronecker" in line for line in explain(few).notes)
    for actual, wanted in zip(few(*at), plain(*at), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-8, atol=1e-9)


def test_in_native_code():
    f = jaxify([A, B, x], PRODUCT @ x, backend="numba", optimize="egraph")
    assert any("Kronecker" in line for line in explain(f).notes)
    np.testing.assert_allclose(f(*AT[:2], AT[4]), np.kron(*AT[:2]) @ AT[4], rtol=1e-12)
