"""Ops that loopax has never seen, each said once: one record and one conversion for each backend.

Every analysis and every pass then treats them as it treats PyTensor's own of their kind.
"""

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key
from pytensor.scalar.basic import upgrade_to_float
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot

import loopax
from loopax import jaxify, scan
from loopax.base.errors import DynamicShapeError
from loopax.base.upstream.pytensor import WithShapes
from loopax.explanation.expected_time import expected_times
from loopax.facts import (
    Errors,
    ScalarFacts,
    Structure,
    Work,
    facts_of,
    op_along_axes,
    reduction_op,
    register,
    register_scalar,
)
from loopax.facts.linearity import is_affine
from loopax.facts.record import UNKNOWN
from loopax.ir import Cond, evaluate
from loopax.ir.effects import Effects, Speculation, effects, speculation
from loopax.ir.sizes import Dims
from loopax.lowering import lower
from loopax.lowering.redundancy.fold_zeros import Zeros
from loopax.lowering.storage.read_early import read_early
from loopax.lowering.storage.read_last import read_last
from tests.support.compare import loops
from tests.support.kept import rewritten
from tests.support.ops import SameType

# -- an elementwise function -------------------------------------------------------------------------


class Softsign(ps.UnaryScalarOp):
    """``x / (1 + |x|)``"""

    nfunc_spec = None

    def impl(self, x):
        return x / (1 + abs(x))

    def pullback(self, inputs, outputs, cotangents):
        (x,), (g,) = inputs, cotangents
        return [g / ps.sqr(1 + abs(x))]


@jax_funcify.register(Softsign)
def _jax_softsign(op, **kwargs):
    return lambda x: x / (1 + jnp.abs(x))


@register_funcify_and_cache_key(Softsign)
def _numba_softsign(op, **kwargs):
    return numba.njit(lambda x: x / (1 + abs(x))), None


register_scalar(Softsign, ScalarFacts(0.3, 20, keeps_zero=True))
softsign = Elemwise(Softsign(upgrade_to_float, name="softsign"), name="softsign")

# -- a function whose derivative is infinite at a point -----------------------------------------------


class Root(ps.UnaryScalarOp):
    nfunc_spec = None

    def impl(self, x):
        return np.sqrt(x)

    def pullback(self, inputs, outputs, cotangents):
        return [cotangents[0] / (2 * outputs[0])]


@jax_funcify.register(Root)
def _jax_root(op, **kwargs):
    return jnp.sqrt


@register_funcify_and_cache_key(Root)
def _numba_root(op, **kwargs):
    return numba.njit(lambda x: np.sqrt(x)), None


register_scalar(Root, ScalarFacts(0.3, 20, keeps_zero=True, singular=0))
root = Elemwise(Root(upgrade_to_float, name="root"), name="root")

# -- an op that moves entries ------------------------------------------------------------------------


class Roll(WithShapes, SameType):
    """Each row of ``x`` rolled by one along ``axis``."""

    __props__ = ("axis",)

    def __init__(self, axis):
        self.axis = axis

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.roll(inputs[0], 1, self.axis)

    def shapes_of(self, node, shapes):
        return shapes

    def pullback(self, inputs, outputs, cotangents):
        g = cotangents[0]
        whole = [slice(None)] * self.axis
        return [
            pt.concatenate([g[(*whole, slice(1, None))], g[(*whole, slice(None, 1))]], self.axis)
        ]


@jax_funcify.register(Roll)
def _jax_roll(op, **kwargs):
    return lambda x: jnp.roll(x, 1, op.axis)


@register_funcify_and_cache_key(Roll)
def _numba_roll(op, node, **kwargs):
    if op.axis == 0:
        return numba.njit(lambda x: np.concatenate((x[-1:], x[:-1]))), None
    assert op.axis == 1 and node.inputs[0].type.ndim == 2
    return numba.njit(lambda x: np.concatenate((x[:, -1:], x[:, :-1]), 1)), None


register(
    Roll,
    op_along_axes(
        lambda node: node.op.axis,
        lambda op, axes: Roll(axes[0]),
        structure=Structure.MOVES,
        linear=lambda node: (frozenset({0}),),
    ),
)

# -- a reduction -------------------------------------------------------------------------------------


