"""``jaxify(..., optimize="egraph")``: backends, derivatives, loops; what it says, and what it refuses."""

import os
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise
from pytensor.typed_list import make_list

import loopax
from loopax import explain, jaxify
from loopax.extensions.egraph import optimize

x = pt.dvector("x")
ONE = np.ones(1)
LOST = pt.log(ONE - pt.exp(x)).sum()  # log1mexp, which PyTensor finds in 3.3 and not in 3.0
AT = np.array([-1e-3, -2.0])
SLOPE = -1 / np.expm1(-AT)

needs_egglog = pytest.mark.skipif(
    optimize.find_spec("egglog") is None, reason="egglog is in the egraph extra"
)


@pytest.mark.sampled(1)
@needs_egglog
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_values_and_derivatives(backend):
    f = jaxify([x], LOST, backend=backend, optimize="egraph")
    plain = jaxify([x], LOST, backend=backend)
    np.testing.assert_allclose(f(AT), plain(AT), rtol=1e-12)
    np.testing.assert_allclose(loopax.grad(f)(AT), SLOPE, rtol=1e-10)
    again = pickle.loads(pickle.dumps(f))
    assert again.options == f.options and f.options["optimize"] == "egraph"
    np.testing.assert_array_equal(again(AT), f(AT))


@needs_egglog
def test_jax_transformations_of_native_code():
    f = jaxify([x], LOST, optimize="egraph", loops="native")
    np.testing.assert_allclose(jax.grad(f)(AT), SLOPE, rtol=1e-10)
    np.testing.assert_allclose(jax.vmap(f)(np.stack([AT, AT])), [f(AT)] * 2, rtol=1e-12)


@needs_egglog
def test_a_python_function():
    @jaxify(optimize="egraph", backend="numba")
    def f(a):
        rows = np.arange(300) % 3
        return pt.exp(pt.specify_shape(a, (3,))[rows]).sum()

    np.testing.assert_allclose(f(np.zeros(3)), 300.0)
    assert any("access behind a function" in line for line in explain(f, np.zeros(3)).notes)


@needs_egglog
def test_explain_names_the_rules_that_were_used():
    a = pt.tensor("a", shape=(100,))
    f = jaxify([a], pt.exp(a)[np.array([3, 1])], backend="numba", optimize="egraph")
    actual = explain(f)
    assert "egraph" in [stage.name for stage in actual.stages]
    assert any(line.startswith("egraph: access before a function") for line in actual.notes)
    assert "access before a function" in str(actual)
    plain = explain(jaxify([a], pt.exp(a)[np.array([3, 1])], backend="numba"))
    assert plain.notes == () and "egraph" not in [stage.name for stage in plain.stages]


@needs_egglog
def test_the_body_of_a_loop():
    a = pt.tensor("a", shape=(5,))
    rows = np.arange(200) % 5

    def step(c, _):
        return c + pt.exp(c[rows]).sum() * 1e-4, None

    last, _ = loopax.scan(step, a, None, 3)
    f = jaxify([a], last, backend="numba", optimize="egraph")
    plain = jaxify([a], last, backend="numba")
    at = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(f(at), plain(at), rtol=1e-13)
    [loop] = [n.op for n in explain(f).lowered.apply_nodes if hasattr(n.op, "fgraph")]
    shapes = {
        n.outputs[0].type.shape
        for n in loop.fgraph.apply_nodes
        if isinstance(n.op, Elemwise) and n.op.scalar_op.name == "exp"
    }
    assert shapes == {(5,)}


def test_without_egglog_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(optimize, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'loopax\[egraph\]'"):
        jaxify([x], LOST, optimize="egraph")


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="optimize must be one of .*'none', 'egraph'.*got 'fast'"):
        jaxify([x], LOST, optimize="fast")


PROGRAM = """
import numpy as np, pytensor.tensor as pt, loopax
a, c = pt.tensor("a", shape=(40,)), np.arange(40) % 3 == 0
z = pt.exp(a[np.arange(400) % 40]) / pt.exp(a[0])
f = loopax.explain(loopax.jaxify([a], [z.sum(), pt.switch(c, pt.gammaln(a), pt.erfcx(a) * 2 - a).sum()],
                                 backend="numba", optimize="egraph"))
print(f.text(f.lowered), *f.notes, sep="\\n")
"""


@needs_egglog
@pytest.mark.slow
def test_it_is_the_same_in_every_process():
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1 and "egraph: " in said.pop()


@needs_egglog
def test_an_index_that_may_raise_is_not_dropped():
    """The branch that is never taken reads a row that may not be there."""
    never = np.zeros(50, bool)
    a, b = pt.tensor("a", shape=(50,)), pt.dvector("b")
    row = pt.shape_padleft(b[7])
    graph = FunctionGraph(
        [a, b], [pt.switch(never, pt.exp(row) + 0 * a, pt.exp(a) * 2)], clone=True
    )
    optimize.take_cheapest(graph, enough=1.1)
    from loopax.ir import evaluate

    with pytest.raises(IndexError):
        evaluate(graph, np.ones(50), np.ones(3))
    assert evaluate(graph, np.ones(50), np.ones(9))[0].shape == (50,)


@needs_egglog
def test_a_check_is_not_dropped():
    """``second(check(x), 1)`` needs no x, and raises all the same."""
    from pytensor.raise_op import Assert

    a = pt.tensor("a", shape=(50,))
    checked = Assert("all positive")(a, pt.all(a > 0))
    graph = FunctionGraph([a], [pt.second(checked, 2.0 * ONE).sum()], clone=True)
    optimize.egraph(graph)
    from loopax.ir import evaluate

    assert evaluate(graph, np.ones(50))[0] == 100.0
    with pytest.raises(AssertionError, match="all positive"):
        evaluate(graph, -np.ones(50))


@needs_egglog
def test_a_constant_without_a_hash():
    """A slice has none before Python 3.12."""
    rows = make_list([x, 2 * x, 3 * x])[1:]
    f = jaxify([x], rows[0], optimize="egraph", backend="numba")
    np.testing.assert_array_equal(f(AT), 2 * AT)
