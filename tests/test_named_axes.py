"""Tensors with named axes go in and out, are carried, and are rows, in both backends."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.xtensor as px
import pytest
from pytensor.compile.ops import deep_copy_op, view_op
from pytensor.gradient import disconnected_grad
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.printing import Print
from pytensor.xtensor.type import xtensor_shared

import loopax
from loopax import LoopTypeError, jaxify
from tests.support.both_backends import NATIVE
from tests.support.ops import SameType

X = px.xtensor("x", dims=("time", "city"))
Y = px.xtensor("y", dims=("city",))
AT = [np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])]
BOTH = pytest.mark.parametrize(
    "options", [{"loops": "xla"}, {"backend": NATIVE}], ids=["jax", "numba"]
)


def decayed(c, row):
    assert c.dims == row.dims == ("city",)
    return 0.5 * c + row * c.sum("city"), c


FINAL, TRACE = loopax.scan(decayed, Y, X)


def by_numpy(x, y):
    c, rows = y, []
    for row in x:
        rows.append(c)
        c = 0.5 * c + row * c.sum()
    return c, np.stack(rows)


@BOTH
def test_inputs_and_outputs(options):
    f = jaxify(
        [X, Y], {"over time": (X * Y).sum("time"), "turned": X.transpose("city", "time")}, **options
    )
    actual = f(*AT)
    np.testing.assert_allclose(actual["over time"], (AT[0] * AT[1]).sum(0))
    np.testing.assert_allclose(actual["turned"], AT[0].T)
    with pytest.raises(LoopTypeError, match="It lacks 1 of its axes"):
        f(AT[1], AT[1])


@BOTH
def test_shared_variables_and_updates(options):
    total = xtensor_shared(AT[1], dims=("city",), name="total")
    f = jaxify([X], (X + total).sum("city"), **options)
    np.testing.assert_allclose(f(AT[0]), (AT[0] + AT[1]).sum(1))
    total.set_value(2 * AT[1])
    np.testing.assert_allclose(f(AT[0]), (AT[0] + 2 * AT[1]).sum(1))
    adds = jaxify([Y], total.sum(), updates={total: total + Y}, **options).stateful()
    np.testing.assert_allclose([adds(AT[1]), adds(AT[1])], [12.0, 18.0])


@BOTH
@pytest.mark.parametrize("identity", [view_op, deep_copy_op, disconnected_grad, Print("sum")])
@pytest.mark.filterwarnings("ignore:Print.* runs on the host")
def test_identities(options, identity):
    """A deterministic of PyMC is a view, and may be an output beside what is made of it."""
    seen = identity((X * Y).sum("time"))
    actual = jaxify([X, Y], [seen, identity(seen + 1.0)], **options)(*AT)
    expected = (AT[0] * AT[1]).sum(0)
    np.testing.assert_allclose(actual[0], expected)
    np.testing.assert_allclose(actual[1], expected + 1)


@BOTH
def test_carries_rows_and_traces(options):
    assert FINAL.dims == ("city",) and TRACE.dims == ("time", "city")
    program = [X, Y], [FINAL, TRACE, TRACE.mean("time").sum()]
    final, trace, mean = jaxify(*program, **options)(*AT)
    expected = by_numpy(*AT)
    np.testing.assert_allclose(final, expected[0])
    np.testing.assert_allclose(trace, expected[1])
    np.testing.assert_allclose(mean, expected[1].mean(0).sum())


@BOTH
def test_loops_with_fewer_words(options):
    scale = X.sum()  # captured
    doubled = loopax.fori_loop(0, 3, lambda i, c: c * 2.0, Y)
    below = loopax.while_loop(lambda c: c.sum().values < 100, lambda c: c * 2.0, Y)
    sums = loopax.map(lambda row: row.sum("city") * scale, X)
    chosen = loopax.cond(Y.sum().values > 0, lambda v: v * scale, lambda v: v - 1.0, Y)
    counted = loopax.scan(lambda c, _: (c + 1.0, c), Y, length=2)[1]
    assert sums.dims == ("time",) and counted.dims == ("step", "city") and chosen.dims == ("city",)
    actual = jaxify([X, Y], [doubled, below, sums, chosen, counted], **options)(*AT)
    expected = [8 * AT[1], 32 * AT[1], AT[0].sum(1) * 15, 15 * AT[1], [AT[1], AT[1] + 1]]
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b)


def test_names_are_checked():
    with pytest.raises(LoopTypeError, match="carry"):
        loopax.scan(lambda c, row: (c.rename(city="town"), None), Y, X)


def test_derivatives_and_batches():
    cost = (FINAL**2).sum()
    f, native = jaxify([X, Y], cost, loops="xla"), jaxify([X, Y], cost, backend=NATIVE)
    actual = jax.grad(f, argnums=(0, 1))(*AT)
    for a, b in zip(actual, loopax.grad(native, argnums=(0, 1))(*AT), strict=True):
        np.testing.assert_allclose(a, b)
    by = 1e-6 * np.eye(3)[1]
    ends = [(by_numpy(AT[0], AT[1] + s * by)[0] ** 2).sum() for s in (1, -1)]
    np.testing.assert_allclose(actual[1][1], (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
    rows = [np.stack([x, 2 * x]) for x in AT]
    batch = loopax.vmap(native)(*rows)
    np.testing.assert_allclose(batch, jax.vmap(f)(*rows))
    np.testing.assert_allclose(batch[0], f(*AT))


@BOTH
def test_gradients_of_functions_of_variables(options):
    """PyTensor has no derivative of a sum over a named axis."""
    slope = loopax.grad(lambda y: (y**2 * X.sum("time")).sum())(Y)
    assert slope.dims == ("city",)
    np.testing.assert_allclose(jaxify([X, Y], slope, **options)(*AT), 2 * AT[1] * AT[0].sum(0))


class Placeholder(SameType):
    """Nothing runs it: a rewrite takes its place."""

    def perform(self, node, inputs, output_storage):
        raise AssertionError


def test_rewrites_that_are_registered_later_count(canonicalize):
    x = pt.dvector("x")
    assert jaxify([x], x + 1)(AT[1])[0] == 2.0  # PyTensor's rewrites are put together by now

    @node_rewriter([Placeholder])
    def stands_for_twice(fgraph, node):
        return [2 * node.inputs[0]]

    canonicalize.register("stands_for_twice_in_test", stands_for_twice, "fast_run", "fast_compile")
    np.testing.assert_allclose(jaxify([x], Placeholder()(x))(AT[1]), 2 * AT[1])
    step = loopax.scan(lambda c, _: (Placeholder()(c), None), x, length=2)[0]
    np.testing.assert_allclose(jaxify([x], step, backend=NATIVE)(AT[1]), 4 * AT[1])


def test_pytensor_functions_of_named_axes():
    """Compiled functions are read as well."""
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        f = pytensor.function([X, Y], (X * Y).sum("time"))
    np.testing.assert_allclose(jaxify(f)(*AT), f(*AT))
