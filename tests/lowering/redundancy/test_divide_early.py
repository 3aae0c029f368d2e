"""A quotient of a product divides the factors that have fewer elements."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise

from loopax.lowering.redundancy.divide_early import divide_early
from tests.support.kept import rewritten

m, v, s, f = pt.dmatrix("m"), pt.dvector("v"), pt.dscalar("s"), pt.fmatrix("f")
RNG = np.random.default_rng(0)
GIVEN = [RNG.normal(size=(3, 2)), RNG.normal(size=3), 0.7, RNG.normal(size=(3, 2)).astype("f4")]


def quotients(output):
    """The shapes, as far as they are known, of what is divided after the pass."""
    graph = FunctionGraph([m, v, s, f], [output], clone=True)
    rewritten(graph, divide_early, GIVEN, rtol=1e-6 if output.dtype == "float32" else 1e-14)
    nodes = [n for n in graph.toposort() if isinstance(n.op, Elemwise)]
    return [n.outputs[0].type.shape for n in nodes if isinstance(n.op.scalar_op, ps.TrueDiv)]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (m * v[:, None] / s, [(None, 1)]),
        (m * np.float64(2.0) / s, [(1, 1)]),
        (pt.mul(m, m, v[:, None], s) / (s + 1), [(1, 1)]),
        (v * s / pt.exp(s), [(1,)]),
        (m * v[:, None] / v[:, None], [(None, 1)]),
    ],
)
def test_the_smaller_factor_is_divided(output, expected):
    assert quotients(output) == expected


@pytest.mark.parametrize(
    "output", [m * v[:, None] / m, m * m / s, m / s, f * v[:, None].astype("float32") / s]
)
def test_what_has_no_smaller_factor_stays(output):
    assert quotients(output) == [(None, None)]


def test_a_product_that_is_read_twice_stays():
    product = m * v[:, None]
    assert quotients(product / s + product) == [(None, None)]
