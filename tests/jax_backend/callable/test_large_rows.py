"""On a CPU, functions of large rows stay in the steps of their loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from loopax.kernels.primitive import in_jax
from loopax.lowering.analysis import computed_rows
from tests.support.assorted_loops import CASES
from tests.support.compare import equations, primitives

X, H, U = pt.dtensor3("x"), pt.dmatrix("h"), pt.dmatrix("u")
NET = loopax.scan(lambda h, r: (pt.tanh(h * 0.5 + r @ U), None), H, X)[0]


def shaped(*shapes):
    return [jax.ShapeDtypeStruct(s, "float64") for s in shapes]


def products(jaxpr):
    """The numbers of products outside and inside of the loops of a jaxpr."""
    loops = [e for e in equations(jaxpr) if e.primitive.name == "scan"]
    inside = sum(primitives(e.params["jaxpr"])["dot_general"] for e in loops)
    return primitives(jaxpr)["dot_general"] - inside, inside


@pytest.mark.parametrize("steps, place", [(100, (1, 0)), (1000, (0, 1))])
def test_a_product_of_rows(steps, place):
    f = jaxify([X, H, U], NET, loops="xla")
    args = shaped((steps, 64, 8), (64, 32), (8, 32))
    assert products(jax.make_jaxpr(f)(*args)) == place
    slope = jax.grad(lambda *args: f(*args).sum(), 2)
    outside, _ = products(jax.make_jaxpr(slope)(*args))
    assert bool(outside) is (steps == 100)


def test_it_is_explained():
    f = jaxify([X, H, U], NET, loops="xla")
    f(np.zeros((10, 4, 8)), np.zeros((4, 32)), np.zeros((8, 32)))
    assert "functions of rows stay in their loops" not in str(loopax.explain(f))
    f(np.zeros((1000, 64, 8)), np.zeros((64, 32)), np.zeros((8, 32)))
    assert "functions of rows stay in their loops" in str(loopax.explain(f))


def test_a_batch_of_a_kernel():
    """Shapes inside of `jax.vmap` do not have the rows of the batch."""
    f = jaxify([X, H, U], NET, loops="native")
    args = shaped((100, 16, 8), (16, 32), (64, 8, 32))
    jaxpr = jax.make_jaxpr(jax.vmap(f, (None, None, 0)))(*args)
    (call,) = (e for e in equations(jaxpr) if e.primitive.name == "loopax_kernel")
    kernel, batch = call.params["kernel"], call.params["batch"]
    assert products(jax.make_jaxpr(in_jax(kernel, batch))(*args)) == (0, 1)
    one = *args[:2], *shaped((8, 32))
    assert products(jax.make_jaxpr(in_jax(kernel, ()))(*one)) == (1, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name, monkeypatch):
    """Equal in both forms; with these bounds all rows are large."""
    case = CASES[name]()
    if not (case.jit and case.in_jax):
        pytest.skip("JAX does not compile this program, or has no reverse mode for it")
    f = jaxify(case.inputs, case.cost, loops="xla")
    expected = f(*case.values), jax.grad(f)(*case.values)
    monkeypatch.setattr(computed_rows, "_LEAST_ROW", 0)
    monkeypatch.setattr(computed_rows, "_LEAST", 0)
    g = jaxify(case.inputs, case.cost, loops="xla")
    for a, b in zip((g(*case.values), jax.grad(g)(*case.values)), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    has_rows = computed_rows.computed_rows(g.program.graph) != []
    assert ("functions of rows stay in their loops" in str(loopax.explain(g))) is has_rows
    vmapped = jax.vmap(g)(*(jnp.stack([x, x]) for x in map(jnp.asarray, case.values)))
    np.testing.assert_allclose(vmapped, [expected[0]] * 2, rtol=1e-10)
