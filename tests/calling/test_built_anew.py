"""`jaxify` of what `jaxify` has returned: the program, built anew with other options."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify

V = pt.dvector("v")
X = np.arange(1.0, 5.0)


def product(x, sign="plus"):
    y = loopax.scan(lambda s, r: (loopax.watch(s * r, "s"), None), 1.0, x)[0]
    return y if sign == "plus" else -y


def test_a_python_function():
    f = jaxify(static_argnames="sign")(product)
    g = jaxify(f, backend="numba")
    assert type(g) is not type(f) and g.__name__ == "product"
    assert isinstance(g(X), np.ndarray) and (g(X), g(X, sign="minus")) == (24.0, -24.0)
    h = jaxify(g, checks="nan")
    assert float(jax.jit(h)(X)) == 24.0
    with pytest.raises(loopax.NonFiniteError, match="state s is nan at step 1"):
        h(np.array([1.0, np.nan]))
    assert loopax.watched(g)(X)[1]["s"].values.tolist() == [1.0, 2.0, 6.0, 24.0]


def test_programs_with_updates_inputs_in_pytrees_and_donated_ones():
    total = pytensor.shared(np.float64(1.0), name="total")
    f = jaxify([V], V.sum() * total, updates={total: total + 1})
    for g in (jaxify(f, backend="numba"), jaxify(jaxify(f, backend="numba"))):
        call = g.stateful()
        assert [float(call(X)) for _ in range(3)] == [10.0, 20.0, 30.0]
    assert total.get_value() == 1.0
    tree = jaxify([{"a": V}], {"sum": V.sum()})
    assert jaxify(tree, backend="numba")({"a": X}) == {"sum": 10.0}
    given_away = jaxify([V], V * 2, donate="v")
    assert not jaxify(given_away).program.inputs[0].donated
    assert jaxify(given_away, donate=0).program.inputs[0].donated


def test_methods_and_transformed_functions():
    class Line:
        def __init__(self):
            self.slope = 3.0

        @jaxify
        def at(self, x):
            return self.slope * x

    line = Line()
    native = jaxify(line.at, backend="numba")
    np.testing.assert_array_equal(native(X), 3 * X)
    line.slope = 4.0
    np.testing.assert_array_equal(native(X), 4 * X)
    batch = loopax.vmap(jaxify([V], V.sum(), backend="numba"))
    np.testing.assert_array_equal(jaxify(batch)(np.ones((2, 3))), [3.0, 3.0])
    named = jaxify(jaxify([V], V.sum()), name="total")
    assert named.__name__ == "total" and float(named(X)) == 10.0
