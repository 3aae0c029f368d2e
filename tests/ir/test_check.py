"""`check` finds each fault it promises to find, in nodes that are built wrong by hand."""

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import VerifyError
from loopax.ir import BodyArgs, BodyOuts, Call, Scan, ScanArgs, check

N, XS, S0, C = pt.lscalar("n"), pt.dvector("xs"), pt.dscalar("s0"), pt.dvector("c")


def loop(stops=False):
    """One sequence, one state, one constant, one trace."""
    i, x, s, c = pt.lscalar("i"), pt.dscalar("x"), pt.dscalar("s"), pt.dvector("c")
    new = s + x
    outs = BodyOuts([new], [new * c], pt.gt(new, 3.0) if stops else None)
    return Scan.from_body(BodyArgs(i, [x], [s], [c]), outs)


def graph_of(outputs, inputs=(N, XS, S0, C)):
    return FunctionGraph(list(inputs), list(outputs), clone=True)


def by_hand(op=None, inputs=None, outputs=None):
    """A node of ``loop()`` with other inputs or outputs than it makes itself."""
    good = loop().make_node(N, XS, S0, C)
    return Apply(
        op or good.op,
        list(inputs or good.inputs),
        [v.type() for v in good.outputs] if outputs is None else list(outputs),
    )


def call():
    x, y = pt.dscalar("x"), pt.dvector("y")
    return Call(FunctionGraph([x, y], [x * y], clone=True).freeze(), name="scale")


# -- what is right -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [False, True])
def test_a_loop_as_it_is_made_has_no_fault(stops):
    check(graph_of(loop(stops).bind(ScanArgs(N, [XS], [S0], [C]))))
    check(graph_of(by_hand().outputs))


def test_constants_calls_and_nested_loops_have_no_fault():
    i, s = pt.lscalar("i"), pt.dscalar("s")
    inner = loop().bind(ScanArgs(2, [pt.constant([1.0, 2.0])], [s], [pt.constant([3.0])]))
    body = BodyOuts([inner[0]], [inner[1], call()(s, pt.constant([1.0, 2.0])), pt.constant(5.0)])
    outer = Scan.from_body(BodyArgs(i, [], [s], []), body)
    check(graph_of([*outer.bind(ScanArgs(N, [], [S0], [])), pt.constant(1), XS]))


def test_a_more_specific_type_than_the_declared_one_is_right():
    c = pt.dvector(shape=(3,))
    node = by_hand(inputs=[N, XS, S0, c])
    check(graph_of(node.outputs, [N, XS, S0, c]))


# -- what is wrong ---------------------------------------------------------------------------------------

MATRIX, INT = pt.dmatrix("matrix"), pt.lscalar("int")
WRONG_INPUTS = {
    "state 0 of Scan{loop} is Scalar(int64": [N, XS, INT, C],
    "state 0 of Scan{loop} is Vector(float64": [N, XS, C, C],
    "const 0 of Scan{loop} is Scalar(float64": [N, XS, S0, S0],
    "sequence 0 of Scan{loop} is Matrix(float64": [N, MATRIX, S0, C],
    "sequence 0 of Scan{loop} is Scalar(float64": [N, S0, S0, C],
    "Scan{loop} has 1 consts, but 2 are given": [N, XS, S0, C, C],
    "Scan{loop} has 1 consts, but 0 are given": [N, XS, S0],
    "Scan{loop} has 1 states, but 0 are given": [N, XS],
}


@pytest.mark.parametrize("fault", WRONG_INPUTS)
def test_inputs_of_another_type_than_the_body_declares(fault):
    node = by_hand(inputs=WRONG_INPUTS[fault])
    with pytest.raises(VerifyError) as caught:
        check(graph_of(node.outputs, dict.fromkeys([N, XS, S0, C, *node.inputs])))
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize("n", [S0, C.astype("int64"), pt.bscalar("n")])
def test_n_steps_is_an_int64_scalar(n):
    node = by_hand(inputs=[n, XS, S0, C])
    with pytest.raises(VerifyError, match=r"n_steps.*Scan\{loop\} is "):
        check(
            graph_of(node.outputs, dict.fromkeys([XS, S0, C, n.owner.inputs[0] if n.owner else n]))
        )


WRONG_OUTPUTS = {
    "final state 0 of Scan{loop} is Vector(float64": [pt.dvector(), pt.dmatrix()],
    "trace 0 of Scan{loop} is Vector(float64": [pt.dscalar(), pt.dvector()],
    "trace 0 of Scan{loop} is Matrix(float32": [pt.dscalar(), pt.fmatrix()],
    "Scan{loop} has 1 traces, but 0 are given": [pt.dscalar()],
}


