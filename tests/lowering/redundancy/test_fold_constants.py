"""What follows from constants alone is computed once, within a budget, and where nothing can go wrong."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import Print
from pytensor.raise_op import Assert
from pytensor.tensor.basic import Join

from loopax import explain, jaxify, scan
from loopax.ir import Scan, check, evaluate
from loopax.lowering.redundancy.fold_constants import fold_constants
from tests.support.compare import FAST_COMPILE

X = pt.dvector("x")
ROWS = np.random.default_rng(0).normal(size=(6, 2))


def design():
    """A column of ones beside data: a fill that PyTensor's rewrites do not fold."""
    return pt.concatenate([pt.ones((6, 1)), pt.constant(ROWS)], axis=1)


def folded(outputs, inputs=(X,)):
    graph = FunctionGraph(list(inputs), [outputs], clone=True)
    check(graph)
    fold_constants(graph)
    check(graph)
    return graph


def ops(graph):
    return [type(node.op) for node in graph.toposort()]


def test_what_is_made_of_a_fill_is_a_constant():
    y = pt.exp(design()) @ X
    graph = folded(y)
    assert Join not in ops(graph) and pt.exp(X).owner.op not in [n.op for n in graph.apply_nodes]
    x = np.arange(3.0)
    np.testing.assert_array_equal(
        evaluate(graph, x)[0], pytensor.function([X], y, mode=FAST_COMPILE)(x)
    )
    for backend in ("jax", "numba"):
        f = jaxify([X], y, backend=backend)
        assert "fold_constants" in [stage.name for stage in explain(f).stages]
        assert Join not in ops(f.program.graph)
        np.testing.assert_allclose(f(x), evaluate(graph, x)[0], rtol=1e-13)


def test_fills_and_views_stay():
    graph = folded(pt.ones((6, 3)) @ X + pt.constant(ROWS).T[0])
    assert len(graph.apply_nodes) > 2


def test_a_large_result_stays_unless_what_it_replaces_is_large():
    n = 1200  # 1200 x 2400 numbers are 23 MB
    wide = pt.concatenate([pt.zeros((n, n)), pt.ones((n, n))], axis=1)
    assert Join in ops(folded(wide @ X))
    assert Join not in ops(folded((wide**2).sum() * X))  # what is made of it is small
    data = pt.constant(np.ones((n, n)))
    assert Join not in ops(folded(pt.concatenate([data, pt.zeros((n, n))], axis=1) @ X))


def test_what_raises_does_so_when_the_program_runs():
    for backend in ("jax", "numba"):
        f = jaxify([X], X + Assert("never")(design(), pt.constant(False))[0, 0], backend=backend)
        with pytest.raises(AssertionError, match="never"):
            f(np.ones(2))


def test_draws_prints_and_loops_stay():
    rng = pt.random.type.random_generator_type("rng")
    draw = rng.normal(design())[1]
    assert draw.owner.op in [node.op for node in folded(draw, [rng]).apply_nodes]
    shown = Print("shown")(design())
    graph = folded(shown @ X)
    assert sum(isinstance(node.op, Print) for node in graph.apply_nodes) == 1
    loop = scan(lambda c, row: (c + row.sum(), None), pt.constant(0.0), design())[0]
    graph = folded(X * loop)
    assert Scan in ops(graph) and Join not in ops(graph)


def test_constants_in_the_body_of_a_loop():
    total, _ = scan(lambda c, x: (c + (pt.exp(design()) * x).sum(), None), pt.constant(0.0), X)
    graph = folded(total)
    (loop,) = [node.op for node in graph.toposort() if isinstance(node.op, Scan)]
    assert Join not in ops(loop.fgraph)
    x = np.arange(3.0)
    np.testing.assert_allclose(
        evaluate(graph, x)[0], pytensor.function([X], total, mode=FAST_COMPILE)(x), rtol=1e-13
    )


LONG = np.sin(np.arange(3000.0))


def constants_of(graph):
    return {v for node in graph.apply_nodes for v in node.inputs if isinstance(v, Constant)}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_large_product_of_small_constants_stays_a_product(backend):
    """PyTensor's own folding, too, ends where ours does; `explain` says what is computed at each call."""
    table = pt.sin(pt.outer(pt.constant(LONG), pt.constant(LONG)))  # 69 MB
    f = jaxify([X], (table @ X).sum(), backend=backend)
    graph = f.program.graph
    assert sum(np.asarray(v.data).nbytes for v in constants_of(graph)) < 3 * LONG.nbytes
    assert str(explain(f)).count("69 MB are computed in the program") == 1
    np.testing.assert_allclose(f(LONG), (np.sin(np.outer(LONG, LONG)) @ LONG).sum(), rtol=1e-8)


def test_what_a_large_product_comes_to_is_a_constant():
    f = jaxify([X], pt.outer(pt.constant(LONG), pt.constant(LONG)).sum() * X)
    assert max(v.data.size for v in constants_of(f.program.graph)) == 1
    np.testing.assert_allclose(f(np.ones(1)), [LONG.sum() ** 2], rtol=1e-12)


def test_a_small_product_of_constants_is_a_constant():
    f = jaxify([X], pt.sin(pt.outer(pt.constant(LONG[:30]), pt.constant(LONG))) @ X)
    (table,) = constants_of(f.program.graph)
    assert table.data.shape == (30, 3000)
    assert "MB are computed" not in str(explain(f))
