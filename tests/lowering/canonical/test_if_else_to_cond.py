"""A branch's own nodes move into the branch; whatever else is read stays outside; one branch runs."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import Assert

from loopax import DynamicShapeError, jaxify
from loopax.base.upstream.pytensor import IfElse
from loopax.frontend.programs.read import read_function
from loopax.importer.import_graph import import_graph
from loopax.ir import Call, Cond, check, evaluate, pformat
from loopax.lowering import lower
from loopax.lowering.canonical.if_else_to_cond import if_else_to_cond
from tests.support.compare import FAST_RUN, assert_agrees, imported, primitives

C, X, Y = pt.dscalar("c"), pt.dvector("x"), pt.dvector("y")
AT = np.linspace(0.5, 2.0, 4)


def if_else(condition, then, otherwise):
    then, otherwise = [b if isinstance(b, list) else [b] for b in (then, otherwise)]
    outs = IfElse(len(then))(condition, *then, *otherwise, return_list=True)
    return outs if len(outs) > 1 else outs[0]


def passed(inputs, outputs):
    """The graph after the pass, checked."""
    graph = imported(inputs, outputs).graph
    if_else_to_cond(graph)
    check(graph)
    assert not any(isinstance(node.op, IfElse) for node in nodes(graph))
    return graph


def nodes(graph):
    for node in graph.toposort():
        yield node
        if hasattr(node.op, "fgraph"):
            yield from nodes(node.op.fgraph)


def inside(graph):
    """The ops in each branch of the graph's only Cond, by name, and those beside it."""
    [cond] = [node for node in graph.toposort() if isinstance(node.op, Cond)]
    branches = [names(b) for b in cond.op.branches]
    return *branches, names(graph)


def names(graph):
    return sorted(str(getattr(n.op, "scalar_op", n.op)) for n in graph.toposort())


def test_what_only_a_branch_needs_moves_into_it():
    graph = passed([C, X], if_else(C > 0, pt.exp(pt.sin(X)).sum(), pt.log(X)[0]))
    then, otherwise, beside = inside(graph)
    assert "exp" in then and "sin" in then and "log" in otherwise
    assert "exp" not in otherwise and "log" not in then
    assert len(beside) == 2  # the comparison and the Cond


def test_what_is_read_elsewhere_stays():
    shared, mine = pt.exp(X), pt.sin(X)
    by_output = passed([C, X], [if_else(C > 0, mine * shared, X), shared])
    assert inside(by_output)[0].count("exp") == 0 and "exp" in inside(by_output)[2]
    by_both = passed([C, X], if_else(C > 0, mine * shared, shared))
    assert "sin" in inside(by_both)[0] and "exp" in inside(by_both)[2]
    by_condition = passed([X], if_else(shared.sum() > 1, shared, X))
    assert "exp" in inside(by_condition)[2]
    by_another = passed([C, X], [if_else(C > 0, mine * shared, X), pt.cos(shared)])
    assert "exp" in inside(by_another)[2]
    itself = passed([C, X, Y], if_else(C > 0, X, Y))
    assert inside(itself)[:2] == ([], [])


def test_chains_move_as_a_whole():
    a = pt.exp(X)
    b, c = a + 1, a * 2  # both of one branch: so is what they share
    assert inside(passed([C, X], if_else(C > 0, b * c, X)))[2].count("exp") == 0
    d = if_else(C > 0, b * c, X)
    assert "exp" in inside(passed([C, X], [d, c]))[2]


def test_those_of_one_condition_share_a_branch():
    c, shared = C > 0, pt.exp(X)
    graph = passed([C, X], [if_else(c, shared * 2, X), if_else(c, shared.sum(), X[0]) + 1])
    then, otherwise, beside = inside(graph)  # of the only one
    assert "exp" in then and "exp" not in [*otherwise, *beside]
    # One that needs the result of the other stays apart, directly and around another condition.
    first = if_else(c, shared, X)
    second = if_else(C > 1, first.sum(), C)
    for third in (if_else(c, first * 2, X), if_else(c, second * X, X)):
        graph = passed([C, X], [first, third])
        assert sum(isinstance(n.op, Cond) for n in nodes(graph)) >= 2
        assert_agrees([C, X], [first, third], [0.7, AT], direct=False)