@pytest.mark.parametrize("fault", WRONG_OUTPUTS)
def test_outputs_of_another_type_than_the_body_gives(fault):
    node = by_hand(outputs=WRONG_OUTPUTS[fault])
    with pytest.raises(VerifyError) as caught:
        check(graph_of(node.outputs))
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize(
    ("stops", "more"),
    [
        (False, [pt.lscalar()]),
        (False, [pt.lscalar(), pt.scalar(dtype="bool")]),
        (False, [pt.lscalar()] * 3),
        (True, []),
        (True, [pt.lscalar()]),
        (True, [pt.dscalar(), pt.scalar(dtype="bool")]),
        (True, [pt.lscalar(), pt.lscalar()]),
    ],
)
def test_outputs_that_say_how_a_loop_ended(stops, more):
    node = by_hand(loop(stops), outputs=[v.type() for v in [pt.dscalar(), pt.dmatrix(), *more]])
    with pytest.raises(VerifyError, match="loop"):
        check(graph_of(node.outputs))


@pytest.mark.parametrize("new", [lambda s: s[None], lambda s: s.astype("float32")])
def test_a_state_leaves_the_body_with_the_type_it_came_in_with(new):
    i, s = pt.lscalar("i"), pt.dscalar("s")
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([new(s)], []))
    outputs = scan.bind(ScanArgs(N, [], [S0], []))
    with pytest.raises(
        VerifyError, match=r"next state 0 of Scan\{loop\} is .* but its body declares"
    ):
        check(graph_of(outputs))


@pytest.mark.parametrize(
    ("stop", "actual"), [(lambda s: s, "Scalar.float64"), (lambda s: (s > 1)[None], "Vector.bool")]
)
def test_a_stop_flag_is_a_bool_scalar(stop, actual):
    i, s = pt.lscalar("i"), pt.dscalar("s")
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s], [], stop(s)))
    outputs = scan.bind(ScanArgs(N, [], [S0], []))
    with pytest.raises(VerifyError, match=rf"the stop flag of .* is {actual}.*not a bool scalar"):
        check(graph_of(outputs))


def test_a_body_is_frozen():
    good = loop()
    scan = Scan(good.fgraph.unfreeze(), 1, 1, 1)
    with pytest.raises(VerifyError, match=r"the body of Scan\{loop\} is not frozen"):
        check(graph_of(by_hand(scan).outputs))


def test_a_body_depends_on_nothing_but_its_inputs():
    x, y = pt.dscalar("x"), pt.dscalar("y")
    body = FunctionGraph([x, y], [x + y], clone=False)
    body.inputs.remove(y)
    outputs = Apply(Call(body), [S0], [pt.dscalar()]).outputs
    with pytest.raises(
        VerifyError, match="input 1 of .*, y, is neither an input nor made by an ear"
    ):
        check(graph_of(outputs))


def test_a_variable_that_nobody_makes():
    graph = graph_of([XS * S0, S0 + 1])
    graph.inputs.pop(2)
    with pytest.raises(VerifyError, match="s0, is neither an input nor made by an earlier node"):
        check(graph)


def test_an_output_that_nobody_makes():
    graph = graph_of([XS * 2, S0])
    graph.inputs.pop(2)
    with pytest.raises(VerifyError, match="^output 1, s0, is not made by the graph"):
        check(graph)


@pytest.mark.parametrize(
    ("inputs", "fault"),
    [
        ([S0, S0], "input 1 of .* is Scalar.float64.*, but its body declares Vector.float64"),
        ([S0], "has 2 inputs, but 1 are given"),
    ],
)
def test_inputs_of_a_call(inputs, fault):
    with pytest.raises(VerifyError, match=fault):
        check(graph_of(Apply(call(), inputs, [pt.dvector()]).outputs))


def test_outputs_of_a_call():
    for outputs, fault in [
        ([pt.dscalar()], "output 0 of .* is Scalar.float64.*, but its body declares Vector"),
        ([pt.dvector(), pt.dvector()], "has 1 outputs, but 2 are given"),
    ]:
        with pytest.raises(VerifyError, match=fault):
            check(graph_of(Apply(call(), [S0, C], outputs).outputs))


def test_a_fault_inside_a_body_is_found():
    i, s = pt.lscalar("i"), pt.dscalar("s")
    wrong = Apply(call(), [s, s], [pt.dvector()]).outputs[0]
    outer = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s], [wrong]))
    outputs = outer.bind(ScanArgs(N, [], [S0], []))
    with pytest.raises(VerifyError, match="input 1 of Call{scale} is Scalar"):
        check(graph_of(outputs))
    body = FunctionGraph([s], [wrong], clone=True).freeze()
    with pytest.raises(VerifyError, match="input 1 of Call{scale} is Scalar"):
        check(graph_of([Call(body)(S0)]))


def test_the_message_ends_with_the_graph_as_text():
    with pytest.raises(VerifyError, match=r"(?s)\n\nin\n\nprogram\(.*\n  return ") as caught:
        check(
            graph_of(
                by_hand(inputs=WRONG_INPUTS["state 0 of Scan{loop} is Vector(float64"]).outputs
            )
        )
    assert "Scan{loop} n_steps=n xs=(xs) init=(c) consts=(c)" in str(caught.value)
