"""The e-graph and `explain` price an op alike."""

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax.explanation.expected_time import expected_times
from loopax.extensions.egraph.cost import _cost_of_op

N, COLUMNS = 50, 20
a = pt.tensor("a", dtype="float64", shape=(N, N))
b = pt.tensor("b", dtype="float64", shape=(N, COLUMNS))


@pytest.mark.parametrize(
    ("name", "value", "sizes"),
    [
        ("inv", pt.linalg.inv(a), [N * N]),
        ("det", pt.linalg.det(a), [N * N]),
        ("solve2", pt.linalg.solve(a, b), [N * N, N * COLUMNS]),
        ("dot", a @ b, [N * N, N * COLUMNS]),
        ("sum", a.sum(), [N * N]),
    ],
)
def test_one_price(name, value, sizes):
    n = value.type.shape[0] * value.type.shape[1] if value.ndim else 1
    (time,) = expected_times(FunctionGraph([a, b], [value], clone=False)).values()
    assert time == pytest.approx(_cost_of_op(name, n, sizes), rel=1e-9)
