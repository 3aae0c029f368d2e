"""What a program writes out often is a function of its own; what it writes once stays in line."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt

from loopax import jaxify
from loopax.numba_backend.callable.program import emitted
from tests.numba_backend.interpreted import interpreted, lowered

T, P = (pt.matrix(name, shape=(3, 3), dtype="float64") for name in "TP")


def power(k):
    actual = P
    for _ in range(k):
        actual = T @ actual + P
    return actual


def test_one_product_is_written_out_and_many_are_calls():
    once = emitted(lowered([T, P], [power(1)]), {}, True)
    assert not once.functions and "dot" not in str(once.source)
    often = emitted(lowered([T, P], [power(8)]), {}, True)
    assert [f.name for f in often.functions] == ["dot0"]
    assert str(often.source).count("dot0(") == 8
    assert often.text.startswith("def dot0(x0, x1,")


def test_values_of_calls():
    actual = P
    for k in range(6):
        actual = pt.linalg.inv(actual + (k + 1) * T) @ T
    graph = lowered([T, P], [actual, pt.linalg.slogdet(actual)[1]])
    names = {re.sub(r"\d", "", f.name) for f in emitted(graph, {}, True).functions}
    assert names == {"solve"}  # that is what PyTensor makes of an inverse by which is multiplied
    run = interpreted(graph)
    rng = np.random.default_rng(0)
    t, p = np.eye(3) + rng.normal(size=(3, 3)) / 9, rng.normal(size=(3, 3)) / 9
    wanted = p
    for k in range(6):
        wanted = np.linalg.inv(wanted + (k + 1) * t) @ t
    np.testing.assert_allclose(run(t, p)[0], wanted, rtol=1e-10)
    np.testing.assert_allclose(run(t, p)[1], np.linalg.slogdet(wanted)[1], rtol=1e-10)


def test_compiled_and_in_a_loop():
    x = pt.vector("x", shape=(2,), dtype="float64")
    A = pt.matrix("A", shape=(2, 2), dtype="float64")

    def step(x, A):
        for _ in range(8):
            x = pt.tanh(pt.linalg.inv(A + pt.outer(x, x)) @ x)
        return x

    xs = pytensor.scan(step, outputs_info=[x], non_sequences=[A], n_steps=3, return_updates=False)
    f = jaxify([x, A], xs[-1], backend="numba")
    assert "= inverse0(" in f.source
    given = [np.array([0.3, -0.2]), np.array([[2.0, 0.1], [0.0, 1.5]])]
    wanted = given[0]
    for _ in range(24):
        inverse = np.linalg.inv(given[1] + np.outer(wanted, wanted))
        wanted = np.tanh(inverse @ wanted)
    np.testing.assert_allclose(f(*given), wanted, rtol=1e-12)