def test_a_merger_never_makes_a_circle():
    # a1 -> b1 and b2 -> a2: either pair may become one, not both.
    ca, cb = C > 0, C > 1
    a1, b2 = if_else(ca, X, X * 2), if_else(cb, pt.exp(X), X)
    b1, a2 = if_else(cb, a1 + 1, X), if_else(ca, b2 * 3, X)
    graph = passed([C, X], [b1, a2])
    assert sum(isinstance(n.op, Cond) for n in nodes(graph)) == 3
    assert_agrees([C, X], [b1, a2], [0.7, AT], direct=False)


def test_random_draws_stay():
    rng = pytensor.shared(np.random.default_rng(0))
    next_rng, draw = pt.random.normal(rng=rng, return_next_rng=True)
    graph = FunctionGraph([C, rng], [if_else(C > 0, draw * C, C), next_rng], clone=True)
    if_else_to_cond(graph)
    check(graph)
    assert any("normal" in name for name in inside(graph)[2])


SEVERAL = {
    "one": lambda: if_else(C > 0, pt.exp(X), X**2),
    "an integer condition": lambda: if_else(pt.cast(C * 2, "int64"), pt.exp(X), X**2),
    "a condition that is a float": lambda: if_else(C, pt.exp(X), X**2),
    "several": lambda: [v * 2 for v in if_else(C > 0, [pt.exp(X), X.sum()], [X**2, X.prod()])],
    "crossed": lambda: if_else(C > 0, [pt.exp(X), X], [X, pt.exp(X)]),
    "constants": lambda: if_else(C > 0, [pt.zeros(()), X[0]], [X[1], pt.ones(())]),
    "only constants": lambda: if_else(C > 0, pt.constant(np.ones(2)), pt.constant(np.zeros(2))),
    "nested": lambda: if_else(
        C > 0, if_else(C > 1, pt.exp(X), pt.sin(X)), if_else(C > -1, pt.cos(X), X.sum() * X)
    ),
    "nested in the condition": lambda: if_else(if_else(C > 0, X.sum(), X[0]) > 1, pt.exp(X), X),
    "one inside the other and outside": lambda: [
        (inner := if_else(C > 1, pt.exp(X), X)),
        if_else(C > 0, inner * 2, X),
    ],
    "one after the other": lambda: if_else(C > 1, if_else(C > 0, X, pt.exp(X)) * 2, X) + 1,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SEVERAL)
def test_values_and_laziness(name):
    outputs = SEVERAL[name]()
    graph = passed([C, X], outputs)
    for c in (-2.0, -0.5, 0.0, 0.7, 3.0):
        for a, b in zip(
            evaluate(graph, np.asarray(c), AT),
            evaluate(imported([C, X], outputs).graph, np.asarray(c), AT),
            strict=True,
        ):
            np.testing.assert_allclose(a, b)
            assert a.dtype == b.dtype
    assert_agrees([C, X], outputs, [0.7, AT], vmap=[0, 1], direct=False)
    jaxpr = jax.make_jaxpr(jaxify([C, X], outputs))(0.7, AT)
    count = sum(isinstance(n.op, Cond) for n in nodes(graph))
    assert primitives(jaxpr)["cond"] == count > 0


def top_level(jaxpr):
    return {e.primitive.name for e in jaxpr.jaxpr.eqns}


def test_the_dear_op_is_inside_the_cond():
    m = pt.dmatrix("m")
    f = jaxify([C, m], if_else(C > 0, pt.linalg.cholesky(m), m))
    jaxpr = jax.make_jaxpr(jax.jit(f, inline=True))(1.0, np.eye(4))
    assert "cholesky" in primitives(jaxpr) and "cholesky" not in top_level(jaxpr)
    slope = jax.grad(lambda c, m: f(c, m).sum(), argnums=1)
    g = jax.make_jaxpr(jax.jit(slope, inline=True))(1.0, np.eye(4))
    assert "cholesky" not in top_level(g)