class CubeSum(WithShapes, Op):
    """The sum of the cubes along ``axes``."""

    __props__ = ("axes",)

    def __init__(self, axes):
        self.axes = axes

    def make_node(self, x):
        x = pt.as_tensor(x)
        shape = [n for k, n in enumerate(x.type.shape) if k not in self.axes]
        return Apply(self, [x], [pt.tensor(dtype=x.type.dtype, shape=shape)])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.asarray((inputs[0] ** 3).sum(self.axes))

    def shapes_of(self, node, shapes):
        return [[n for k, n in enumerate(shapes[0]) if k not in self.axes]]

    def pullback(self, inputs, outputs, cotangents):
        return [3 * inputs[0] ** 2 * pt.expand_dims(cotangents[0], self.axes)]


@jax_funcify.register(CubeSum)
def _jax_cube_sum(op, **kwargs):
    return lambda x: jnp.sum(x**3, op.axes)


@register_funcify_and_cache_key(CubeSum)
def _numba_cube_sum(op, node, **kwargs):
    if not node.outputs[0].type.ndim:
        return numba.njit(lambda x: np.asarray((x**3).sum())), None
    (axis,) = op.axes
    return numba.njit(lambda x: (x**3).sum(axis)), None


register(
    CubeSum,
    reduction_op(
        lambda node: node.op.axes, lambda op, axes: CubeSum(axes), errors=lambda node: Errors.NONE
    ),
)

# -- what is known of them ---------------------------------------------------------------------------

x, m, c = pt.dvector("x"), pt.dmatrix("m"), pt.dscalar("c")
MATRIX = np.random.default_rng(3).normal(size=(5, 3))
NEW = {
    "softsign": (softsign, lambda a: a / (1 + abs(a))),
    "roll": (Roll(0), lambda a: np.roll(a, 1, 0)),
    "cube sum": (CubeSum((0,)), lambda a: (a**3).sum()),
}
ROW = pytest.mark.parametrize("name", NEW)


def test_lengths():
    dims = Dims()
    assert dims.length(softsign(x)) == dims.length(x) == dims.length(Roll(0)(x))
    assert dims.length(Roll(1)(m)) == dims.length(m) == dims.length(CubeSum((1,))(m))


def test_effects_and_errors():
    for v in (softsign(x), Roll(0)(x), CubeSum((0,))(x)):
        assert effects(v.owner.op) is Effects.NONE
    assert speculation(softsign(x).owner) is Speculation.CHEAP
    assert facts_of(Roll(0)).work is Work.ARRAY


def test_algebra():
    assert is_affine([x], [Roll(0)(x) * c]) and not is_affine([x], [softsign(x)])
    zeros = Zeros({x}.__contains__)
    assert zeros(softsign(x)) and zeros(Roll(0)(2 * x)) and not zeros(CubeSum((0,))(x + c))


def test_cost():
    node, log = softsign(x).owner, pt.log(x).owner
    times = expected_times(FunctionGraph([x], [node.outputs[0], log.outputs[0]], clone=False))
    assert times[node] < times[log]


class NamedDot(Dot):
    """A subclass of PyTensor's that computes what its base computes."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name


class OwnDot(Dot):
    """A subclass of PyTensor's that may do anything."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.zeros(())


class OwnRoll(Roll):
    """A subclass of an op that has been said."""


def test_what_a_subclass_inherits():
    assert facts_of(NamedDot("product")) is facts_of(Dot())
    assert not effects(NamedDot("product")) & Effects.UNKNOWN
    assert facts_of(OwnDot()) is UNKNOWN and effects(OwnDot()) & Effects.UNKNOWN
    assert facts_of(OwnRoll(0)) is facts_of(Roll(0))


@pytest.mark.parametrize("form", ["xla", "native"])
def test_a_branch_that_is_not_taken_has_no_derivative(form):
    f = jaxify([x], pt.switch(x > 0, root(x), 2 * x).sum(), loops=form)
    np.testing.assert_allclose(jax.grad(f)(np.array([4.0, 0.0])), [0.25, 2.0])


# -- and what passes make of them --------------------------------------------------------------------


@ROW
def test_a_map_leaves_its_loop(name):
    op, function = NEW[name]
    ys = loopax.map(lambda r: op(2 * r), m)
    graph = FunctionGraph([m], [ys], clone=True)
    lower(graph)
    assert not loops(graph)
    np.testing.assert_allclose(
        jaxify([m], ys)(MATRIX), np.stack([function(2 * r) for r in MATRIX]), rtol=1e-12
    )


@ROW
def test_what_no_step_changes_leaves_the_loop(name):
    op, function = NEW[name]
    final, _ = scan(lambda s, r: (s + r * op(x).sum(), s), c, x)
    graph = FunctionGraph([x, c], [final], clone=True)
    lower(graph)
    for loop in loops(graph):
        assert not any(n.op == op for n in loop.op.fgraph.apply_nodes)
    # A function that cannot raise runs without a guard for a loop of no steps.
    guarded = [
        n for g in graph.apply_nodes if isinstance(g.op, Cond) for n in g.op.fgraph.apply_nodes
    ]
    assert any(n.op == op for n in guarded) == (name != "softsign")


