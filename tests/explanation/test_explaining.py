"""`explain`: what it takes, and what it says."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import typed_list as tl
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

import loopax
from loopax import explain, fori_loop, jaxify, scan
from loopax.base.errors import MissingInputError, UnsupportedOpError
from loopax.ir import check
from loopax.lowering import lower, lower_to_loops
from tests.support.assorted_loops import CASES
from tests.support.compare import FAST_COMPILE, imported

x = pt.dvector("x")
s = pt.dscalar("s")
FINAL = scan(lambda c, r: (pt.sin(c * r) + 0 * pt.exp(r), None), s, x)[0]


def twice():
    """The example of docs/passes.md."""
    x0 = pt.dscalar("x0")
    xs = pytensor.scan(lambda x: x**2, outputs_info=[x0], n_steps=4, return_updates=False)
    return [x0], pytensor.grad(pytensor.grad(xs[-1], x0), x0)


# -- what it takes -----------------------------------------------------------------------------------


def test_what_it_says_is_what_the_passes_do():
    inputs, output = twice()
    actual = explain(inputs, output)
    graph = imported(inputs, output).graph
    assert actual.read.freeze() == graph.freeze()
    lower(graph)
    assert actual.lowered.freeze() == graph.freeze()
    for stage in actual.stages:
        check(stage.after)
    assert actual.counts_read.loops == 4


def test_inputs_and_outputs_and_what_jaxify_makes_of_them():
    expected = explain([x, s], {"final": FINAL}, name="mine")
    assert expected.name == "mine" and "mine(x: float64[?], s: float64[])" in str(expected)
    f = jaxify([x, s], {"final": FINAL}, name="mine")
    f(np.ones(3), 1.0)
    assert str(explain(f)) == str(expected)
    assert str(explain(f)) == str(expected)  # as often as one likes: it is not used up


def test_a_program_with_inputs_in_a_dict_needs_no_arguments():
    nested, flat = explain(jaxify([{"x": x, "s": s}], FINAL)), explain(jaxify([s, x], FINAL))
    assert str(nested).partition("\n")[0] == str(flat).partition("\n")[0]
    assert len(nested.lowered.inputs) == 2


def test_it_says_what_ran_natively_inside_of_jax_and_why():
    f = jaxify([x, s], FINAL, loops="auto")
    assert "so far it ran as" not in str(explain(f))
    f(np.ones(300), 1.0)
    assert "== so far it ran as ==\nnative code for shapes (300,), (), about" in str(explain(f))
    without = jaxify([x], pt.exp(x), loops="auto")
    without(np.ones(3))
    (remark,) = explain(without).remarks
    assert remark.startswith("JAX's operations: for shapes (3,), about")


def test_native_code_has_passes_of_its_own():
    made = {"final": FINAL}
    f = jaxify([x, s], made, name="mine", backend="numba")
    traced = jaxify(
        lambda x, s: {"final": scan(lambda c, r: (pt.sin(c * r), None), s, x)[0]}, backend="numba"
    )
    for actual in (explain(f), explain(traced, np.ones(3), 1.0)):
        assert actual.stages[-1].name == "scan_to_loop"
        names = [stage.name for stage in explain([x, s], made).stages]
        assert "scan_to_loop" not in names
        assert "while" in str(actual) or "loop" in str(actual)
        assert "scan_to_loop" in actual._repr_html_()
    graph = imported([x, s], made).graph
    lower_to_loops(graph)
    assert explain(f).lowered.freeze() == graph.freeze()
    # It is pickled with what it was made from, which JAX's are not.
    assert str(explain(pickle.loads(pickle.dumps(f)))) == str(explain(f))


def test_a_graph():
    graph = FunctionGraph([x, s], [FINAL], clone=True)
    before = graph.toposort()
    assert str(explain(graph)) == str(explain([x, s], FINAL))
    assert graph.toposort() == before


def test_a_compiled_function():
    function = pytensor.function([x, s], FINAL, mode=FAST_COMPILE)
    actual = explain(function)
    assert actual.counts_lowered.loops == 1
    assert str(actual) == str(explain(jaxify(function)))


def test_a_python_function_with_arguments():
    def total(rows, *, start):
        return scan(lambda c, r: (pt.sin(c + r), None), start * pt.ones_like(rows[0]), rows)[0]

    actual = explain(total, np.ones(3), start=2.0)
    assert actual.name == "total" and actual.counts_lowered.loops == 1
    assert [v.name for v in actual.read.inputs] == ["arg0", "start"]
    jaxified = jaxify(total)
    assert str(explain(jaxified, np.ones(3), start=2.0)) == str(actual)
    # Of another rank it is another program.
    assert "float64[?,?]" in str(explain(jaxified, np.ones((3, 2)), start=2.0))


def test_shared_variables_and_updates():
    w = pytensor.shared(np.zeros(2), name="w")
    f = jaxify([s], w.sum() * s, updates={w: w + s})
    expected = explain([s], w.sum() * s, updates={w: w + s})
    assert "(s: float64[], w: float64[?])" in str(expected)
    assert str(explain(f)) == str(explain(f.stateful())) == str(expected)
    assert len(expected.lowered.outputs) == 2


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (lambda: (3,), "without outputs"),
        (lambda: ([x, s],), "without outputs"),
        (
            lambda: (jaxify([x, s], FINAL), np.ones(3)),
            r"no arguments for a JaxFunction.* explain\(f\)",
        ),
        (lambda: (FunctionGraph([s], [s + 1]), 1.0), "no arguments for a FunctionGraph"),
        (lambda: (loopax.grad(jaxify([s], s**2)),), "JAX transformation"),
    ],
)
def test_what_it_does_not_take(args, match):
    with pytest.raises(TypeError, match=match):
        explain(*args())


def test_a_function_that_was_pickled():
    f = jaxify([s], s + 0 * s)
    again = pickle.loads(pickle.dumps(f))
    assert again(2.0) == 2.0
    assert explain(f).stages and str(explain(again)) == str(explain(f))


def test_errors_of_the_front_end():
    with pytest.raises(MissingInputError, match="not among the inputs"):
        explain([x], FINAL)


def test_an_op_that_jax_does_not_have_is_explained_all_the_same():
    class Opaque(pytensor.graph.op.Op):
        __props__ = ()

        def make_node(self, v):
            return pytensor.graph.basic.Apply(self, [v], [v.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0]

    with pytest.raises(UnsupportedOpError):
        jaxify([s], Opaque()(s), on_missing="raise")
    assert "Opaque" in str(explain([s], Opaque()(s)))


# -- what it says ------------------------------------------------------------------------------------


def test_the_text():
    actual = explain([s], fori_loop(0, 3, lambda i, c: pt.sin(c) + 0 * c, s))
    parts = str(actual).split("\n\n")
    assert len(parts) == 1 + len(actual.stages)
    graphs = [actual.read, *(stage.after for stage in actual.stages)]
    for part, graph in zip(parts, graphs, strict=True):
        assert part.partition("\n")[2] == actual.text(graph)
    headers = [part.partition("\n")[0] for part in parts]
    assert headers[0].startswith("== as read: 1 loop, ") and headers[0].endswith(" 3 inside ==")
    for header, stage in zip(headers[1:], actual.stages, strict=True):
        assert header.startswith(f"== {stage.name}: 1 loop, ")
    assert any(header.endswith(" 1 (-2) inside ==") for header in headers)
    assert repr(actual) == f"<Explanation of program, changed by {names(actual)}>"


def names(actual):
    return ", ".join(stage.name for stage in actual.stages)


def test_a_program_that_no_pass_changes():
    actual = explain([s], pt.sin(s))
    assert not actual.stages and actual.lowered is actual.read
    assert actual.counts_lowered == (0, 1, 0)
    assert str(actual).endswith("\n\n== no pass changed it ==")
    assert "No pass changed it" in actual._repr_html_()
    assert repr(actual) == "<Explanation of program, changed by no pass>"


def lists():
    xs = tl.TypedListType(pt.dvector)("xs")
    doubled = scan(lambda c, r: (c + r, r * 2.0), pt.zeros(2), xs)
    return [xs], [doubled[0], tl.length(xs)]


def generators():
    rng = random_generator_type("rng")
    return [rng, s], list(
        scan(lambda g, _: (lambda new, draw: (new, draw * s))(*g.normal()), rng, length=3)
    )


def case(name):
    made = CASES[name]()
    return made.inputs, made.cost


PROGRAMS = {
    "typed lists": lists,
    "random generators": generators,
    "second derivative": twice,
    **{name: lambda name=name: case(name) for name in ["nested", "branching", "stopping"]},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_equal_programs_give_equal_text_and_pages(program):
    actual, again = explain(*program()), explain(*program())
    assert str(actual) == str(again)
    assert actual._repr_html_() == again._repr_html_()
    assert actual.counts_read.loops >= 1 and "step(i: int64[]" in str(actual)