def test_a_branch_that_raises_only_does_where_it_is_chosen():
    outputs = if_else(C > 0, Assert("must be positive")(X, X.sum() > 0), X * 2)
    graph = passed([C, X], outputs)
    np.testing.assert_allclose(evaluate(graph, np.asarray(-1.0), -AT)[0], -2 * AT)
    with pytest.raises(AssertionError, match="must be positive"):
        evaluate(graph, np.asarray(1.0), -AT)


def test_in_the_body_of_a_loop_and_of_a_call():
    out = pytensor.scan(
        lambda x, s: if_else(x > 1, s * pt.exp(x), s + pt.log(x)),
        sequences=X,
        outputs_info=pt.ones(()),
        return_updates=False,
    )
    graph = passed([X], out)
    [scan] = [node for node in graph.toposort() if hasattr(node.op, "args")]
    assert "exp" not in names(scan.op.fgraph) and "exp" in inside(scan.op.fgraph)[0]
    assert_agrees([X], out, [AT], grad_wrt=[X])
    jaxpr = primitives(jax.make_jaxpr(jaxify([X], out))(AT))
    assert (jaxpr["scan"], jaxpr["cond"]) == (1, 1)
    # A loop inside a branch moves with it.
    total = pytensor.scan(
        lambda x, s: s * 0.5 + x, sequences=X, outputs_info=pt.zeros(()), return_updates=False
    )[-1]
    moved = inside(passed([C, X], if_else(C > 0, total, X[0])))
    assert any("Scan" in name for name in moved[0]) and not any("Scan" in name for name in moved[2])


def test_ops_that_a_compiled_function_made_work_in_place():
    written = pt.set_subtensor((X * 2)[1], 5.0)
    y = if_else(C > 0, pt.exp(X) * 2 + pt.set_subtensor(X[0], 3.0), written)
    f = pytensor.function([C, X], y, mode=FAST_RUN)
    graph = read_function(f).graph
    import_graph(graph)
    if_else_to_cond(graph)
    assert any(n.op.destroy_map for n in nodes(graph))
    for c in (1.0, -1.0):
        values = np.asarray(c), AT.copy()
        np.testing.assert_allclose(evaluate(graph, *values)[0], f(*values))
        np.testing.assert_allclose(jaxify(f)(*values), f(*values))
        np.testing.assert_array_equal(values[1], AT)


def test_in_a_call_and_its_pullback():
    def twice(inputs, outputs, cotangents):
        return [if_else(inputs[0].sum() > 1, cotangents[0] * 2, cotangents[0])]

    x = pt.dvector("x")
    op = OpFromGraph([x], [if_else(x.sum() > 1, pt.exp(x), x)], pullback=twice)
    graph = passed([X], op(X))
    [call] = [node.op for node in graph.toposort()]
    assert isinstance(call, Call) and "exp" in inside(call.fgraph)[0]
    slope = jax.grad(lambda x: jaxify([X], op(X), loops="xla")(x).sum())
    np.testing.assert_allclose(slope(AT), 2 * np.ones(4))
    assert primitives(jax.make_jaxpr(slope)(AT))["cond"] == 2  # of the value, and of the cotangent


def test_branches_of_unequal_shape_need_a_known_condition():
    n = pt.lscalar("n")
    y = if_else(n > 2, X[:2], X * 3)
    f = jaxify([n, X], y)
    assert f(3, AT).shape == (2,) and f(1, AT).shape == (4,)
    np.testing.assert_allclose(jax.jit(f, static_argnums=0)(3, AT), AT[:2])
    with pytest.raises(DynamicShapeError, match="Cond.* needs the value of .*'n'"):
        jax.jit(jaxify([n, X], y))(3, AT)
    graph = passed([n, X], y)
    assert [evaluate(graph, np.asarray(k), AT)[0].shape for k in (3, 1)] == [(2,), (4,)]


def test_a_second_run_changes_nothing():
    graph = passed([C, X], SEVERAL["nested"]())
    once = pformat(graph)
    if_else_to_cond(graph)
    assert pformat(graph) == once
    lower(graph)
    check(graph)
    np.testing.assert_allclose(evaluate(graph, np.asarray(3.0), AT)[0], np.exp(AT))
