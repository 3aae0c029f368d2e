"""Loops and branches in PyTensor's own modes: compiled, rewritten, printed, pickled, copied, merged."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, predefined_linkers
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.vm import VMLinker
from pytensor.printing import debugprint
from pytensor.tensor.random.type import random_generator_type
from pytensor.typed_list import make_list

from loopax import cond, scan, while_loop
from loopax.ir import Cond, FitRows, KeepRows, Scan, Stack, Unstack, evaluate
from loopax.ir.evaluation.inner import compiled as compiled_body
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from tests.support.assorted_loops import CASES, PLAIN, X, a, s, x
from tests.support.bare_loops import While
from tests.support.compare import FAST_COMPILE, FAST_RUN, assert_trees_close, loops

VM = Mode("vm", "fast_run").excluding("local_add_of_sparse_write")
MODES = {"FAST_COMPILE": FAST_COMPILE, "CVM": FAST_RUN, "VM": VM}
AT = [X, np.asarray(0.6), np.asarray(0.7)]


def ops(graph):
    """Every op of a graph and of the bodies in it."""
    actual = []
    for node in graph.toposort():
        actual.append(node.op)
        if isinstance(node.op, InnerGraphOp):
            actual += ops(node.op.fgraph)
    return actual


def until(n):
    """A bare loop, of a vector and a scalar."""
    c, y, k = pt.dscalar(), pt.dvector(), pt.dscalar()
    op = While.from_body([c, y], [k], [c + k, pt.sin(y) * c], c < n)
    return op.bind(s < n, [s, x], [a])


def rows_and_lists():
    rows = make_list([x, x * a])
    return [
        Stack()(rows, x.shape[0]),
        Stack()(Unstack()(pt.outer(x, x)), x.shape[0]),
        FitRows()(x, 3),
        FitRows()(x, 6),
        KeepRows()(x, 2, 3),
        KeepRows(last=True)(x, 2, 6),
    ]


def everything():
    """A program with all the ops, and its gradient."""
    final, ys = scan(lambda c, r: (pt.sin(c * r) + a, c * r), s, x)
    stopped, zs, flag = scan(lambda c, r: (c + r**2, (c, r), c > 1), final, ys)
    limit = while_loop(lambda c: c < 9, lambda c: c * (2 + a), s, max_steps=9)
    chosen, total = cond(limit > 9, lambda: (ys * 2, limit), lambda: (zs[0], final))
    outs = [final, ys, stopped, *zs, flag, limit, chosen, total]
    cost = total**2 + chosen.sum() + stopped * zs[1].sum()
    return [*outs, *pytensor.grad(cost, [x, s, a]), *until(3.0), *rows_and_lists()]


@pytest.fixture(scope="module")
def compiled():
    outs = everything()
    return {name: pytensor.function([x, s, a], outs, mode=mode) for name, mode in MODES.items()}


def test_all_modes_agree(compiled):
    expected = evaluate(FunctionGraph([x, s, a], everything(), clone=True), *AT)
    for f in compiled.values():
        assert_trees_close(f(*AT), expected, rtol=1e-11, atol=1e-13)


def test_the_fastest_compilation_leaves_bodies_in_python(monkeypatch):
    monkeypatch.setitem(predefined_linkers, "vm", VMLinker(use_cloop=False, c_thunks=True))
    body = FunctionGraph([s], [pt.sin(s) + 1], clone=True)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert not compiled_body(body).maker.linker.c_thunks


def test_the_ops_are_still_there(compiled):
    wanted = {Scan, Cond, Stack, KeepRows, FitRows, Unstack}
    for f in compiled.values():
        assert wanted <= {type(op) for op in ops(f.maker.fgraph)}


def test_no_body_works_in_place(compiled):
    for f in compiled.values():
        for op in ops(f.maker.fgraph):
            if isinstance(op, InnerGraphOp):
                assert not any(inner.destroy_map for inner in ops(op.fgraph))


def test_inputs_are_left_as_they_are(compiled):
    for f in compiled.values():
        given = [np.array(v) for v in AT]
        f(*given)
        for before, after in zip(AT, given, strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_a_compiled_function_pickles_and_copies(compiled):
    expected = compiled["CVM"](*AT)
    again = pickle.loads(pickle.dumps(compiled["CVM"]))
    for f in (again, compiled["CVM"].copy(), pickle.loads(pickle.dumps(compiled["FAST_COMPILE"]))):
        for actual, e in zip(f(*AT), expected, strict=True):
            np.testing.assert_allclose(actual, e, rtol=1e-11, atol=1e-13)


def test_variables_pickle():
    outs = everything()
    again = pickle.loads(pickle.dumps([x, s, a, *outs]))
    f = pytensor.function(again[:3], again[3:], mode=PLAIN)
    for actual, e in zip(f(*AT), evaluate(FunctionGraph([x, s, a], outs), *AT), strict=True):
        np.testing.assert_allclose(actual, e, rtol=1e-12, atol=1e-14)


def test_clone_replace():
    outs = everything()
    t = pt.dvector("t")
    new = clone_replace(outs, {x: t * 2, a: pt.constant(0.7)})
    assert x not in set(ancestors(new)) and a not in set(ancestors(new))
    f = pytensor.function([t, s], new, mode=PLAIN)
    expected = evaluate(FunctionGraph([x, s, a], outs), *AT)
    for actual, e in zip(f(X / 2, 0.6), expected, strict=True):
        np.testing.assert_allclose(actual, e, rtol=1e-12, atol=1e-14)


# -- rewriting ---------------------------------------------------------------------------------------


def unstable(r):
    return pt.log(1 - pt.sigmoid(r))


@pytest.mark.parametrize(
    "build",
    [
        lambda: scan(lambda c, r: (c, unstable(r)), s, x)[1].sum(),
        lambda: scan(lambda c, r: (unstable(r), None), s, x)[0],
        lambda: scan(lambda c, r: (scan(lambda d, q: (unstable(q), None), s, x)[0], c), s, x)[0],
        lambda: cond(s > 0, lambda: unstable(x[-1]), lambda: s),
        lambda: while_loop(lambda c: c > 0, lambda c: unstable(x[-1] + 0 * c), s),
    ],
    ids=["scan", "state", "nested", "cond", "while"],
)
def test_bodies_are_rewritten(build):
    out = build()
    for mode in (FAST_RUN, VM):
        f = pytensor.function([x, s], out, mode=mode)
        np.testing.assert_allclose(f([800.0], 0.6), -800.0)
    with np.errstate(all="ignore"):
        plain = pytensor.function([x, s], out, mode=FAST_COMPILE)([800.0], 0.6)
    assert plain == -np.inf
    left_out = FAST_RUN.excluding("loopax")
    with np.errstate(all="ignore"):
        assert pytensor.function([x, s], out, mode=left_out)([800.0], 0.6) == -np.inf


def test_gradients_of_what_is_rewritten():
    """Each rewrite of a body comes after the gradient was taken: that of the unstable form."""
    final, _ = scan(lambda c, r: (c + pt.log(pt.exp(r) + 1), None), s, x)
    f = pytensor.function([x, s], pytensor.grad(final, x), mode=FAST_RUN, on_unused_input="ignore")
    np.testing.assert_allclose(f([30.0, -800.0], 0.0), [1.0, 0.0], atol=1e-12)


def test_equal_loops_are_merged():
    outs = [scan(lambda c, r: (pt.sin(c * r) + a, c * r), s, x)[1] for _ in range(2)]
    for mode in MODES.values():
        f = pytensor.function([x, s, a], outs, mode=mode)
        assert len(loops(f.maker.fgraph)) == 1


def test_twins_are_merged_and_what_nobody_reads_goes():
    (p, q), ys = scan(lambda c, r: ((c[0] * r, c[1] + a), c[0]), (s, s), x)
    _, zs = scan(lambda c, r: ((c[0] * r, c[1] + a), c[1] * 2), (s, s), x)
    f = pytensor.function([x, s, a], [p, ys, zs], mode=FAST_RUN)
    (node,) = loops(f.maker.fgraph)
    assert (node.op.n_states, node.op.n_ys) == (2, 2)
    f = pytensor.function([x, s, a], p, mode=FAST_RUN, on_unused_input="ignore")
    (node,) = loops(f.maker.fgraph)
    assert (node.op.n_states, node.op.n_ys, node.op.n_consts) == (1, 0, 0)


def test_shapes_do_not_need_the_loop():
    final, ys = scan(lambda c, r: (c * r, pt.outer(c, c)), x, x)
    f = pytensor.function([x], [*final.shape, *ys.shape], mode=FAST_RUN)
    assert not loops(f.maker.fgraph)
    assert [int(n) for n in f(X)] == [4, 4, 4, 4]


def test_constants_are_not_computed_at_each_call():
    """A loop of constants alone is folded as any other op of constants."""
    final, _ = scan(lambda c, r: (c * r, None), 1.0, np.arange(1.0, 5.0))
    f = pytensor.function([s], s + final, mode=FAST_RUN)
    assert not loops(f.maker.fgraph)
    assert f(1.0) == 25.0


# -- printing ----------------------------------------------------------------------------------------


def test_dprint_shows_what_is_inside():
    final, _ = scan(lambda c, r: (pt.sinh(c) + r, None), s, x, name="recurrence")
    chosen = cond(final > 0, lambda: pt.cosh(final), lambda: s, name="choice")
    text = debugprint(chosen, file="str")
    outer, inner = text.split("Inner graphs:")
    assert "Scan{recurrence}" in outer and "Cond{choice}" in outer
    assert "Sinh" in inner and "Cosh" in inner and "Sinh" not in outer
    assert "Loop{loop, stops}" in debugprint(until(3.0), file="str")
    f = pytensor.function([x, s], chosen, mode=FAST_RUN)
    assert "Sinh" in debugprint(f, file="str")


# -- around the loops --------------------------------------------------------------------------------


def test_updates_and_shared_variables():
    weights = pytensor.shared(X * 0.1, name="weights")
    rng = pytensor.shared(np.random.default_rng(2), name="rng")

    def step(c, w):
        state, z = c
        state, noise = pt.random.normal(rng=state, return_next_rng=True)
        return (state, z + w * noise), z

    (following, final), _ = scan(step, (rng, s), weights)
    slope = pytensor.grad(final, weights)
    f = pytensor.function(
        [s], final, updates={weights: weights - 0.5 * slope, rng: following}, mode=FAST_RUN
    )
    noise = np.random.default_rng(2).normal(size=(2, 4))
    np.testing.assert_allclose(f(1.0), 1 + (X * 0.1 * noise[0]).sum())
    moved = X * 0.1 - 0.5 * noise[0]
    np.testing.assert_allclose(weights.get_value(), moved)
    np.testing.assert_allclose(f(1.0), 1 + (moved * noise[1]).sum())


def test_a_generator_that_is_an_input_is_left_as_it_is():
    rng = random_generator_type("rng")

    def step(state, _):
        following, z = pt.random.normal(rng=state, return_next_rng=True)
        return following, z

    _, draws = scan(step, rng, length=3)
    for mode in MODES.values():
        f = pytensor.function([rng], draws, mode=mode)
        generator = np.random.default_rng(5)
        first, second = f(generator), f(generator)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, np.random.default_rng(5).normal(size=3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrence", "branching", "stopping"])
def test_debug_mode(name):
    """It runs each op again, and looks for inputs that changed and for outputs that are inputs."""
    case = CASES[name]()
    outs = [*case.outs, *pytensor.grad(case.cost, case.inputs)]
    checked = pytensor.function(case.inputs, outs, mode="DebugMode")
    expected = pytensor.function(case.inputs, outs, mode=PLAIN)(*case.values)
    for actual, e in zip(checked(*case.values), expected, strict=True):
        np.testing.assert_allclose(actual, e, rtol=1e-11, atol=1e-13)


# -- the modes of other backends ---------------------------------------------------------------------


def smoke():
    final, ys = scan(lambda c, r: (pt.sin(c * r) + a, c * r), s, x)
    limit = while_loop(lambda c: c < 9, lambda c: c * (2 + a), s, max_steps=9)
    chosen = cond(limit > 9, lambda: ys * 2, lambda: ys)
    return [final, chosen, limit, *pytensor.grad(final**2 + (chosen**2).sum() + limit, [x, s, a])]


@pytest.mark.parametrize("mode", ["JAX", pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_other_backends(mode):
    outs = smoke()
    expected = pytensor.function([x, s, a], outs, mode=PLAIN)(*AT)
    f = pytensor.function([x, s, a], outs, mode=mode)
    for actual, e in zip(f(X, 0.6, 0.7), expected, strict=True):
        assert np.asarray(actual).shape == e.shape
        np.testing.assert_allclose(actual, e, rtol=1e-10, atol=1e-12)
