"""In which order sums and products are taken: nothing here is compiled."""

import re
from operator import add, mul

import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from loopax.facts.scalars import cycles
from loopax.ir import BodyArgs, BodyOuts, Scan
from loopax.numba_backend.callable.program import emitted
from loopax.numba_backend.emit.expressions import local
from loopax.numba_backend.emit.schedule import chains, folded
from tests.numba_backend.interpreted import lowered


class Step:
    """What `folded` asks of an emitter, inside of one loop: when a name is there, -1 before the loop."""

    def __init__(self, **ready):
        self.ready = {local(name): when for name, when in ready.items() if when >= 0}
        self._before = {local(name) for name, when in ready.items() if when < 0}
        self.scopes, self.depth = self, 1

    def level(self, name):
        return 0 if name in self._before else 1


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        ({"a": 0}, "a"),
        ({"a": 9, "b": 0}, "b + a"),
        ({"a": 0, "b": 0, "c": 0}, "c + (a + b)"),
        ({"a": 9, "b": 0, "c": 0}, "b + c + a"),
        ({"late": 30, "a": -1, "b": -1, "c": 0}, "a + b + c + late"),
        ({"a": 0, "b": 0, "c": 0, "d": 0}, "a + b + (c + d)"),  # a tree: two at a time
        ({"a": 0, "b": 8, "c": 0, "d": 20}, "a + c + b + d"),
    ],
)
def test_the_earliest_are_taken_first(ready, expected):
    assert str(folded(Step(**ready), list(map(local, ready)), add)) == expected


def test_names_that_come_twice():
    assert str(folded(Step(a=0), [local("a")] * 3, mul)) == "a * (a * a)"


def test_how_long_ops_take():
    add, divide, tanh = cycles(ps.add), cycles(ps.true_div), cycles(ps.tanh)
    assert cycles(ps.identity) < cycles(ps.lt) < add < divide < tanh
    assert cycles(ps.eq) == cycles(ps.gt) and tanh == cycles(ps.exp)


def test_when_each_state_is_there():
    """What follows from a state waits for it; a copy, a constant and a row that is read do not."""
    s, t, n, c = pt.dscalar("s"), pt.dscalar("t"), pt.lscalar("n"), pt.dscalar("c")
    xs, i = pt.dvector("xs"), pt.lscalar("i")
    outputs = [pt.tanh(s) * c, s, n + 1, c * 2, pt.exp(xs[n]), xs[i] + t * t]
    u, v, w = pt.dscalars(3)
    scan = Scan.from_body(BodyArgs(i, [], [s, t, n, u, v, w], [c, xs]), BodyOuts(outputs, []))
    assert chains(scan) == [cycles(ps.tanh) + 4, 0, 4, 0, 0, 8]


def test_a_sum_waits_for_its_latest_state_last():
    """As `schedule` says of an AR(2): the state of the step before comes last."""
    xs, p1, p2 = pt.dvector("xs"), pt.dscalar("p1"), pt.dscalar("p2")
    start = pt.tensor("start", dtype="float64", shape=(2,))  # nothing to check at the end
    ys = pytensor.scan(
        lambda x, y2, y1, p1, p2: p1 * y1 + p2 * y2 + x,
        sequences=[xs],
        outputs_info=[{"initial": start, "taps": [-2, -1]}],
        non_sequences=[p1, p2],
        return_updates=False,
    )
    # What returns is the state; in a step it is the latest value, and its product comes last.
    text = emitted(lowered([xs, start, p1, p2], [ys[-1]]), {}, True).text
    latest, total = re.search(r"\n        (s\d+) = (t\d+)\n    return \(\1,\)", text).groups()
    (term,) = re.findall(rf"\n        (t\d+) = v\d+ \* {latest}\n", text)
    assert re.search(rf"\n        {total} = t\d+ \+ t\d+ \+ {term}\n", text)
