"""`check` on Cond: each rule that it verifies, broken once."""

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import VerifyError
from loopax.ir import Cond, check

x, s, n = pt.dscalar("x"), pt.dscalar("s"), pt.lscalar("n")
go = pt.scalar("go", dtype="bool")


def node_of(op, inputs, outputs):
    """A node as no ``make_node`` would make it."""
    return FunctionGraph(inputs, Apply(op, inputs, [v.type() for v in outputs]).outputs)


CHOOSE = Cond.from_branches([x], [x + 1], [x - 1])


def test_what_is_right_passes():
    check(FunctionGraph([go, x], CHOOSE.bind(go, [x]), clone=True))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (node_of(CHOOSE, [n, x], [x]), "condition of Cond.*int64"),
        (node_of(CHOOSE, [go, n], [x]), "operand 0 of Cond.*int64"),
        (node_of(CHOOSE, [go, x], [n]), "branch 0 of Cond.*int64"),
        (
            node_of(Cond.from_branches([x], [x], [x > 1]), [go, x], [x]),
            "output of the second branch 0 of Cond",
        ),
    ],
)
def test_what_is_wrong_is_found(graph, message):
    with pytest.raises(VerifyError, match=message):
        check(graph)
