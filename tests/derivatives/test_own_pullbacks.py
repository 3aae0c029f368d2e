"""A pullback that somebody wrote is the derivative: of every order, in both backends, recursive or not."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from jax.test_util import check_grads
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import NullTypeGradError, disconnected_type, grad_not_implemented
from pytensor.graph.replace import clone_replace
from pytensor.scan.utils import until
from pytensor.tensor import linalg
from pytensor.tensor.blockwise import Blockwise

import loopax
from loopax import UnsupportedOpError, jaxify
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE
from tests.support.marking import slow_where

S, U = pt.dscalars("s", "u")
X, Y = pt.dscalars("x", "y")
XS = pt.dvector("xs")


def cubic(inputs, outputs, cotangents):
    """Not the derivative of a square, so that one sees which was taken."""
    return [inputs[0] ** 3 * cotangents[0]]


class Own(OpFromGraph):
    def pullback(self, inputs, outputs, cotangents):
        return cubic(inputs, outputs, cotangents)


def recursive(inputs, outputs, cotangents):
    """The derivative of the op is the op."""
    return [OpFromGraph([S], [S**2], pullback=recursive)(inputs[0]) * cotangents[0]]


def of_a_family(n):
    """Each derivative is another op, without an end."""
    sine = pt.sin(S) * n
    return OpFromGraph([S], [sine], pullback=lambda i, _, ct: [of_a_family(n + 1)(i[0]) * ct[0]])


def square(**options):
    return OpFromGraph([S], [S**2], **options)


BY_OP = OpFromGraph([S, U, Y], [S**3 * Y], on_unused_input="ignore")
PRODUCT = OpFromGraph([S, U], [S**2 * U], pullback=[None, lambda i, o, ct: 7 * i[1] * ct[0]])
SCALARS = {
    "function": square(pullback=cubic)(X) * X,
    "op": square(pullback=BY_OP)(X) * X,
    "one of two": PRODUCT(X, X + 1) * X,
    "method": Own([S], [S**2])(X) * X,
    "of the output": square(pullback=lambda i, o, ct: [3 * o[0] * ct[0]])(X) * X,
    "recursive": square(pullback=recursive)(X) * X,
    "family": of_a_family(1)(X) * X,
    "nested": OpFromGraph([S], [square(pullback=cubic)(S) + S])(X) * X,
    "loop": loopax.scan(
        lambda c, e: (square(pullback=cubic)(c) * e, None), X, pt.constant([0.5, 0.7])
    )[0],
    "batch": (Blockwise(square(pullback=cubic), signature="()->()")(X + [1.0, 2.0]) * X).sum(),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("y", [pytest.param(y, id=name) for name, y in SCALARS.items()])
def test_derivatives_to_second_order(y):
    first = pytensor.grad(y, X)
    second = pytensor.grad(first, X)
    expected = pytensor.function([X], [first, second], mode=FAST_COMPILE)(1.3)
    f = jaxify([X], y, loops="xla")
    actual = [jax.grad(f)(1.3), jax.grad(jax.grad(f))(1.3)]
    np.testing.assert_allclose(actual, expected)
    np.testing.assert_allclose(jax.hessian(f)(1.3), expected[1])  # forward over reverse
    np.testing.assert_allclose(jax.jacrev(jax.jacfwd(f))(1.3), expected[1])
    native = jaxify([X], y, backend=NATIVE)
    once = loopax.grad(native)
    np.testing.assert_allclose([once(1.3), loopax.grad(once)(1.3)], expected)
    np.testing.assert_allclose(jaxify([X], second, backend=NATIVE)(1.3), expected[1])


A, B, Q, R = pt.dmatrices("a", "b", "q", "r")
_RNG = np.random.default_rng(0)
A_AT, B_AT, W = _RNG.normal(size=(3, 2, 2))
Q_AT, R_AT = A_AT @ A_AT.T + np.eye(2), B_AT @ B_AT.T + np.eye(2)
EQUATIONS = {
    "sylvester": ([A, B, Q], linalg.solve_sylvester(A, B, Q), [A_AT + 4 * np.eye(2), R_AT, W]),
    "lyapunov": ([A, Q], linalg.solve_continuous_lyapunov(A, Q), [A_AT - 4 * np.eye(2), Q_AT]),
    "discrete": ([A, Q], linalg.solve_discrete_lyapunov(A, Q), [0.2 * A_AT, Q_AT]),
    "riccati": ([A, B, Q, R], linalg.solve_discrete_are(A, B, Q, R), [A_AT, B_AT, Q_AT, R_AT]),
    "kronecker": ([A, B], pt.linalg.kron(A, B)[:2, 1:3] ** 2, [A_AT, B_AT]),
}


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings(
    "ignore:QZ.*has no JAX conversion"
)  # it runs on the host, with one warning
@pytest.mark.filterwarnings("ignore:.*run as Python")
# PyTensor runs what is inside of an OpFromGraph in its default mode, Numba's, whose `dot` warns.
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
@pytest.mark.parametrize(
    "name", slow_where(lambda name: name not in ("sylvester", "kronecker"), EQUATIONS)
)
def test_equations_of_matrices(name):
    """What PyTensor gives a pullback because the graph has none: its second derivative has one, too.

    PyTensor's own second derivative of the Riccati equation is not that of its first (3.3.8).
    """
    inputs, solution, values = EQUATIONS[name]
    cost = (solution * W).sum()
    first = pytensor.grad(cost, inputs)
    expected = pytensor.function(inputs, first, mode=FAST_COMPILE)(*values)
    f = jaxify(inputs, cost, loops="xla")
    every = tuple(range(len(inputs)))
    by_jax = jax.grad(f, argnums=every)
    for a, b in zip(by_jax(*values), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(b).max())

    def squares(*args):
        return sum((g**2).sum() for g in by_jax(*args))

    check_grads(squares, values, order=1, modes=["rev"], rtol=1e-6)
    native = loopax.grad(jaxify(inputs, cost, backend=NATIVE), argnums=every)
    for a, b in zip(native(*values), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(b).max())


def test_one_that_is_not_linear_has_reverse_mode():
    op = square(pullback=lambda i, o, ct: [pt.clip(2 * i[0] * ct[0], -1, 1)])
    f = jaxify([X], op(X))
    assert jax.grad(f)(3.0) == loopax.grad(jaxify([X], op(X), backend=NATIVE))(3.0) == 1.0
    with pytest.raises(UnsupportedOpError, match="not linear in the cotangents"):
        jax.jvp(f, (3.0,), (1.0,))


def raising(inputs, outputs, cotangents):
    raise NotImplementedError("nobody has written it")


def test_what_has_no_derivative_has_a_value():
    op = square(pullback=raising)
    program = [X], op(X) * op(X + 1)
    f, native = jaxify(*program), jaxify(*program, backend=NATIVE)
    assert f(2.0) == native(2.0) == 36.0
    with pytest.raises(UnsupportedOpError, match="nobody has written it"):
        jax.grad(f)(2.0)
    with pytest.raises(NotImplementedError, match="nobody has written it"):
        loopax.grad(native)(2.0)


def test_an_input_without_a_derivative():
    def pullback(inputs, outputs, cotangents):
        return [inputs[1] * cotangents[0], grad_not_implemented(BY_OP, 1, inputs[1], "who knows")]

    program = [X, Y], OpFromGraph([S, U], [S * U], pullback=pullback)(X, Y)
    f, native = jaxify(*program), jaxify(*program, backend=NATIVE)
    assert jax.grad(f)(2.0, 3.0) == loopax.grad(native)(2.0, 3.0) == 3.0
    with pytest.raises(UnsupportedOpError, match="no derivative by its input 1.*who knows"):
        jax.grad(f, argnums=1)(2.0, 3.0)
    with pytest.raises(NullTypeGradError, match="who knows"):
        loopax.grad(native, argnums=1)(2.0, 3.0)


def test_integers_and_batches():
    k = pt.lscalar("k")
    op = OpFromGraph(
        [S, k], [S**k], pullback=lambda i, o, ct: [5 * ct[0] * i[1], disconnected_type()]
    )
    f = jaxify([X, k], op(X, k))
    actual = jax.jit(jax.vmap(jax.grad(f), in_axes=(None, 0)))(2.0, np.arange(3))
    np.testing.assert_allclose(actual, [0.0, 5.0, 10.0])


def test_graphs_of_variables():
    """`loopax.grad` of a function of variables asks PyTensor's own rule."""
    y = SCALARS["recursive"]
    f = loopax.grad(loopax.grad(lambda x: clone_replace(y, {X: x})))
    np.testing.assert_allclose(jaxify(f, backend=NATIVE)(2.0), jax.hessian(jaxify([X], y))(2.0))