@pytest.mark.parametrize("function", [softsign, Roll(1), CubeSum((1,))])
def test_one_row_is_computed_of_one_row(function):
    v = pt.dvector("v")
    trace = scan(lambda s, r: (pt.tanh(s * r), s), v, x)[1]
    graph = FunctionGraph([x, v], [function(trace)[-1]], clone=True)
    values = [np.linspace(0.1, 1.0, 6), np.array([0.3, -0.4])]
    rewritten(graph, [read_early, read_last], values, rtol=1e-12, errors=(IndexError,))
    assert [node.op.n_ys for node in loops(graph)] == [0]


@pytest.mark.sampled(2)
@ROW
@pytest.mark.parametrize("form", ["xla", "native"])
def test_values_gradients_and_batches(name, form):
    op, function = NEW[name]
    w = np.array([1.0, -2.0, 0.5])

    def step(s, r):
        return s + r * op(m[0] * s + 1).sum(), s

    final, trace = scan(step, c, x)
    f = jaxify([x, m, c], [final], loops=form)
    s = 0.3
    for r in w:
        s = s + r * np.sum(function(MATRIX[0] * s + 1))
    np.testing.assert_allclose(f(w, MATRIX, 0.3)[0], s, rtol=1e-12)
    slope = jax.grad(lambda s: f(w, MATRIX, s)[0])(0.3)
    h = 1e-6
    numeric = (f(w, MATRIX, 0.3 + h)[0] - f(w, MATRIX, 0.3 - h)[0]) / (2 * h)
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)
    batch = np.array([0.3, -0.2])
    rows = jax.vmap(lambda s: f(w, MATRIX, s)[0])(batch)
    np.testing.assert_allclose(rows, [f(w, MATRIX, s)[0] for s in batch], rtol=1e-12)


@ROW
def test_a_batch_in_a_graph(name):
    op, function = NEW[name]
    batched = loopax.vmap(lambda r: op(2 * r))(m)
    assert not any(isinstance(n.op, Blockwise) for n in FunctionGraph([m], [batched]).apply_nodes)
    np.testing.assert_allclose(
        jaxify([m], batched)(MATRIX), [function(2 * r) for r in MATRIX], rtol=1e-12
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", [softsign, Roll(0), Roll(1), CubeSum((0,)), CubeSum((1,))], ids=str)
def test_rows_of_which_only_the_run_tells_the_number(op, axis):
    mask = pt.bvector("mask")
    selected = m[mask.astype(bool)] if axis == 0 else m[:, mask.astype(bool)]
    f = jax.jit(jaxify([m, mask], op(selected)))
    along = getattr(op, "axis", None) == axis or axis in getattr(op, "axes", ())
    for taken in np.zeros(MATRIX.shape[axis]), np.arange(MATRIX.shape[axis]) % 2:
        values = MATRIX, taken.astype("int8")
        if along:  # and its record does not say what it would do with rows behind the end
            with pytest.raises(DynamicShapeError, match="how many rows there are"):
                f(*values)
        else:
            wanted = evaluate(FunctionGraph([m, mask], [op(selected)], clone=True), *values)[0]
            np.testing.assert_allclose(f(*values), wanted, rtol=1e-12)


@ROW
def test_native_code(name):
    """An op without a conversion would run as Python, with a warning."""
    op, function = NEW[name]
    final, trace = scan(lambda s, r: (s + r * op(m[0] * s + 1).sum(), s), c, x)
    f = jaxify([x, m, c], [final, op(trace)], backend="numba", on_missing="raise")
    w, states = np.array([1.0, -2.0, 0.5]), [0.3]
    for r in w:
        states.append(states[-1] + r * np.sum(function(MATRIX[0] * states[-1] + 1)))
    actual = f(w, MATRIX, 0.3)
    np.testing.assert_allclose(actual[0], states[-1], rtol=1e-12)
    np.testing.assert_allclose(actual[1], function(np.array(states[:-1])), rtol=1e-12)


@pytest.mark.parametrize("op", [Roll(0), Roll(1), CubeSum((0,)), CubeSum((1,))], ids=str)
def test_native_code_of_a_matrix(op):
    f = jaxify([m], op(m), backend="numba", on_missing="raise")
    wanted = evaluate(FunctionGraph([m], [op(m)], clone=True), MATRIX)[0]
    np.testing.assert_allclose(f(MATRIX), wanted, rtol=1e-12)
