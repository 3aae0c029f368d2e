"""What ops may raise, and do besides, and where they may run: what is said of them, and that it is so."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import grad_clip
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.printing import Print
from pytensor.raise_op import Assert
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.random.type import random_generator_type

from loopax.facts import Errors
from loopax.ir import Call, evaluate
from loopax.ir.effects import Effects, Speculation, effects, errors, speculation

x, y, m = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")
k, n, b = pt.lvector("k"), pt.lscalar("n"), pt.bvector("b")
three, other = (pt.vector(name, shape=(3,), dtype="float64") for name in ("three", "other"))
row = pt.matrix("row", shape=(1, None), dtype="float64")

RNG = random_generator_type("rng")

SAID = {
    "new axis": (x.dimshuffle("x", 0), Speculation.FREE),
    "transposed": (m.T, Speculation.FREE),
    "an axis of length 1 dropped": (row.dimshuffle(1), Speculation.FREE),
    "an axis dropped": (DimShuffle(input_ndim=1, new_order=[])(x), Speculation.GUARDED),
    "shape": (x.shape, Speculation.CHEAP),
    "function": (pt.exp(x), Speculation.CHEAP),
    "log, which has NaN": (pt.log(x), Speculation.CHEAP),
    "quotient": (x / x, Speculation.CHEAP),
    "known shapes": (three + other, Speculation.CHEAP),
    "shapes that may differ": (x + y, Speculation.GUARDED),
    "one vector twice": (x + x, Speculation.CHEAP),
    "integers divided by 2": (k // np.array([2]), Speculation.CHEAP),
    "integers divided": (k // n, Speculation.GUARDED),
    "integers by 0": (k % np.array([0]), Speculation.GUARDED),
    "integer power": (k**n, Speculation.GUARDED),
    "wider": (b.astype("int64"), Speculation.CHEAP),
    "narrower": (k.astype("int8"), Speculation.GUARDED),
    "slice": (x[1:n], Speculation.CHEAP),
    "slice with a step": (x[::n], Speculation.GUARDED),
    "row that is there": (three[-3], Speculation.CHEAP),
    "row of any number": (x[2], Speculation.GUARDED),
    "matrix product": (m @ m, Speculation.GUARDED),
    "inverse": (pt.linalg.inv(m), Speculation.GUARDED),
    "check": (Assert("no")(x, n > 0), Speculation.GUARDED),
    "draw": (pt.random.normal(x, rng=RNG, return_next_rng=True)[1], Speculation.FIXED),
    "clipped derivative": (grad_clip(x, -1, 1), Speculation.FIXED),
    "print": (Print("x")(x), Speculation.FIXED),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said(name):
    v, expected = SAID[name]
    assert speculation(v.owner) is expected


VALUES = {
    x: [np.zeros(0), np.array([0.0, -1.0, np.inf])],
    m: [np.zeros((0, 2)), np.array([[0.0, np.nan]])],
    row: [np.zeros((1, 0)), np.ones((1, 2))],
    three: [np.array([0.0, -1.0, np.nan])],
    other: [np.zeros(3)],
    k: [np.array([], "int64"), np.array([0, -(2**63), 2**63 - 1])],
    b: [np.array([-128, 127], "int8")],
    n: [np.asarray(-(2**63)), np.asarray(0), np.asarray(2**63 - 1)],
}


@pytest.mark.parametrize(
    "name", [name for name, (_, e) in SAID.items() if e in (Speculation.FREE, Speculation.CHEAP)]
)
def test_what_is_said_to_be_cheap_does_not_raise(name):
    """At the edges of what its inputs can be, on its own."""
    node = SAID[name][0].owner
    inputs = [v for v in VALUES if v in ancestors([node.outputs[0]])]
    graph = FunctionGraph(inputs, [node.outputs[0]], clone=True)
    longest = max(len(VALUES[v]) for v in inputs)
    for case in range(longest):
        with np.errstate(all="ignore"):
            evaluate(graph, *[VALUES[v][case % len(VALUES[v])] for v in inputs])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("shapes that may differ", {x: np.ones(2), y: np.ones(3)}),
        ("an axis dropped", {x: np.ones(2)}),
        ("slice with a step", {x: np.ones(2), n: np.asarray(0)}),
        ("row of any number", {x: np.ones(2)}),
        ("inverse", {m: np.zeros((2, 2))}),
        ("check", {x: np.ones(2), n: np.asarray(0)}),
    ],
)
def test_what_is_guarded_may_raise(name, values):
    graph = FunctionGraph([*values], [SAID[name][0]], clone=True)
    with pytest.raises((ValueError, IndexError, AssertionError, np.linalg.LinAlgError)):
        evaluate(graph, *values.values())


SHAPE, LENGTH, INDEX, VALUE = Errors.SHAPE, Errors.LENGTH, Errors.INDEX, Errors.VALUE
RAISED = {
    "shapes that may differ": (x + y, SHAPE, {x: np.ones(2), y: np.ones(3)}),
    "matrix product": (Dot()(m, m), SHAPE, {m: np.ones((2, 3))}),
    "joined": (pt.join(1, m, m.T), SHAPE, {m: np.ones((2, 3))}),
    "an axis dropped": (SAID["an axis dropped"][0], SHAPE, {x: np.ones(2)}),
    "filled": (pt.alloc(x, x.shape[0], y.shape[0]), SHAPE, {x: np.ones(2), y: np.ones(3)}),
    "filled, of any length": (pt.alloc(0.0, n), SHAPE | LENGTH, {n: np.asarray(-1)}),
    "reshaped": (x.reshape((y.shape[0], -1)), SHAPE, {x: np.ones(3), y: np.ones(2)}),
    "reshaped to numbers": (x.reshape((n, 1)), SHAPE | LENGTH, {x: np.ones(3), n: np.asarray(2)}),
    "largest": (pt.max(x), LENGTH, {x: np.ones(0)}),
    "row of any number": (x[n], INDEX, {x: np.ones(2), n: np.asarray(2)}),
    "slice with a step": (x[::n], VALUE, {x: np.ones(2), n: np.asarray(0)}),
    "written row": (pt.set_subtensor(x[n], 0.0), SHAPE | INDEX, {x: np.ones(2), n: np.asarray(2)}),
    "range with any step": (pt.arange(0, 3, n), VALUE, {n: np.asarray(0)}),
    "integer power": (k**n, SHAPE | VALUE, {k: np.array([2]), n: np.asarray(-1)}),
    "check": (SAID["check"][0], ~Errors.NONE, {x: np.ones(2), n: np.asarray(0)}),
}
KINDS = {
    SHAPE: (ValueError, TypeError),
    LENGTH: (ValueError,),
    INDEX: (IndexError,),
    VALUE: (ValueError, ZeroDivisionError, AssertionError),
}


@pytest.mark.parametrize("name", RAISED)
def test_what_may_be_raised(name):
    v, expected, values = RAISED[name]
    assert errors(v.owner) in expected
    graph = FunctionGraph([*values], [v], clone=True)
    with pytest.raises(tuple(kind for e in expected for kind in KINDS[e])):
        evaluate(graph, *values.values())


@pytest.mark.parametrize(
    "v", [pt.sum(x), pt.max(three), x[1:n], pt.arange(n), pt.alloc(0.0, x.shape[0])], ids=str
)
def test_what_raises_nothing_but_for_shapes(v):
    assert errors(v.owner) in SHAPE


DRAWN = SAID["draw"][0]


class Foreign(Op):
    itypes, otypes = [pt.dvector], [pt.dvector]

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0]


@pytest.mark.parametrize(
    ("v", "expected"),
    [
        (pt.exp(x), Effects.NONE),
        (DRAWN, Effects.DRAWS),
        (Print("x")(x), Effects.PRINTS),
        (Foreign()(x), Effects.UNKNOWN),
        (Call(FunctionGraph([x], [Print("x")(x)], clone=True).freeze())(x), Effects.PRINTS),
        (OpFromGraph([x, RNG], [DRAWN])(x, RNG), Effects.DRAWS),
        (pt.inc_subtensor(x[1:], 1.0, inplace=True), Effects.OVERWRITES),
    ],
    ids=["function", "draw", "print", "foreign", "call", "graph", "in place"],
)
def test_effects(v, expected):
    assert effects(v.owner.op) == expected
