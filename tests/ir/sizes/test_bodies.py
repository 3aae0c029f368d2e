"""What a summary of a body says of its states: which lengths stay as they are from step to step."""

import pytensor.tensor as pt
import pytest

from loopax.ir import BodyArgs, BodyOuts, Loop
from loopax.ir.sizes import DimExpr, Length, body_dims
from loopax.ir.sizes.dim_expr import EqualDims

i, s, w, c = pt.lscalar("i"), pt.dvector("s"), pt.dmatrix("w"), pt.dvector("c")
FIVE, SEVEN = DimExpr(offset=5), DimExpr(offset=7)


def kept(following, start=FIVE, **outside):
    """Whether a vector keeps its length; ``outside`` are lengths of what the body is given."""
    op = Loop.from_body(BodyArgs(i, [], [s], [w, c]), BodyOuts([following], []))
    state, matrix, vector = op.fgraph.inputs[1:]
    lengths = {"s": Length(state, 0), "rows": Length(matrix, 0), "columns": Length(matrix, 1)}
    lengths["c"] = Length(vector, 0)
    known = {lengths[name]: DimExpr(offset=n) for name, n in {"s": 5, **outside}.items()}
    return body_dims(op).keeps_its_start(0, 0, start, known.get)


@pytest.mark.parametrize(
    ("following", "outside", "expected"),
    [
        (s * 2, {}, True),
        (s + w[i], {}, True),
        (w @ s, {}, None),  # there may be more rows than columns
        (w @ s, {"rows": 5}, True),
        (w @ s, {"rows": 7}, False),
        (c * 2, {}, None),  # as long as c from the first step on
        (c * 2, {"c": 5}, True),
        (c * 2, {"c": 7}, False),
        (pt.concatenate([s, [1.0]]), {}, False),
        (s[1:], {}, None),  # of no elements it would
        (pt.concatenate([s, c]), {}, None),
        (pt.concatenate([s, c]), {"c": 0}, True),
        # Or the step raises.
        (pt.tanh(w.T @ s) * c, {"c": 5}, True),
        (c + pt.dot(s, c), {}, True),
        (pt.specify_shape(w[i], (5,)), {}, True),
        (c * pt.set_subtensor(pt.zeros((3, 4))[i], s).sum(), {"c": 5}, True),
    ],
)
def test_whether_a_state_keeps_its_length(following, outside, expected):
    assert kept(following, **outside) is expected


def test_a_start_of_another_length():
    assert (
        kept(c * 2, start=SEVEN, s=7, c=7) is True and kept(c * 2, start=SEVEN, s=7, c=5) is False
    )


def test_equal_dims():
    a, b, d = map(DimExpr.variable, "abd")
    equal = EqualDims([(a, b), (d, b + 1), (FIVE, b), (a, a + 1)])
    assert equal.canonical(a) == FIVE == equal.canonical(b)
    assert equal.canonical(d) == DimExpr(offset=6)
    assert equal.canonical(d - a) == DimExpr(offset=1)
    assert EqualDims([(FIVE, SEVEN)]).canonical(a) == a
