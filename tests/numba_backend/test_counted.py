"""Loops that count their steps up to a bound are `for` loops, and no others: nothing is compiled here."""

import re

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import scan
from loopax.ir import Loop, evaluate
from tests.numba_backend.interpreted import interpreted, lowered

n, m = pt.lscalar("n"), pt.lscalar("m")


def integer(k, dtype="int64"):
    return pt.constant(k, dtype=dtype)


def flag(value):
    return pt.constant(value, dtype="bool")


def counting(
    *,
    first=0,
    go=lambda: pt.gt(n, 0),
    following=lambda c: c + 1,
    goes_on=lambda c, b, s: pt.lt(c, b),
    bound=lambda: n,
    dtype="int64",
):
    """Powers of two, with everything that makes a loop a counted one for a test to change."""
    c, s, b = pt.scalar(dtype=dtype), pt.dscalar(), pt.lscalar()
    ahead = following(c).astype(dtype)
    loop = Loop.from_body([c, s], [b], [ahead, s * 2.0 + c], goes_on(ahead, b, s))
    start = [integer(first, dtype), pt.constant(1.0, dtype="float64")]
    return loop.bind(go(), start, [bound()])


def assert_is(kind, outputs):
    """It is a loop of that kind, and gives what it should for several bounds."""
    graph = FunctionGraph([n, m], outputs, clone=True)
    run = interpreted(graph)
    for values in ((0, 3), (1, 3), (3, 0), (5, 2)):
        given = [np.array(k) for k in values]
        for a, b in zip(run(*given), evaluate(graph, *given), strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
    assert re.findall(r"\n    (for|while) ", run.source) == [kind]
    return run.source


def test_what_counts():
    constants = [
        counting(bound=lambda: integer(4), go=lambda: flag(True)),
        counting(bound=lambda: integer(0), go=lambda: flag(False)),
    ]
    for outputs in [counting(), counting(following=lambda c: 1 + c), *constants]:
        assert "break" not in assert_is("for", outputs)


def test_what_must_hold_as_well_breaks():
    text = assert_is("for", counting(goes_on=lambda c, b, s: pt.and_(pt.lt(c, b), pt.lt(s, 6.0))))
    assert re.search(r"if not .*:\n +break", text)


OTHERS = {
    "it starts at 1": {"first": 1},
    "it starts below 0": {"first": -1},
    "by two": {"following": lambda c: c + 2},
    "not by one": {"following": lambda c: c + c + 1},
    "up to the bound itself": {"goes_on": lambda c, b, s: pt.le(c, b)},
    "less than the bound": {"goes_on": lambda c, b, s: pt.lt(c, b - 1)},
    "one of two conditions": {"goes_on": lambda c, b, s: pt.or_(pt.lt(c, b), pt.lt(s, 6.0))},
    "asked of 1": {"go": lambda: pt.gt(n, 1)},
    "goes on at 0": {"go": lambda: pt.ge(n, 0)},
    "asked of another": {"go": lambda: pt.gt(m, 0)},  # not the bound that it runs to
    "runs to another": {"bound": lambda: m},
    "no step of four": {"bound": lambda: integer(4), "go": lambda: flag(False)},
    "a step of none": {"bound": lambda: integer(0), "go": lambda: flag(True)},
    "another dtype": {"dtype": "int32"},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_what_does_not_is_a_while_loop(changes):
    assert_is("while", counting(**changes))


def test_a_bound_that_a_step_changes():
    c, b = pt.lscalars(2)
    loop = Loop.from_body([c, b], [], [c + 1, b - 1], pt.lt(c + 1, b))
    assert_is("while", loop.bind(pt.gt(n, 0), [integer(0), n], []))


def test_what_is_read_from_the_end_needs_no_check():
    """At ``bound - 1 - count``, as a loop back over the steps reads; other places are checked."""
    xs, k = pt.dvector("xs"), pt.lscalar("k")
    back = scan(lambda s, x: (s * 0.5 + x, s), pt.constant(0.0, dtype="float64"), xs, reverse=True)
    run = interpreted(lowered([xs], [back[0]]))
    assert "index(" not in run.source and "for " in run.source
    np.testing.assert_allclose(run(np.array([1.0, 2.0, 4.0])), [3.0])
    other = scan(
        lambda s, i: (s + xs[i + k], s), pt.constant(0.0, dtype="float64"), pt.arange(xs.shape[0])
    )
    run = interpreted(lowered([xs, k], [other[0]]))
    with pytest.raises(IndexError, match="out of bounds"):
        run(np.ones(3), 1)
    assert run(np.ones(3), 0) == [3.0]
