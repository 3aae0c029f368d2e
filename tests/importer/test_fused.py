"""Elementwise ops that PyTensor has fused: the same programs as before, with derivatives, in every form."""

import jax
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Composite
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import CAReduce, Elemwise

import loopax
from loopax import jaxify
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE, FAST_RUN, imported

RNG = np.random.default_rng(3)
X, Y, M = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")
AT, ROWS = RNG.uniform(0.2, 2.0, (2, 4)), RNG.uniform(0.2, 2.0, (3, 4))


def in_a_loop():
    return pytensor.scan(
        lambda row, s: pt.tanh(s * pt.exp(row) - row) + s**2 * 0.1,
        sequences=[X],
        outputs_info=[pt.constant(0.3)],
        return_updates=False,
    )[-1]


PROGRAMS = {
    "several ops": lambda: (pt.exp(X) * Y + pt.tanh(X)).sum(),
    "two outputs": lambda: (pt.exp(X) * Y + pt.tanh(X)).sum() * (pt.exp(X) + Y**2).prod(),
    "logaddexp": lambda: pt.logaddexp(X, Y).sum(),
    "xlogy": lambda: pt.special.xlogy(X, Y).sum(),
    "rows and columns": lambda: (
        (pt.exp(-((M - X) ** 2)) + pt.log1p(M)).sum(axis=1).prod() * Y.sum()
    ),
    "integers": lambda: (pt.switch(pt.gt(X, 1), X**2, 3) / 2 + Y * pt.arange(4)).sum(),
    "a reduction": lambda: pt.prod(pt.sin(X)) * pt.exp(Y).sum(),
    "a loop": lambda: in_a_loop() * Y.sum(),
}
INPUTS = [X, Y, M]
VALUES = [*AT, ROWS]


@pytest.mark.sampled(1)
@pytest.mark.both_stacks
@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_a_compiled_function(name):
    out = PROGRAMS[name]()
    compiled = pytensor.function(INPUTS, out, mode=FAST_RUN, on_unused_input="ignore")
    plain = pytensor.function(
        INPUTS,
        [out, *pytensor.grad(out, INPUTS, disconnected_inputs="ignore")],
        mode=FAST_COMPILE,
        on_unused_input="ignore",
    )
    value, *slopes = plain(*VALUES)
    every = (0, 1, 2)
    forms = {
        "native": loopax.value_and_grad(jaxify(compiled, backend=NATIVE), every),
        "native in JAX": jax.value_and_grad(jaxify(compiled, loops="native"), every),
        "XLA": jax.value_and_grad(jaxify(compiled, loops="xla"), every),
    }
    for form, f in forms.items():
        actual, pulled = f(*VALUES)
        np.testing.assert_allclose(actual, value, rtol=1e-10, err_msg=form)
        for g, slope in zip(pulled, slopes, strict=True):
            np.testing.assert_allclose(g, slope, rtol=1e-9, atol=1e-12, err_msg=form)


def test_native_code_that_is_compiled(as_users_have_it):
    compiled = pytensor.function([X, Y], PROGRAMS["two outputs"]())
    f = loopax.grad(jaxify(compiled, backend="numba"))
    expected = jax.grad(jaxify([X, Y], PROGRAMS["two outputs"](), loops="xla"))
    np.testing.assert_allclose(f(*AT), expected(*AT))


def fused_ops(graph):
    nodes = [v.owner for v in ancestors(graph.outputs) if v.owner is not None]
    bodies = [node.op.fgraph for node in nodes if isinstance(node.op, InnerGraphOp)]
    own = [n for n in nodes if isinstance(getattr(n.op, "scalar_op", None), Composite)]
    return own + sum(map(fused_ops, bodies), [])


def test_none_is_left_in_the_step_of_a_loop():
    x, s = ps.float64("x"), ps.float64("s")
    fused = Elemwise(Composite([x, s], [ps.exp(x) * s + x]))
    out = loopax.scan(lambda c, row: (fused(row, c), None), pt.constant(0.5, dtype="float64"), X)[0]
    graph = imported([X], [out]).graph
    assert fused_ops(imported([X], [fused(X, X)]).graph) == []
    assert fused_ops(graph) == []
    expected = jax.grad(jaxify([X], loopax.scan(lambda c, r: (pt.exp(r) * c + r, None), 0.5, X)[0]))
    for actual in (
        jax.grad(jaxify([X], out, loops="native")),
        jax.grad(jaxify([X], out, loops="xla")),
        loopax.grad(jaxify([X], out, backend=NATIVE)),
    ):
        np.testing.assert_allclose(actual(AT[0]), expected(AT[0]))


