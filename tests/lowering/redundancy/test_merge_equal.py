"""What is computed twice is computed once, a sum or product also with its terms in another order."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import random_generator_type

from loopax import scan
from loopax.lowering.redundancy.merge_equal import merge_equal
from tests.support.compare import loops
from tests.support.kept import rewritten

x, y = pt.dvectors("x", "y")
i, j = pt.bvector("i"), pt.bvector("j")
AT = [np.array([0.4, -0.9]), np.array([1.5, 0.3])]


def merged(*outputs, inputs=(x, y), at=AT):
    return rewritten(FunctionGraph([*inputs], [*outputs], clone=True), merge_equal, at, rtol=1e-13)


def count(graph, scalar_op):
    return sum(
        isinstance(n.op, Elemwise) and type(n.op.scalar_op) is scalar_op for n in graph.apply_nodes
    )


def test_terms_in_another_order():
    ones = np.ones(1)
    graph = merged(pt.exp(pt.mul(ones, x, y)), pt.sin(pt.mul(y, ones, x)))
    assert count(graph, ps.Mul) == 1
    assert count(merged(pt.add(x, y, ones), pt.add(ones, x, y)), ps.Add) == 1


def test_what_only_becomes_equal_by_it():
    """The sums are equal once the products in them are."""
    graph = merged(pt.sin(x * y) + x, x + pt.sin(y * x))
    assert graph.outputs[0] is graph.outputs[1]
    assert len(graph.apply_nodes) == 3


def test_a_term_that_comes_more_than_once_is_counted():
    graph = merged(pt.add(x, y, x, x))
    (total,) = graph.outputs
    assert len(total.owner.inputs) == 2 and count(graph, ps.Mul) == 1
    assert count(merged(pt.add(x, x)), ps.Add) == 0


@pytest.mark.parametrize(
    "pair",
    [(x - y, y - x), (pt.mul(x, y), pt.mul(x, x, y)), (pt.add(x, y), pt.mul(x, y))],
    ids=["differences", "numbers of factors", "ops"],
)
def test_what_differs_stays(pair):
    graph = merged(*pair)
    assert graph.outputs[0] is not graph.outputs[1]


def test_narrow_integers_are_added_as_they_were():
    """100 + 100 is -56 in int8 and 200 in int64: which two are added first matters."""
    wide = pt.lvector("wide")
    at = np.full(2, 100, "int8"), np.full(2, 100, "int8"), np.full(2, 1, "int64")
    graph = merged(pt.add(i, j, wide), pt.add(wide, j, i), inputs=(i, j, wide), at=at)
    assert graph.outputs[0] is not graph.outputs[1]
    assert count(merged(pt.add(i, j), pt.add(j, i), inputs=(i, j), at=at[:2]), ps.Add) == 1


def test_draws():
    """Two draws from one generator are one; of two generators they are two."""
    rngs = [random_generator_type("rng"), random_generator_type("other")]
    draws = [pt.random.normal(rng=g, return_next_rng=True)[1] for g in (rngs[0], *rngs)]
    at = [np.random.default_rng(1), np.random.default_rng(2)]
    one, again, other = merged(*draws, inputs=rngs, at=at).outputs
    assert one is again and one is not other


def test_in_bodies():
    final, ys = scan(lambda c, r: (pt.tanh(c * r) + c, pt.tanh(r * c)), x[0], y)
    (loop,) = loops(merged(final, ys))
    assert count(loop.op.fgraph, ps.Mul) == 1 and count(loop.op.fgraph, ps.Tanh) == 1
