"""Ops of which there is only ``perform``: under every transformation, in loops, in both backends."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph

import loopax
from loopax import UnsupportedOpError, jaxify
from loopax.base.upstream.pytensor import WithShapes
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has no JAX conversion"),
    pytest.mark.filterwarnings("ignore:.*run as Python"),
]
X, Y = pt.dvector("x"), pt.dvector("y")
AT = [np.array([0.3, 0.5, 0.7]), np.array([1.0, 2.0, 3.0])]


class Sine(Op):
    """No more than a value, of which nobody says the shape."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dvector()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.sin(inputs[0])


class ByGraph(Sine):
    def pullback(self, inputs, outputs, cotangents):
        return [pt.cos(inputs[0]) * cotangents[0]]


class Cosine(Op):
    """A gradient that is a black box, too: it takes the cotangent."""

    def make_node(self, x, g):
        return Apply(self, [pt.as_tensor(x), pt.as_tensor(g)], [pt.dvector()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.cos(inputs[0]) * inputs[1]


class ByBlackBox(Sine):
    def pullback(self, inputs, outputs, cotangents):
        return [-Cosine()(inputs[0], -cotangents[0])]


class Several(WithShapes, Op):
    """Outputs of several kinds, and a shape that is said."""

    def make_node(self, x, y):
        return Apply(self, [x, y], [pt.dscalar(), pt.dvector(), pt.lscalar()])

    def perform(self, node, inputs, output_storage):
        x, y = inputs
        output_storage[0][0] = np.asarray((x * y).sum())
        output_storage[1][0], output_storage[2][0] = x**2, np.asarray(len(x))

    def shapes_of(self, node, shapes):
        return [(), shapes[0], ()]

    def pullback(self, inputs, outputs, cotangents):
        (x, y), (a, b, _) = inputs, cotangents
        by_x, by_y = pt.zeros_like(x), pt.zeros_like(y)
        if not isinstance(a.type, DisconnectedType):
            by_x, by_y = by_x + a * y, by_y + a * x
        if not isinstance(b.type, DisconnectedType):
            by_x = by_x + 2 * x * b
        return [by_x, by_y]


class Shorter(Sine):
    """As many rows as there are differences."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.diff(inputs[0])

    def pullback(self, inputs, outputs, cotangents):
        zero = pt.zeros(1)
        return [pt.concatenate([zero, *cotangents]) - pt.concatenate([*cotangents, zero])]


class Solution(Op):
    """It cannot be tried on ones: they are no matrix that has an inverse."""

    def make_node(self, a, b):
        return Apply(self, [a, b], [pt.dvector()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.linalg.solve(*inputs)

    def pullback(self, inputs, outputs, cotangents):
        back = Solution()(inputs[0].T, cotangents[0])
        return [-back[:, None] * outputs[0], back]


class Solver(Op):
    """Keeps what its gradient needs, as solvers of differential equations do."""

    def __init__(self):
        self.slopes = {}

    def make_node(self, x):
        return Apply(self, [x], [pt.dmatrix()])

    def perform(self, node, inputs, output_storage):
        (x,) = inputs
        self.slopes.clear()
        self.slopes[x.tobytes()] = np.cos(x)
        output_storage[0][0] = np.stack([np.sin(x), np.sin(x)])

    def pullback(self, inputs, outputs, cotangents):
        return [SolverGradient(self.slopes)(inputs[0], cotangents[0])]


class SolverGradient(Op):
    def __init__(self, slopes):
        self.slopes = slopes

    def make_node(self, x, g):
        return Apply(self, [x, g], [pt.dvector()])

    def perform(self, node, inputs, output_storage):
        x, g = inputs
        output_storage[0][0] = self.slopes[x.tobytes()] * g.sum(axis=0)


class WithSensitivities(WithShapes, Op):
    """As sunode's: it asks for no cotangent of an output that nobody reads, and has none of one input."""

    def make_node(self, x, y):
        return Apply(self, [x, y], [pt.dvector(), pt.dmatrix()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0], output_storage[1][0] = inputs[0] ** 2, np.diag(2 * inputs[0])

    def shapes_of(self, node, shapes):
        return [shapes[0], (shapes[0][0], shapes[0][0])]

    def pullback(self, inputs, outputs, cotangents):
        g, none = cotangents
        assert isinstance(none.type, DisconnectedType)
        _, slopes = self(*inputs)
        return [g @ slopes, grad_not_implemented(self, 1, inputs[1])]


def looped(op):
    return loopax.scan(lambda c, e: (op(c) * e, None), X, Y)[0].sum()


A, B, N = Several()(X, Y)
SOLVER = Solver()
PROGRAMS = {
    "pullback of a graph": (ByGraph()(X) * X * Y).sum(),
    "pullback of a black box": (ByBlackBox()(X) * X * Y).sum(),
    "several outputs": A * B.sum() * N,
    "one of several": A * Y[0],
    "a length of its own": (Shorter()(X) ** 2).sum() * Y[0],
    "ones will not do": (Solution()(pt.diag(Y) + 0.1, X) ** 2).sum(),
    "state": (SOLVER(X) * Y).sum(),
    "in a loop": looped(ByBlackBox()),
    "in a loop that stops": loopax.while_loop(
        lambda c: c.sum() < 50, lambda c: ByBlackBox()(c) + c * Y, X, max_steps=5
    ).sum(),
    "in a loop of PyTensor's": pytensor.scan(
        lambda e, c: ByGraph()(c) * e, sequences=Y, outputs_info=X, return_updates=False
    )[-1].sum(),
    "state in a loop": looped(lambda c: Solver()(c)[0]),
    "state that is used twice": (SOLVER(X) * SOLVER(2 * X)).sum() * Y[0],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_jax(name):
    y = PROGRAMS[name]
    f = jaxify([X, Y], y, loops="xla")
    slopes = jax.jit(jax.value_and_grad(f, argnums=(0, 1)))
    value, actual = slopes(*AT)
    # By differences: PyTensor runs a gradient that reads what the op has kept behind another use of the op.
    plain = pytensor.function([X, Y], y, mode=FAST_COMPILE)
    np.testing.assert_allclose(value, plain(*AT))
    for k, of_one in enumerate(actual):
        for j in range(3):
            by = 1e-6 * np.eye(3)[j]
            ends = [
                plain(*(x + s * by if m == k else x for m, x in enumerate(AT))) for s in (1, -1)
            ]
            np.testing.assert_allclose(of_one[j], (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-7)
    rows = [np.stack([x, 1.1 * x]) for x in AT]
    batch = jax.vmap(slopes)(*rows)[1]
    alone = slopes(*(1.1 * x for x in AT))[1]
    np.testing.assert_allclose([b[1] for b in batch], alone, rtol=1e-7, atol=1e-14)
    _, moved = jax.jvp(f, AT, AT)
    np.testing.assert_allclose(moved, sum(x @ g for x, g in zip(AT, actual, strict=True)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_native_code(name):
    y = PROGRAMS[name]
    value, actual = jaxify([X, Y], y, loops="xla"), jaxify([X, Y], y, backend=NATIVE)
    expected = value(*AT), jax.grad(value, argnums=(0, 1))(*AT)
    got = loopax.value_and_grad(actual, argnums=(0, 1))(*AT)
    np.testing.assert_allclose(got[0], expected[0])
    for a, b in zip(got[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b)
    rows = [np.stack([x, 1.1 * x]) for x in AT]
    np.testing.assert_allclose(
        loopax.vmap(actual)(*rows), [value(*AT), value(*(1.1 * x for x in AT))]
    )


def test_in_a_batch_of_pytensor():
    rows = pt.dmatrix("rows")
    cost = (vectorize_graph(ByBlackBox()(X), {X: rows}) ** 2).sum()
    at = np.stack(AT)
    for slope in (
        jax.grad(jaxify([rows], cost)),
        loopax.grad(jaxify([rows], cost, backend=NATIVE)),
    ):
        np.testing.assert_allclose(slope(at), np.sin(2 * at))
    with pytest.raises(UnsupportedOpError, match="has no `pullback`"):
        jax.grad(jaxify([rows], vectorize_graph(Sine()(X), {X: rows}).sum()))(at)


def test_second_derivatives():
    f = jaxify([X], (ByGraph()(X) * X).sum())
    expected = np.diag(2 * np.cos(AT[0]) - AT[0] * np.sin(AT[0]))
    np.testing.assert_allclose(jax.hessian(f)(AT[0]), expected)
    np.testing.assert_allclose(jax.jacrev(jax.jacfwd(f))(AT[0]), expected)


def test_without_a_derivative():
    program = [X, Y], (Sine()(X) * Y).sum()
    f = jaxify(*program)
    np.testing.assert_allclose(jax.grad(f, argnums=1)(*AT), np.sin(AT[0]))
    with pytest.raises(UnsupportedOpError, match="has no `pullback`"):
        jax.grad(f)(*AT)


def test_what_nobody_reads_has_no_cotangent():
    """And an input of which nobody knows the derivative is no obstacle to those of others."""
    program = [X, Y], WithSensitivities()(X, Y)[0].sum()
    for slope in (jax.grad(jaxify(*program)), loopax.grad(jaxify(*program, backend=NATIVE))):
        np.testing.assert_allclose(slope(*AT), 2 * AT[0])
    with pytest.raises(UnsupportedOpError, match="no derivative by its input 1"):
        jax.grad(jaxify(*program), argnums=1)(*AT)


@pytest.mark.parametrize(
    "form", ["jax.grad", "loopax.grad", "pytensor.grad", "native pytensor.grad"]
)
def test_a_gradient_whose_op_does_not_run_otherwise(form):
    """The cost is linear: nobody reads the value of the op itself, so that it is dropped."""
    cost = (Solver()(X) * [[1.0, 2.0, 3.0]]).sum()
    f = {
        "jax.grad": lambda: jax.jit(jax.grad(jaxify([X], cost))),
        "loopax.grad": lambda: loopax.grad(jaxify([X], cost, backend=NATIVE)),
        "pytensor.grad": lambda: jaxify([X], pytensor.grad(cost, X)),
        "native pytensor.grad": lambda: jaxify([X], pytensor.grad(cost, X), backend=NATIVE),
    }[form]()
    for x in (AT[0], AT[1], AT[0]):
        np.testing.assert_allclose(f(x), 2 * np.cos(x) * [1.0, 2.0, 3.0])


@pytest.mark.parametrize("backend", ["jax", NATIVE])
def test_the_gradients_of_a_batch_of_ops_with_state(backend):
    """Each row runs the op again: it has run for all rows before the first gradient."""
    rows = pt.dmatrix("rows")
    batch = vectorize_graph(Solver()(X), {X: rows})
    slope = jaxify([rows], pytensor.grad((batch * batch).sum(), rows), backend=backend)
    at = np.stack(AT)
    for x in (at, 2 * at):
        np.testing.assert_allclose(slope(x), 2 * np.sin(2 * x))


def test_a_registered_conversion_is_taken():
    """Also where the op and its gradient hold one another, as those that wrap JAX functions do."""
    from pytensor.link.jax.dispatch import jax_funcify

    class Slope(Cosine):
        perform = None

    class Wrapped(Sine):
        def __init__(self):
            self.slope = Slope()

        def pullback(self, inputs, outputs, cotangents):
            return [self.slope(inputs[0], cotangents[0])]

    jax_funcify.register(Wrapped)(lambda op, **_: jax.numpy.sin)
    jax_funcify.register(Slope)(lambda op, **_: lambda x, g: jax.numpy.cos(x) * g)
    slope = jaxify([X], pytensor.grad(Wrapped()(X).sum(), X), on_missing="raise")
    np.testing.assert_allclose(slope(AT[0]), np.cos(AT[0]))


class Refusing(Sine):
    """It raises, and counts how often it has run."""

    runs = 0

    def perform(self, node, inputs, output_storage):
        self.runs += 1
        raise ValueError("no luck")


def test_one_that_raises_runs_once_and_says_that_it_was_it():
    op = Refusing()
    f = jaxify([X], op(X) + 1, backend="numba")
    with pytest.raises(ValueError, match="no luck") as caught:
        f(AT[0])
    assert op.runs == 1 and str(caught.value) == "no luck"
    assert "Raised by Refusing" in caught.value.__notes__[0]


class Recorded(Sine):
    """It keeps its arguments, as a user's op does that is to be looked into."""

    def __init__(self):
        self.arguments = []

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)

    def perform(self, node, inputs, output_storage):
        self.arguments.append(inputs[0])
        super().perform(node, inputs, output_storage)


@pytest.mark.parametrize("form", [{"backend": NATIVE}, {"loops": "xla"}])
def test_arguments_that_an_op_keeps_do_not_change(form):
    """The next step of a native loop overwrites the memory of its states and temporary arrays."""
    op, start = Recorded(), np.arange(9.0)
    x = pt.dvector("x", shape=(9,))

    def step(c, i):
        c = op(c * 0.5) + op(c[::-1]) + i
        return c, None

    jaxify([x], loopax.scan(step, x, pt.arange(4.0))[0], **form)(start)
    arguments, c = [], start
    for i in range(4):
        arguments += [c * 0.5, c[::-1]]
        c = np.sin(arguments[-2]) + np.sin(arguments[-1]) + i
    kept = {tuple(x.round(9)) for x in op.arguments}  # also those of calls for the shape
    assert {tuple(x.round(9)) for x in arguments} <= kept
