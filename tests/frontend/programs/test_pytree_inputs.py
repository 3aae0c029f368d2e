"""Programs whose arguments are dicts, lists and dataclasses of variables."""

import inspect
import pickle
from dataclasses import dataclass
from typing import Any

import chex
import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, StatefulFunctionError, grad, jaxify, scan, value_and_grad, vmap

a, x, y = pt.dscalar("a"), pt.dvector("x"), pt.dvector("y")
FINAL = scan(lambda s, r: (pt.tanh(a * s) + r, None), 0.0, x)[0]
COST = FINAL + y.sum()
X, Y = np.linspace(0.0, 1.0, 4), np.ones(3)


@dataclass
class Data:
    x: Any
    y: Any


jax.tree_util.register_dataclass(Data, ["x", "y"], [])
PLAIN = jaxify([a, x, y], COST)
FORMS = {
    "dict": ({"a": a, "data": (x, y)}, ({"a": 0.3, "data": (X, Y)},)),
    "list in a list": ([a, [x, y]], (0.3, [X, Y])),
    "dataclass": ([{"a": a}, Data(x, y)], ({"a": 0.3}, Data(X, Y))),
    "some plain": ([[a], x, y], ([0.3], X, Y)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["jax", "numba"])
@pytest.mark.parametrize("form", FORMS)
def test_values_and_derivatives(form, backend):
    inputs, args = FORMS[form]
    f = jaxify(inputs, COST, backend=backend)
    value, slope = value_and_grad(f)(*args)
    np.testing.assert_allclose([f(*args), value], PLAIN(0.3, X, Y), rtol=1e-12)
    assert jax.tree.structure(slope) == jax.tree.structure(args[0])
    first = [v for v in jax.tree.leaves(args[0]) if np.ndim(v) == 0]
    assert len(first) == 1
    (of_a,) = [s for s in jax.tree.leaves(slope) if np.ndim(s) == 0]
    np.testing.assert_allclose(of_a, jax.grad(PLAIN)(0.3, X, Y), rtol=1e-12)


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_batches_of_some_leaves(backend):
    f = jaxify([{"a": a, "x": x}, y], COST, backend=backend)
    several = np.linspace(0.1, 0.9, 3)
    actual = vmap(f, ({"a": 0, "x": None}, None))({"a": several, "x": X}, Y)
    np.testing.assert_allclose(actual, [PLAIN(v, X, Y) for v in several], rtol=1e-12)


def test_all_of_jax():
    f = jaxify({"a": a, "x": x, "y": y}, COST)
    args = {"a": 0.3, "x": X, "y": Y}
    hessian = jax.jit(jax.hessian(f))(args)
    np.testing.assert_allclose(hessian["a"]["a"], jax.hessian(PLAIN)(0.3, X, Y), rtol=1e-10)
    chex.assert_trees_all_close(pickle.loads(pickle.dumps(f))(args), f(args))
    assert str(inspect.signature(f)) == "(arg0)"


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_types_are_those_declared(backend):
    """Unlike those of a Python function, which is traced for the types of its arguments."""
    f = jaxify([[x, y]], x + y, backend=backend)
    np.testing.assert_array_equal(f([[1, 2], [3.0, 4.0]]), [4.0, 6.0])
    with pytest.raises(Exception, match=r"[Ss]hape|length|broadcast"):
        f([np.ones(1), np.ones(3)])
    with pytest.raises(LoopTypeError, match="Input 'x'"):
        f([np.ones((2, 2)), np.ones(2)])


@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_state(backend):
    total = pytensor.shared(0.0, name="total")
    f = jaxify({"a": a}, total + a, updates={total: total + a}, backend=backend)
    context = f.init_context({"a": 1.0})
    context, _ = f.apply(context, {"a": 1.0})
    context, actual = f.apply(context, {"a": 2.0})
    np.testing.assert_allclose([actual, context["total"]], [3.0, 3.0])
    if backend == "numba":
        with pytest.raises(StatefulFunctionError, match="updates shared variables"):
            grad(f)({"a": 1.0})


def test_givens():
    f = jaxify([{"a": a}, y], COST, givens={x: 2 * y}, backend="numba")
    np.testing.assert_allclose(f({"a": 0.3}, Y), PLAIN(0.3, 2 * Y, Y))
    np.testing.assert_allclose(
        grad(f)({"a": 0.3}, Y)["a"], jax.grad(PLAIN)(0.3, 2 * Y, Y), rtol=1e-12
    )


def test_another_structure():
    f = jaxify([{"a": a}, x], FINAL)
    with pytest.raises(
        LoopTypeError, match=r"have the structure .*'a'.*the arguments of the call .*'b'"
    ):
        f({"b": 1.0}, X)
    with pytest.raises(TypeError, match="missing"):
        f({"a": 1.0})
    with pytest.raises(TypeError, match="takes input variables"):
        jaxify([{"a": a, "b": 3.0}], a)
    with pytest.raises(TypeError, match="broadcasting='numpy'"):
        jaxify({"a": a}, a, broadcasting="numpy")
