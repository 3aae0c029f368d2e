"""Errors that JAX raises while it traces a program, and nodes that are folded there."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor import scan
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from loopax import jaxify
from loopax.ir import evaluate

A, X = pt.dmatrix("A"), pt.dvector("x")


@pytest.mark.parametrize(
    ("output", "values", "op"),
    [
        (A @ X, (np.ones((4, 2)), np.ones(3)), "Dot"),
        (pt.linalg.solve(A, X), (np.ones((3, 3)), np.ones(2)), "Solve"),
        (pt.linalg.cholesky(A) @ X, (np.ones((4, 2)), np.ones(2)), "Cholesky"),
        (pt.set_subtensor(A[0], X), (np.ones((4, 2)), np.ones(3)), "SetSubtensor"),
        (A.reshape((2, 3)) @ X, (np.ones((4, 2)), np.ones(3)), "Reshape"),
    ],
)
def test_an_error_of_jax_names_the_op_and_its_operands(output, values, op):
    with pytest.raises((TypeError, ValueError)) as caught:
        jaxify([A, X], output, loops="xla")(*values)
    (note,) = (n for n in caught.value.__notes__ if n.startswith("In the program"))
    assert f"In the program, {op}" in note
    assert f"'A' of shape {values[0].shape}" in note or f"'x' of shape {values[1].shape}" in note
    assert "test_evaluate.py" in note


def test_the_innermost_node_is_named():
    states = scan(lambda x: A @ x, outputs_info=[X], n_steps=3, return_updates=False)
    with pytest.raises(TypeError) as caught:
        jaxify([A, X], states, loops="xla")(np.ones((2, 2)), np.ones(3))
    notes = [n for n in caught.value.__notes__ if n.startswith("In the program")]
    assert len(notes) == 1 and "Dot was given a variable of shape (2, 2)" in notes[0]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_folded_power_of_a_narrow_integer_wraps_around(dtype):
    """The length makes the input static, and PyTensor computes such powers with Python's numbers."""
    n = pt.scalar("n", dtype=dtype)
    powers = [n**k for k in (3, 4, 8)]
    value = np.asarray(100, dtype)
    expected = pytensor.function([n], powers, mode=Mode("py", None))(value)
    _, *actual = jaxify([n], [pt.arange(n), *powers])(value)
    np.testing.assert_array_equal(actual, expected)


def test_an_elementwise_op_of_more_operands_than_a_ufunc_has():
    """PyTensor's Python code refuses it; without `jax.jit` known values are computed by it."""
    scalars = [ps.float64() for _ in range(40)]
    constants = scalars[1:]
    loop = ScalarLoop(scalars[:1], [sum(constants, scalars[0])], constant=constants)
    inputs = [pt.constant(2), X, *(pt.constant(0.25 * k) for k in range(39))]
    out = Elemwise(loop)(*inputs)
    expected = np.arange(3.0) + 2 * 0.25 * sum(range(39))
    (actual,) = evaluate(FunctionGraph([X], [out]), np.arange(3.0))
    np.testing.assert_allclose(actual, expected)
    for options in ({"jit": False}, {"loops": "xla"}, {"backend": "numba"}):
        np.testing.assert_allclose(jaxify([X], out, **options)(np.arange(3.0)), expected)
