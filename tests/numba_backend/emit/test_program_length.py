"""How long a program is expected to be, beside how long it is: nothing here is compiled."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import AllocEmpty
from pytensor.typed_list import TypedListType, length

from benchmarks.native import PROGRAMS
from loopax import jaxify, value_and_grad
from loopax.ir import Cond
from loopax.lowering.scan_to_loop import scan_to_loop
from loopax.numba_backend.callable import program as module
from loopax.numba_backend.callable.program import emitted
from loopax.numba_backend.emit.program_length import estimated_lines, largest_to_try
from tests.numba_backend.interpreted import as_python, lowered

pytestmark = pytest.mark.one_stack


@pytest.fixture(scope="module")
def gradient_of():
    """The graph of a benchmark's value and gradients, by its name and whether its shapes are declared."""
    made = {}

    def find(name, declared):
        if (name, declared) not in made:
            native = PROGRAMS[name][0 if declared else 1]
            inputs, out = native.graph()
            wrt = tuple(k for k, v in enumerate(inputs) if v.name in native.wrt)
            f = value_and_grad(jaxify(inputs, out, backend="numba"), argnums=wrt)
            graph = f.program.graph.clone()
            scan_to_loop(graph)
            made[name, declared] = graph
        return made[name, declared]

    return find


def lines(graph, sizes, largest, monkeypatch):
    monkeypatch.setattr(module, "largest_to_try", lambda *_: [largest])
    return str(emitted(graph, sizes, True).source).count("\n") + 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("largest", [64, 9, 1])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("name", ["hmm", "hmm_log", "kalman", "rnn"])
def test_the_estimate_is_near(gradient_of, name, declared, largest, monkeypatch):
    graph = gradient_of(name, declared)
    sizes = {} if declared else dict.fromkeys(as_python(graph).axes, 4)
    true = lines(graph, sizes, largest, monkeypatch)
    assert 0.55 < estimated_lines(graph, sizes, largest) / true < 1.8, true


@pytest.mark.parametrize(("n_products", "largest"), [(1, 64), (8, 25)], ids=["short", "long"])
def test_a_program_is_as_long_as_it_may_be(n_products, largest):
    x, y = (pt.matrix(name, shape=(8, 8), dtype="float64") for name in "xy")
    actual = x
    for k in range(n_products):
        actual = pt.tanh(actual * y + k)
    graph = lowered([x, y], [actual])
    emit = emitted(graph, {}, True)
    assert emit.largest == largest == largest_to_try(graph, {})[-1]
    assert str(emit.source).count("\n") < 1000


def test_what_is_computed_where_it_is_read_is_counted_there():
    """A sum for each column of four writes out a term four times, with all that it is made of."""
    x = pt.matrix("x", shape=(40, 4), dtype="float64")
    terms = pt.exp(pt.tanh(pt.log(x) + 1))
    by_column, by_row = (lowered([x], [terms.sum(axis)]) for axis in (0, 1))
    stored = lowered([x], [terms])
    assert estimated_lines(by_column, {}, 64) > 1.2 * estimated_lines(stored, {}, 64)
    assert estimated_lines(by_row, {}, 64) == estimated_lines(by_row, {}, 9)
    assert estimated_lines(by_column, {}, 1) < 0.5 * estimated_lines(by_column, {}, 64)


def test_a_program_is_written_once(monkeypatch):
    """Whether it is long, has functions, a state of unknown shape, or branches of different shapes."""
    made = []

    class Counting(module.Emitter):
        def __init__(self, *args):
            made.append(self)
            super().__init__(*args)

    monkeypatch.setattr(module, "Emitter", Counting)
    T = pt.matrix("T", shape=(3, 3), dtype="float64")
    s, s0, c = pt.dvector("s"), pt.dvector("s0"), pt.scalar("c", dtype="bool")
    P = T
    for _ in range(9):
        P = T @ pt.tanh(P)
    state = pytensor.scan(
        lambda s: pt.concatenate([s, s])[::2] * s.sum(),
        outputs_info=[s0],
        n_steps=3,
        return_updates=False,
    )[-1]
    (either,) = Cond.from_branches([s], [s[:2]], [s[1:] + 1]).bind(c, [s0])
    emit = emitted(lowered([T, s0, c], [P, state, either]), {}, True)
    assert made == [emit] and "dot0" in [f.name for f in emit.functions]


def test_what_has_no_shape_counts_as_well():
    ragged = TypedListType(pt.dvector).make_constant([np.zeros(1), np.zeros(2)])
    nothing = AllocEmpty("float64")()
    graph = FunctionGraph([], [length(ragged), nothing], clone=False)
    assert 0 < estimated_lines(graph, {}, 64) < 20
