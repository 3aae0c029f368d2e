"""All passes, in their order, over random whole programs: each keeps what a program does."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import Elemwise

from loopax import cond, scan
from loopax.ir.evaluation.evaluate import perform_nodes
from loopax.lowering import PASSES
from loopax.lowering.canonical.recognise_reverse import recognise_reverse
from loopax.lowering.fission.functions_out import functions_out
from loopax.lowering.fission.push_out import push_out
from loopax.lowering.redundancy.hoist_invariants import hoist_invariants
from loopax.lowering.redundancy.inline_invariants import inline_invariants
from loopax.lowering.redundancy.merge_inputs import merge_inputs
from loopax.lowering.redundancy.merge_loops import merge_loops
from loopax.lowering.redundancy.remove_unused import remove_unused
from loopax.lowering.storage.read_last import read_last
from loopax.lowering.storage.read_rows import read_rows
from tests.random_programs.in_ir import Program, program
from tests.support.compare import loops, ports
from tests.support.kept import Fault, assert_kept, difference, expected, outcome
from tests.support.random_loops import RANDOM

PROGRAMS = settings(RANDOM, max_examples=25)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_what_a_program_does_is_kept(number):
    """The seed of a program that is not is in the message, for ``tests.random_programs.in_ir.program``."""

    @seed(number)
    @PROGRAMS
    @given(st.integers(0, 2**32 - 1))
    def holds(which):
        assert_kept(program(which), PASSES)

    holds()


# -- each pass alone ---------------------------------------------------------------------------------

# What a pass leaves no more of than there was.
MEASURES = {
    merge_loops: lambda graph: len(loops(graph)),
    merge_inputs: lambda graph: sum(map(sum, ports(graph))),
    remove_unused: lambda graph: sum(map(sum, ports(graph))),
    # A state or a row may become a constant.
    inline_invariants: lambda graph: sum(sum(p) - p[2] for p in ports(graph)),
}
ALONE = [*MEASURES, functions_out, hoist_invariants, push_out, recognise_reverse, read_last]
ALONE += [read_rows]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("run", ALONE, ids=lambda run: run.__name__)
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(1000, 1150), marks=pytest.mark.slow)], ids=len
)
def test_a_pass_keeps_what_a_program_does_and_is_then_done(run, seeds):
    measure = MEASURES.get(run, lambda graph: 0)
    for one in map(program, seeds):
        # One guard may make another node safe to hoist.
        assert_kept(one, [run], steady=run is not hoist_invariants)
        graph = one.graph()
        before = measure(graph)
        run(graph)
        assert measure(graph) <= before, one.seed


# -- the test is one ---------------------------------------------------------------------------------

X, A = pt.dvector("x"), pt.dscalar("a")


def _program(outputs, *values):
    return Program(0, [X, A], outputs, [np.asarray(v) for v in values])


def _replacing(old, new):
    """A pass that puts something else in the place of an op's output."""

    def wrong(graph: FunctionGraph) -> None:
        for node in graph.toposort():
            if isinstance(node.op, old):
                graph.replace(node.outputs[0], new(node), import_missing=True)

    return wrong


def test_it_sees_a_value():
    one = _program([pt.exp(X), X + A], [0.5, 1.0], 2.0)
    wrong = _replacing(Elemwise, lambda node: node.inputs[0] * (1 + 1e-8))
    with pytest.raises(Fault, match=r"seed 0, outputs \[1\]: wrong: output 0: .*\n(.*\n)*.*add\("):
        assert_kept(one, [lambda graph: None, wrong])
    assert_kept(one, [lambda graph: None])


def test_it_sees_an_error():
    raised = CheckAndRaise(KeyError, "no")(X, A > 0)
    lost = _replacing(CheckAndRaise, lambda node: node.inputs[0])
    with pytest.raises(Fault, match="wrong: raises None, not KeyError"):
        assert_kept(_program([raised], [0.5], -1.0), [lost])
    assert_kept(_program([raised], [0.5], 1.0), [lost])
    other = _replacing(CheckAndRaise, lambda node: node.inputs[0][10:][:1] + node.inputs[0][10])
    with pytest.raises(Fault, match="wrong: raises IndexError, not KeyError"):
        assert_kept(_program([raised.sum()], [0.5], -1.0), [other])


def test_it_sees_a_dtype_and_a_shape():
    x = np.zeros(2)
    for y in (np.zeros(2, "float32"), np.zeros((1, 2)), np.zeros(1)):
        assert difference((None, [y]), (None, [x], None))
    assert difference((None, [x + 1e-12]), (None, [x], None)) is None


def test_an_error_may_go_with_what_nobody_needs():
    (final, _), _ = scan(lambda c, r: ((c[0] + r, c[1] + X[7]), None), (A, A), X)
    one = _program([final], [1.0, 2.0], 0.5)
    assert outcome(one, one.graph())[0] is IndexError
    least, values, most = expected(one)
    assert (least, most) == (None, IndexError)
    np.testing.assert_allclose(values, [3.5])


def test_bodies_compiled_or_not():
    """`evaluate`, which goes into bodies itself, gives what their ``perform`` does, which compiles them."""

    def step(c, r):
        inner, *_ = scan(lambda d, _: (d * A, None, d < 0.5), c, length=3)
        return cond(r > 0, lambda: (inner, c), lambda: (c, inner))

    out = scan(step, A, X)
    one = _program([*out, scan(step, A, X, reverse=True)[1]], [0.5, -1.0, 2.0], 0.7)
    actual = outcome(one, one.graph())
    assert difference(actual, (None, perform_nodes(one.graph(), *one.values), None)) is None


def test_what_the_programs_hold():
    """Each of the things that passes look for, in a tenth of a test run's programs."""
    actual = sum((program(k).features for k in range(40)), start=program(40).features)
    assert not {"loop", "inner loop", "loop again", "stops", "reverse", "map", "zero steps"} - {
        *actual
    }
    assert not {"cond", "ifelse", "c[i]", "gradient", "second derivative"} - {*actual}
