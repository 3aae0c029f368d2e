"""Graphs with our ops under PyTensor's own ``mode="JAX"``."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import typed_list

from loopax import DynamicShapeError, jaxify
from loopax.base.upstream.pytensor import IfElse
from loopax.ir import BodyArgs, BodyOuts, Call, Cond, Scan, ScanArgs, ScanOptions, Stack, Unstack
from loopax.jax_backend.staging.registry import find_rule, has_conversion
from tests.support.bare_loops import While
from tests.support.compare import primitives

XS = np.linspace(-1.0, 1.0, 5)
X, S, A, N = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("a"), pt.lscalar("n")


def compiled(inputs, outputs):
    return pytensor.function(inputs, outputs, mode="JAX", on_unused_input="ignore")


def agrees(inputs, outputs, *values):
    expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")(
        *values
    )
    actual = compiled(inputs, outputs)(*values)
    for f, e in zip(actual, expected, strict=True):
        f = np.asarray(f)
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        np.testing.assert_allclose(f, e, rtol=1e-12)


def loop(n_steps, sequences, stop=None, **options):
    i, x, s, c = pt.lscalar(), pt.dscalar(), pt.dscalar(), pt.dscalar()
    new = pt.tanh(c * s) + 0.1 * i + (x if sequences else 0)
    scan = Scan.from_body(
        BodyArgs(i, [x] if sequences else [], [s], [c]),
        BodyOuts([new], [new * 2], None if stop is None else new > stop),
        ScanOptions(**options),
    )
    return scan.bind(ScanArgs(n_steps, sequences, [S], [A]))


@pytest.mark.parametrize("n", [0, 5])
@pytest.mark.parametrize("options", [{}, {"reverse": True, "unroll": 2}], ids=str)
def test_a_loop_over_a_sequence(n, options):
    outs = loop(X.shape[0], [X], **options)
    agrees([X, S, A], outs, XS[:n], 0.3, 0.7)


def test_the_number_of_steps_may_be_traced_where_it_counts_rows():
    f = compiled([N, X, S, A], loop(N, [X]))
    for actual, expected in zip(
        f(5, XS, 0.3, 0.7), compiled([X, S, A], loop(X.shape[0], [X]))(XS, 0.3, 0.7), strict=True
    ):
        np.testing.assert_allclose(actual, expected)
    assert all(np.isnan(out).all() for out in f(4, XS, 0.3, 0.7))
    with pytest.raises(ValueError, match="takes 6 steps, but its sequence 0 has 5 rows"):
        compiled([X, S, A], loop(X.shape[0] + 1, [X]))(XS, 0.3, 0.7)


def test_final_states_after_a_traced_number_of_steps():
    final, trace = loop(N, [])
    for n in (0, 4):
        agrees([N, S, A], [final], n, 0.3, 0.7)
    for read in (trace, trace.sum(), trace[-1]):
        with pytest.raises(DynamicShapeError, match=r"is the trace of a loop.*loopax.jaxify\("):
            compiled([N, S, A], read)(4, 0.3, 0.7)


def test_a_loop_that_stops():
    final, trace, n_done, stopped = loop(X.shape[0], [X], stop=0.3)
    agrees([X, S, A], [final, n_done, stopped], XS, 0.3, 0.7)
    with pytest.raises(DynamicShapeError, match="can stop early.*loopax.jaxify"):
        compiled([X, S, A], [n_done, trace])(XS, 0.3, 0.7)
    final, _, n_done, _ = loop(N, [], stop=0.3)
    for n in (0, 50, np.iinfo("int64").max):
        agrees([N, S, A], [final, n_done], n, 0.3, 0.7)


def test_loops_in_loops_conds_and_calls():
    i, x, s = pt.lscalar(), pt.dscalar(), pt.dscalar()
    inner = Scan.from_body(BodyArgs(i, [x], [s], []), BodyOuts([s * 0.5 + x], []))
    cond = Cond.from_branches([x, s], [pt.exp(x) * s], [x - s])
    row, t, c = pt.dvector(), pt.dscalar(), pt.dvector()
    step = inner.bind(ScanArgs(c.shape[0], [c], [t], []))[0]
    outer = Scan.from_body(
        BodyArgs(pt.lscalar(), [row], [t], [c]),
        BodyOuts([cond.bind(step > 0, [step, row.sum()])[0]], [row * step]),
    )
    M = pt.dmatrix("m")
    outs = outer.bind(ScanArgs(M.shape[0], [M], [S], [X]))
    agrees([M, S, X], outs, np.outer([1.0, -2.0, 3.0], [1.0, 2.0]), 0.3, XS)
    from pytensor.graph.fg import FunctionGraph

    call = Call(FunctionGraph([x, s], [x * s, pt.sin(x)], clone=True).freeze())
    agrees([S, A], call(S, A), 0.3, 0.7)
    halve = While.from_body([s], [x], [s / 2], s > x)
    agrees([S, A], halve.bind(S > 0, [S], [A]), 9.0, 0.7)


@pytest.mark.parametrize("c", [-1.0, 1.0])
def test_one_branch(c):
    cond = Cond.from_branches([X], [pt.exp(X), X.sum()], [X * 2, pt.zeros(())])
    agrees([S, X], [out + 1 for out in cond.bind(S > 0, [X])], c, XS)


@pytest.mark.parametrize("a", [-1.0, 1.0])
def test_beside_an_ifelse(a):
    final, trace = loop(X.shape[0], [X])
    agrees([X, S, A], IfElse(2)(A > 0, final, trace, S, X * 2), XS, 0.3, a)


def test_typed_lists():
    M = pt.dmatrix("m")
    rows = typed_list.append(Unstack()(M), X)
    outs = [Stack()(typed_list.reverse(rows), 5), rows[0], typed_list.length(rows), rows[N]]
    agrees([M, X, N], outs, np.outer([1.0, -2.0], XS), XS, -1)
    xs = typed_list.TypedListType(pt.dvector)("xs")
    made = typed_list.make_list([X, xs[1]])
    agrees([xs, X], [made[0] * 2, made[1]], [XS, XS * 2], XS)


def test_jaxify_takes_its_own_rules():
    for cls in (Scan, Cond, Call, Stack, Unstack):
        op = cls.__new__(cls)
        assert find_rule(op) is not None and has_conversion(op)
    i, s = pt.lscalar(), pt.dscalar()
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s + 1], [s]))
    trace = scan.bind(ScanArgs(pt.minimum(X.shape[0], 10), [], [S], []))[1]
    f = jaxify([X, S], trace)  # what PyTensor's mode cannot do
    assert f(XS, 1.0).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert primitives(jax.make_jaxpr(f)(XS, 1.0))["scan"] == 1


OPTIONS = [
    {},
    {"reverse": True},
    {"checkpoint": 2},
    {"checkpoint": "sqrt"},
    {"truncate_gradient": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_by_pytensor(options):
    outs = loop(X.shape[0], [X], **options)
    gradients = pytensor.grad(outs[0] + (outs[1] ** 2).sum(), [X, S, A])
    agrees([X, S, A], [*gradients, pytensor.grad(gradients[1], A)], XS, 0.3, 0.7)


# -- what follows from shapes ------------------------------------------------------------------------


def known_lengths():
    """Slices, ranges and arrays whose lengths follow from a shape; no op of ours yet."""
    n = X.shape[0]
    k = pt.cast(pt.sqrt(n), "int64")
    later = X[k : pt.minimum(n, 4)]
    return [X[:k], later * 2, pt.arange(k) * later[0], pt.zeros((k, n - 1)), X[n - k :].sum()]


def test_what_follows_from_shapes_is_known_beside_an_op_of_ours():
    final, _ = loop(pt.minimum(X.shape[0], 3), [X[:3]])
    nothing_but_steps = loop(X.shape[0] // 2, [])[1]  # a trace, and no sequence
    agrees([X, S, A], [*known_lengths(), final, nothing_but_steps], XS, 0.3, 0.7)
    # One length follows from an array that another one made.
    part = X[: X.shape[0] // 2 + 1]
    rest = part[part.shape[0] // 2 :]
    agrees(
        [X, S, A], [rest, loop(rest.shape[0], [rest])[0], pt.zeros(rest.shape[0] * 2)], XS, 0.3, 0.7
    )


def test_without_an_op_of_ours_the_mode_is_what_it_was():
    half = X[: X.shape[0] // 2]

    def calls(outputs, mode):
        f = pytensor.function([X, S, A], outputs, mode=mode, on_unused_input="ignore")
        return sum(isinstance(node.op, Call) for node in f.maker.fgraph.toposort())

    beside = [half, loop(X.shape[0], [X])[0]]
    assert calls([half], "JAX") == 0 and calls(beside, "JAX") == 1
    assert calls(beside, "FAST_COMPILE") == calls(beside, "CVM") == 0
