"""Which ops may run where they did not: what is said of them, and that it is so."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.gradient import grad_clip
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.printing import Print
from pytensor.raise_op import Assert
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.type import random_generator_type

from loopax.ir import evaluate
from loopax.lowering.analysis.raising import Effort, effort

x, y, m = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")
k, n, b = pt.lvector("k"), pt.lscalar("n"), pt.bvector("b")
three, other = (pt.vector(name, shape=(3,), dtype="float64") for name in ("three", "other"))
row = pt.matrix("row", shape=(1, None), dtype="float64")

RNG = random_generator_type("rng")

SAID = {
    "new axis": (x.dimshuffle("x", 0), Effort.FREE),
    "transposed": (m.T, Effort.FREE),
    "an axis of length 1 dropped": (row.dimshuffle(1), Effort.FREE),
    "an axis dropped": (DimShuffle(input_ndim=1, new_order=[])(x), Effort.GUARDED),
    "shape": (x.shape, Effort.CHEAP),
    "function": (pt.exp(x), Effort.CHEAP),
    "log, which has NaN": (pt.log(x), Effort.CHEAP),
    "quotient": (x / x, Effort.CHEAP),
    "known shapes": (three + other, Effort.CHEAP),
    "shapes that may differ": (x + y, Effort.GUARDED),
    "one vector twice": (x + x, Effort.CHEAP),
    "integers divided by 2": (k // np.array([2]), Effort.CHEAP),
    "integers divided": (k // n, Effort.GUARDED),
    "integers by 0": (k % np.array([0]), Effort.GUARDED),
    "integer power": (k**n, Effort.GUARDED),
    "wider": (b.astype("int64"), Effort.CHEAP),
    "narrower": (k.astype("int8"), Effort.GUARDED),
    "slice": (x[1:n], Effort.CHEAP),
    "slice with a step": (x[::n], Effort.GUARDED),
    "row that is there": (three[-3], Effort.CHEAP),
    "row of any number": (x[2], Effort.GUARDED),
    "matrix product": (m @ m, Effort.GUARDED),
    "inverse": (pt.linalg.inv(m), Effort.GUARDED),
    "check": (Assert("no")(x, n > 0), Effort.GUARDED),
    "draw": (pt.random.normal(x, rng=RNG, return_next_rng=True)[1], Effort.FIXED),
    "clipped derivative": (grad_clip(x, -1, 1), Effort.FIXED),
    "print": (Print("x")(x), Effort.FIXED),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said(name):
    v, expected = SAID[name]
    assert effort(v.owner) is expected


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
    "name", [name for name, (_, e) in SAID.items() if e in (Effort.FREE, Effort.CHEAP)]
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