# -- rows of which nobody knows how many there will be ------------------------------------------------


def running_sum(x, by_number=False):
    """The sums of ``x`` until one is above 3, by an op whose pullback is twice the true one's last term.

    The pullback cuts its input by the number of sums that the op returns, or by the length of the sums.
    """
    inside = x.type("inside")

    def step(r, s):
        return s + r, until(s + r > 3)

    sums = pytensor.scan(step, [inside], pt.zeros(()), return_updates=False)

    def pullback(inputs, outputs, cotangents):
        (inside,), (sums, number), (arrived, _) = inputs, outputs, cotangents
        some = 2 * arrived * pt.ones_like(sums)
        n = number if by_number else sums.shape[0]
        return [pt.concatenate([some * inside[:n] ** 0, pt.zeros_like(inside[n:])])]

    return OpFromGraph([inside], [sums, sums.shape[0]], pullback=pullback, name="RunningSum")(x)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("by_number", [False, True], ids=["by length", "by number"])
@pytest.mark.parametrize("bound", [0.5, 2.0], ids=["to the end", "stops"])
@pytest.mark.parametrize(
    "read",
    [
        lambda sums, n: (sums**2).sum(),
        lambda sums, n: sums[-1] ** 2,
        lambda sums, n: pt.exp(-sums).sum() * n,
        lambda sums, n: pt.concatenate([sums, sums**2]).sum(),
    ],
    ids=["all", "last", "count", "joined"],
)
def test_outputs_of_unknown_length(read, bound, by_number):
    x = pt.dvector("x")
    y = read(*running_sum(x, by_number))
    slope = pytensor.grad(y, x)
    values = np.linspace(0.1, bound, 6)
    expected = pytensor.function([x], [y, slope], mode=FAST_COMPILE)(values)
    f = jaxify([x], y, loops="xla")
    for route in jax.value_and_grad(f), jax.jit(jax.value_and_grad(f)), jaxify([x], [y, slope]):
        for mine, theirs in zip(route(values), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    rows = np.stack([values, values[::-1]])
    slopes = jax.vmap(jax.grad(f))(rows)
    np.testing.assert_allclose(slopes[0], expected[1], rtol=1e-12)