def test_fused_in_fused():
    x, y = ps.float64("x"), ps.float64("y")
    inner = Composite([x, y], [ps.exp(x) * y, x - y])
    one, two = inner(x, y)
    out = Elemwise(Composite([x, y], [one + two * 3.0]))(X, Y)
    assert fused_ops(imported([X, Y], [out]).graph) == []
    f = loopax.grad(jaxify([X, Y], out.sum(), backend=NATIVE), (0, 1))
    a, b = AT
    for actual, slope in zip(f(a, b), [np.exp(a) * b + 3, np.exp(a) - 3], strict=True):
        np.testing.assert_allclose(actual, slope)


def test_a_loop_of_scalars_stays():
    x = ps.float64("x")
    loop = ScalarLoop([x], [x / 2.0])
    n = ps.int64("n")
    out = Elemwise(Composite([n, x], [ps.exp(loop(n, x))]))(np.int64(3), X)
    graph = imported([X], [out]).graph
    elementwise = [node.op.scalar_op for node in graph.toposort() if isinstance(node.op, Elemwise)]
    assert list(map(type, elementwise)) == [ScalarLoop, ps.Exp]
    np.testing.assert_allclose(jaxify([X], out, backend=NATIVE)(AT[0]), np.exp(AT[0] / 8))


def test_an_output_has_the_shape_of_inputs_that_it_does_not_read():
    x, y = ps.float64("x"), ps.float32("y")
    outs = Elemwise(Composite([x, y], [ps.exp(x), x * y, y + y]))(X, pt.fmatrix("y"))
    f = jaxify([X, outs[1].owner.inputs[1]], outs, backend=NATIVE)
    a, _, c = f(AT[0], ROWS.astype("float32"))
    np.testing.assert_allclose(a, np.broadcast_to(np.exp(AT[0]), (3, 4)), strict=True)
    np.testing.assert_allclose(c, 2 * ROWS.astype("float32"), strict=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
@pytest.mark.parametrize("axis", [None, (0,), (1,)])
def test_a_fused_reduction(dtype, axis):
    """As `local_careduce_fusion` writes it, in the accumulator that the sum declares."""
    out = pt.sum(pt.sqr(pt.matrix("a", dtype=dtype)), axis=axis)
    total, x = ps.get_scalar_type(out.owner.op.acc_dtype)(), ps.get_scalar_type(dtype)()
    graph = ps.add(total, ps.sqr(x))
    graph = graph if graph.type.dtype == total.type.dtype else ps.cast(graph, total.type.dtype)
    scalar_op = Composite([total, x], [graph])
    scalar_op.identity, scalar_op.nin, scalar_op.nout = 0, 2, 1
    fused = CAReduce(scalar_op, axis, out.type.dtype, total.type.dtype, upcast_discrete_output=True)
    a = pt.matrix("a", dtype=dtype)
    values = np.array([[100, -3, 7], [2, 90, 11]], dtype)
    expected = jaxify([a], pt.sum(pt.sqr(a), axis=axis), backend=NATIVE)(values)
    for options in {"loops": "native"}, {"loops": "xla"}, {"backend": NATIVE}:
        actual = jaxify([a], fused(a), **options)(values)
        np.testing.assert_allclose(np.asarray(actual), expected, strict=True)


def test_native_code_computes_as_little_as_without_fusion():
    """The program that PyTensor fused, and the one that it did not, are one native loop."""

    def lines(mode):
        compiled = pytensor.function([X, Y], (pt.exp(-((X - Y) ** 2)) * 2 + X).sum(), mode=mode)
        return jaxify(compiled, backend="numba").source.splitlines()

    assert len(lines(FAST_RUN)) == len(lines(FAST_RUN.excluding("fusion")))
