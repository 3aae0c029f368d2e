"""Branches that are not taken, of functions without a derivative there.

JAX's operations have `loopax.lowering.derivatives.guarded_branches`, native code has
`loopax.ir.derivatives.supported`.
"""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
import scipy.special
from jax.test_util import check_grads
from pytensor import sparse
from pytensor.graph.traversal import toposort
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.scan.utils import until

import loopax
from loopax import jaxify
from loopax.facts.elementwise import is_elementwise
from loopax.ir.ops.masked_tangent import MaskedTangent
from loopax.lowering.derivatives.guarded_branches import guard_branches
from tests.support.compare import FAST_COMPILE, equations, primitives

X = pt.dvector("x")
AT = np.array([0.0, 4.0])
DENSE = np.array([[0.7, 0.1], [0.2, 1.2]])
INF = np.inf
FORMS = ["xla", "native"]
NUMBA = {"backend": "numba"}

# A function, and its gradient at 0 and 4, where it is the limit of no derivative that is finite.
BRANCHES = {
    "sum": (pt.switch(X[0] > 0, pt.sqrt(X).sum(), 0.0), [0.0, 0.0]),
    "element": (pt.switch(X[0] > 0, pt.sqrt(X)[0], 0.0), [0.0, 0.0]),
    "reversed": (pt.switch(X[::-1] > 0, pt.sqrt(X)[::-1], 0.0).sum(), [0.0, 0.25]),
    "read by both": (pt.switch(X > 0, pt.sqrt(X)[0] + pt.sqrt(X)[::-1], 0.0).sum(), [INF, 0.0]),
    "column": (
        pt.switch((X > 0)[:, None], 2 * pt.log(X)[:, None] + np.zeros((2, 3)), 0.0).sum(),
        [0.0, 1.5],
    ),
    "behind a function that overflows": (
        pt.switch(X > 0, pt.exp(pt.sqrt(X)), 1.0).sum(),
        [0.0, np.exp(2.0) / 4],
    ),
    "behind functions": (
        pt.switch(X > 0, pt.tanh(pt.abs(pt.log(X))), 1.0).sum(),
        [0.0, 0.25 / np.cosh(np.log(4.0)) ** 2],
    ),
    "two switches": (
        (pt.switch(X > 0, pt.log(X), 0.0) * pt.switch(X > 0, pt.exp(pt.sqrt(X)), 1.0)).sum(),
        [0.0, np.exp(2.0) * (1 + np.log(4.0)) / 4],
    ),
    "sum of rows": (
        pt.switch(X > 0, (pt.sqrt(X)[:, None] * np.array([[1.0, 2.0]])).sum(axis=1), 0.0).sum(),
        [0.0, 0.75],
    ),
    # What a row reads that is taken has its derivative.
    "dense": (pt.switch(X > 0, pt.dot(DENSE, pt.sqrt(X)), 0.0).sum(), [INF, 0.3]),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("loops", FORMS)
def test_elements_that_only_the_other_branch_needs(name, loops):
    out, expected = BRANCHES[name]
    f = jaxify([X], out, loops=loops)
    value = pytensor.function([X], out, mode="FAST_COMPILE")(AT)
    np.testing.assert_array_equal(f(AT), value)
    for g in jax.grad(f), jax.jit(jax.grad(f)):
        np.testing.assert_allclose(g(AT), expected, rtol=1e-12)
    if INF not in expected:
        np.testing.assert_allclose(jax.jacfwd(f)(AT), expected, rtol=1e-12)
        assert np.isfinite(jax.hessian(f)(AT)).all()


# A function of x that is not taken where x is not positive, and its slope where it is.
FUNCTIONS = {
    "erfinv": lambda x: pt.erfinv(1 - x / 8),
    "erfcinv": lambda x: pt.erfcinv(x / 8),
    "gamma": pt.gamma,
    "psi": pt.psi,
    "tri_gamma": pt.tri_gamma,
    "polygamma": lambda x: pt.polygamma(1, x),
    "gammainc": lambda x: pt.gammainc(0.5, x),
    "gammaincc": lambda x: pt.gammaincc(0.5, x),
    "betainc": lambda x: pt.betainc(0.5, 2.0, x / 8),
    "erfcx": lambda x: pt.erfcx(40 * x - 40),
    "mod": lambda x: pt.mod(3.0, x),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("loops", FORMS)
def test_functions_that_have_no_derivative_where_they_are_not_taken(name, loops):
    at, taken = np.array([0.0, 2.5, -1.0]), np.array([2.5])
    f = FUNCTIONS[name]
    slopes = jax.grad(jaxify([X], pt.switch(X > 0, f(X), X / 2).sum(), loops=loops))(at)
    (slope,) = jax.grad(jaxify([X], f(X).sum(), loops=loops))(taken)
    np.testing.assert_allclose(slopes, [0.5, slope, 0.5], rtol=1e-12)


# Of tanh(sin(...)), ten functions in all, of log(x) at 4 and 9, from plain JAX.
SLOPES = [
    jax.grad(lambda x: reduce(lambda y, f: f(y), [jnp.sin, jnp.tanh] * 5, jnp.log(x)))(at)
    for at in (4.0, 9.0)
]
ROOT = pt.switch(X > 0, pt.sqrt(X), 2 * X)
NESTED = {
    "in the first branch": (pt.switch(X < 5, ROOT, 3 * X), [2.0, 0.25, 2.0, 3.0]),
    "in the second branch": (pt.switch(X > 5, 3 * X, ROOT), [2.0, 0.25, 2.0, 3.0]),
    "under a function": (
        pt.switch(X < 5, pt.log(pt.switch(X > 0, X, 1.0)), X),
        [0.0, 0.25, 0.0, 1.0],
    ),
    "three of them": (
        pt.switch(X < 5, pt.switch(X > 0, pt.switch(X > 1, pt.log(X), X), 2 * X), 3 * X),
        [2.0, 0.25, 2.0, 3.0],
    ),
    "in a moved branch": (pt.switch(X[:, None] < 5, ROOT[:, None], 1.0), [2.0, 0.25, 2.0, 0.0]),
    "behind ten functions": (
        pt.switch(X > 0, reduce(lambda y, f: f(y), [pt.sin, pt.tanh] * 5, pt.log(X)), X),
        [1.0, SLOPES[0], 1.0, SLOPES[1]],
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("loops", FORMS)
def test_switches_in_switches(name, loops):
    out, expected = NESTED[name]
    f = jaxify([X], out.sum(), loops=loops)
    at = np.array([0.0, 4.0, -1.0, 9.0])
    np.testing.assert_allclose(jax.grad(f)(at), expected, rtol=1e-12)
    assert np.isfinite(jax.hessian(f)(at)).all()


K = pt.lscalar("k")


@pytest.mark.parametrize("call", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "out",
    [
        pt.switch(K > 5, pt.log(X), 2 * X).sum(),
        pt.switch(K < 5, 2 * X, pt.log(X)).sum(),
        pt.switch(X.shape[0] + K > 8, pt.log(X), 2 * X).sum(),
        pt.where(K > 5, pt.log(X).sum(), 2 * X.sum()),
        pt.switch(pt.arange(X.shape[0]) + 5 < K, pt.sqrt(X), 2 * X).sum(),
    ],
)
def test_conditions_that_are_known_before_the_run(out, call):
    f = jaxify([X, K], out, loops="xla")
    slopes = call(jax.grad(f))(np.array([0.0, -1.0, 2.0]), 1)
    np.testing.assert_array_equal(slopes, [2.0, 2.0, 2.0])


Y, M, FLAGS = pt.dvector("y"), pt.dscalar("m"), pt.vector("flags", dtype="bool")
MISSING = np.array([0.3, np.nan, 1.0])
# Terms of data and a parameter, which the data's gaps make NaN, and their slope in the parameter at 0.2.
TERMS = {
    "square": (lambda y: -0.5 * (y - M) ** 2, lambda y: y - 0.2),
    "product": (lambda y: y * M, lambda y: y),
    "quotient": (lambda y: y / M, lambda y: -y / 0.2**2),
    "power": (lambda y: M**y, lambda y: y * 0.2 ** (y - 1)),
    "sine": (lambda y: pt.sin(y * M), lambda y: y * np.cos(0.2 * y)),
    "density": (lambda y: -0.5 * ((y - M) / pt.exp(M)) ** 2 - M, None),
    "sum": (lambda y: ((y[:, None] - M) * np.ones((1, 2)) * M).sum(axis=1), None),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("loops", FORMS)
def test_a_gap_in_the_data(name, loops):
    term, expected = TERMS[name]
    present = jaxify([Y, M], term(Y).sum(), loops=loops)
    at = np.float64(0.2)
    slope = jax.grad(present, 1)(MISSING[[0, 2]], at)
    if expected is not None:
        np.testing.assert_allclose(slope, expected(MISSING[[0, 2]]).sum(), rtol=1e-12)
    curvature = jax.hessian(present, 1)(MISSING[[0, 2]], at)
    programs = {
        "a test": ([Y, M], pt.switch(pt.isnan(Y), 0.0, term(Y)), (MISSING, at)),
        "flags": ([Y, M, FLAGS], pt.switch(FLAGS, 0.0, term(Y)), (MISSING, at, np.isnan(MISSING))),
        "constants": (
            [Y, M],
            pt.switch(pt.isnan(Y), 0.0, term(pt.constant(MISSING))),
            (MISSING, at),
        ),
        "infinite": ([Y, M], pt.switch(pt.isinf(Y), 0.0, term(Y)), (np.array([0.3, INF, 1.0]), at)),
    }
    for inputs, out, arguments in programs.values():
        f = jaxify(inputs, out.sum(), loops=loops)
        np.testing.assert_allclose(jax.grad(f, 1)(*arguments), slope, rtol=1e-12)
        np.testing.assert_allclose(jax.jit(jax.grad(f, 1))(*arguments), slope, rtol=1e-12)
        np.testing.assert_allclose(jax.jacfwd(f, 1)(*arguments), slope, rtol=1e-12)
        np.testing.assert_allclose(jax.hessian(f, 1)(*arguments), curvature, rtol=1e-12)


class NamedCheck(CheckAndRaise):
    """A check with an exception of its own, as PyMC's of a parameter."""

    __props__ = ("msg", "exc_type")

    def __init__(self, msg):
        super().__init__(ValueError, msg)


class OwnCheck(NamedCheck):
    """A check of which nothing is known."""

    def perform(self, node, inputs, output_storage):
        super().perform(node, inputs, output_storage)


@pytest.mark.filterwarnings("ignore:These ops have no conversion")
@pytest.mark.parametrize("check", [Assert, NamedCheck, OwnCheck])
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_check_in_a_branch(check, backend):
    """The mask of PyMC's checks was lost, and the branch that is not taken had a slope."""
    out = pt.switch(X < 1, 3.0, check("positive")(X * M, M > 0)).sum()
    gap = pt.switch(pt.isnan(Y), 0.0, check("positive")((Y - M) ** 2, M > 0)).sum()
    f, g = (
        jaxify([v, M], y, backend=backend, checks="ignore" if backend == "jax" else None)
        for v, y in ((X, out), (Y, gap))
    )
    slopes = loopax.grad(f, argnums=(0, 1))(AT, np.float64(0.5))
    np.testing.assert_allclose(slopes[0], [0.0, 0.5])
    np.testing.assert_allclose(slopes[1], 4.0)
    if check is not OwnCheck or backend == "numba":  # an unknown op may read all of its input
        np.testing.assert_allclose(loopax.grad(g, argnums=1)(MISSING, np.float64(0.5)), -0.6)


B, GAP = pt.dvector("b"), pt.isnan(Y)
SQUARES = (Y - B) ** 2
BEHIND = {
    "joined": pt.switch(pt.concatenate([GAP, GAP]), 0.0, pt.concatenate([SQUARES, Y * B])),
    "stacked": pt.switch(GAP, 0.0, pt.stack([SQUARES[k] for k in range(3)])),
    "indexed": pt.switch(GAP[[2, 0, 1]], 0.0, SQUARES[[2, 0, 1]]),
    "the largest": pt.switch(GAP.any(), B.sum(), pt.max(SQUARES)),
    "the largest of rows": pt.switch(GAP, 0.0, pt.max((Y[:, None] - B) ** 2, axis=1)),
    "a product of rows": pt.switch(GAP, 0.0, pt.prod(Y[:, None] - B, axis=1)),
    "a branch in a branch": pt.switch(GAP, 0.0, pt.switch(Y < 0, Y * B, pt.exp(Y * B))),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("loops", FORMS)
def test_what_moves_or_reduces_the_gap(name, loops):
    at = np.array([0.3, 0.6, -0.4])
    f = jaxify([Y, B], BEHIND[name].sum(), loops=loops)
    slope = jax.grad(f, 1)(MISSING, at)
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(jax.jacfwd(f, 1)(MISSING, at), slope, rtol=1e-12)
    e = 1e-6 * np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(slope @ e, (f(MISSING, at + e) - f(MISSING, at - e)) / 2, rtol=1e-6)
    assert np.isfinite(jax.hessian(f, 1)(MISSING, at)).all()


@pytest.mark.parametrize("loops", FORMS)
def test_a_function_that_leaves_its_loop(loops):
    W = pt.dvector("w")
    out = pytensor.scan(
        lambda wt, total: total + pt.switch(X > 0, wt * pt.log(X), 0.0),
        sequences=W,
        outputs_info=pt.zeros_like(X),
        return_updates=False,
    )
    f = jaxify([X, W], out.sum(), loops=loops)
    slopes = jax.grad(f)(np.array([1.0, 0.0, -1.0]), np.array([0.3, 0.7]))
    np.testing.assert_allclose(slopes, [1.3, 0.0, 0.0])


@pytest.mark.parametrize("loops", FORMS)
def test_a_write_at_a_mask_in_the_step_of_a_loop(loops):
    """Where its values are needed follows from a read at the mask, whose length a step may not have."""
    R = pt.dvector("r")
    out = pytensor.scan(
        lambda r, s: pt.switch(s > 0, pt.set_subtensor(s[s > r], pt.exp(r)), s[::-1]),
        sequences=R,
        outputs_info=X,
        return_updates=False,
    )
    f = jaxify([X, R], out[-1].sum(), loops=loops)
    at = np.array([0.3, -0.7, 1.1]), np.array([0.5, 0.1])
    np.testing.assert_allclose(f(*at), pytensor.function([X, R], out[-1].sum())(*at))
    check_grads(f, at, order=1, rtol=1e-6)


DIAGONAL = np.diag([0.7, 1.2])
FIRST = X[0] > 0
WHOLE = {
    "product": (pt.switch(FIRST, pt.dot(DIAGONAL, pt.sqrt(X)), 0.0), [0.0, 0.0]),
    "row of a product": (
        pt.switch([[True], [False]], pt.dot(X[:, None] * np.ones((2, 3)), pt.ones((3, 2))), 0.0),
        [6.0, 0.0],
    ),
    "rows that a product leaves out": (
        pt.switch(X[:, None] > 0, pt.dot(pt.log(X)[:, None], [[2.0, 3.0]]), 0.0),
        [0.0, 1.25],
    ),
    "all of a product": (pt.switch(X > 0, pt.dot(DIAGONAL, pt.sqrt(X)), 0.0), [np.nan, 0.3]),
    "running sum": (pt.switch(FIRST, pt.cumsum(pt.log(X)), 0.0), [0.0, 0.0]),
    "running sums along rows": (
        pt.switch(X[:, None] > 0, pt.cumsum(pt.log(X)[:, None] * np.ones((2, 3)), axis=1), 0.0),
        [0.0, 1.5],
    ),
    "softmax": (pt.switch(FIRST, pt.special.softmax(pt.log(X)), 0.0), [0.0, 0.0]),
    "solve": (pt.switch(FIRST, pt.linalg.solve(np.eye(2) + 1, pt.log(X)), 0.0), [0.0, 0.0]),
    "sorted": (pt.switch(FIRST, pt.sort(pt.log(X)), 0.0), [0.0, 0.0]),
    "diagonal": (pt.switch(FIRST, pt.diag(pt.log(X)), 0.0), [0.0, 0.0]),
    "written": (pt.switch(FIRST, pt.set_subtensor(X[1:], pt.log(X[:1])), 0.0), [0.0, 0.0]),
    "variance": (pt.switch(FIRST, pt.log(X).var(), 0.0), [0.0, 0.0]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("loops", FORMS)
@pytest.mark.parametrize("name", WHOLE)
def test_behind_what_reads_more_than_one_element(name, loops):
    """A product of matrices needs all of what one of its rows needs: docs/native_loops_in_jax.md."""
    out, expected = WHOLE[name]
    slopes = jax.grad(jaxify([X], out.sum(), loops=loops))(AT)
    np.testing.assert_allclose(slopes, expected, rtol=1e-12)


T = pt.dtensor3("t")
SECOND = np.array([True, False])
FACTORS = {
    "cholesky": pt.linalg.cholesky(T).sum(axis=(1, 2)),
    "inverse": pt.linalg.inv(T).sum(axis=(1, 2)),
    "log-determinant": pt.linalg.slogdet(T)[1],
    "singular values": pt.sqrt(pt.linalg.svd(T)[1]).sum(axis=1),
}


@pytest.mark.parametrize("loops", ["xla", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FACTORS)
def test_a_singular_matrix_of_a_batch(name, loops):
    matrices = np.stack([[[2.0, 0.5], [0.5, 1.0]], np.ones((2, 2))])
    slopes, first = (
        jax.grad(jaxify([T], out.sum(), loops=loops))(at)
        for out, at in (
            (pt.switch(SECOND, FACTORS[name], 0.0), matrices),
            (FACTORS[name], matrices[:1]),
        )
    )
    np.testing.assert_allclose(slopes, np.stack([first[0], np.zeros((2, 2))]), rtol=1e-12)


Z, S, NAN = pt.dvector("z"), pt.dscalar("s"), np.nan
OTHERS = pt.specify_broadcastable(Y, 0)
PRODUCT = pt.dot(pt.sqrt(X)[:, None] * np.ones(2), Z)
# A program, its arguments, and its slopes in those that are named.
GAPS = {
    "a slope that is 0 of what is broadcast": (
        [Y, X, FLAGS],
        pt.switch(FLAGS, OTHERS // X * X, 0.0),
        ([1.3], [1.1, 0.2, 0.7], [True, False, True]),
        {0: [0.0], 1: [1.0, 0.0, 1.0]},
    ),
    "a product behind a running sum": (
        [X, S, FLAGS],
        pt.switch(FLAGS, 0.0, pt.cumsum(pt.log(X)) * S),
        ([0.5, 0.25, -0.1], 0.5, [False, False, True]),
        {0: [2.0, 2.0, 0.0], 1: 2 * np.log(0.5) + np.log(0.25)},
    ),
    "a product behind a write": (
        [Z, X, S],
        pt.switch(pt.isnan(Z), 0.0, pt.set_subtensor((Z * X)[0], S) * S),
        ([0.5, NAN, 0.3], [0.3, 0.2, 0.5], 1.5),
        {1: [0.0, 0.0, 0.45], 2: 3.15},
    ),
    "a gap that flags tell of": (
        [Z, X, FLAGS],
        pt.switch(FLAGS, 0.0, pt.stack([(Z * X)[0], X[1]]) * X[:2]),
        ([NAN, 0.5], [0.3, 0.4], [True, False]),
        {1: [0.0, 0.8]},
    ),
    "a gap that overflows": (
        [Z, X, FLAGS],
        pt.switch(FLAGS[None, :], 0.0, pt.inc_subtensor(pt.outer(X, pt.exp(Z) * X)[:, 1], X)),
        ([INF, 0.0], [0.3, 0.5], [True, False]),
        {1: [1.5, 2.3]},
    ),
    "a product with what has no value": (
        [X, Y, S],
        pt.switch(S > 0, pt.dot(Y, pt.log(X)), 0.0),
        ([-1.0, 0.5], [1.0, 2.0], -1.0),
        {0: [0.0, 0.0], 1: [0.0, 0.0]},
    ),
    "a number as a condition": (
        [X, Z],
        pt.switch(PRODUCT, pt.switch(X > 0, PRODUCT, 1.0), 3 * X),
        ([0.25, 0.0, 4.0], [1.0, 2.0]),
        {0: [3.0, 3.0, 0.75]},
    ),
    "a condition that is a constant": (
        [X],
        pt.switch(np.zeros((2, 1), bool), pt.log(X), X * X),
        ([-1.0, 0.0, 2.0],),
        {0: [-4.0, 0.0, 8.0]},
    ),
    "shared by two switches": (
        [X, Y],
        pt.switch(X > 0, Y * pt.log(X), 1.0) + pt.switch(X > 1, Y * pt.log(X), 2.0),
        ([-1.0, 0.5], [1.0, 2.0]),
        {0: [0.0, 4.0], 1: [0.0, np.log(0.5)]},
    ),
    "a product of vectors": (
        [Z, X],
        pt.switch(pt.isnan(Z).any(), 0.0, pt.dot(Z, X)),
        ([NAN, 0.5], [0.3, 0.4]),
        {1: [0.0, 0.0]},
    ),
    "a row of a product of matrices": (
        [Z, X],
        pt.switch(pt.isnan(Z)[:, None], 0.0, pt.dot(Z[:, None] * [[1.0, 2.0]], X[:, None])),
        ([NAN, 0.5], [0.3, 0.4]),
        {1: [0.5, 1.0]},
    ),
    "a factor of a row of a batch": (
        [Z, X, FLAGS],
        pt.switch(
            FLAGS, 0.5, pt.linalg.cholesky((Z * X)[:, None, None] ** 2 * np.eye(2)).sum(axis=(1, 2))
        ),
        ([NAN, 0.5], [0.3, 0.4], [True, False]),
        {1: [0.0, 1.0]},
    ),
    "the end of a running sum": (
        [Z, X],
        pt.switch(pt.isnan(Z), 0.0, pt.cumsum(Z * X)),
        ([0.25, 0.5, NAN], [0.3, 0.4, 0.1]),
        {1: [0.5, 0.5, 0.0]},
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", [*FORMS, "numba"])
@pytest.mark.parametrize("name", GAPS)
def test_gaps_behind_what_reads_other_elements(name, form):
    inputs, out, arguments, expected = GAPS[name]
    arguments = [np.asarray(x) for x in arguments]
    how = {"backend": "numba"} if form == "numba" else {"loops": form}
    f = jaxify(inputs, out.sum(), **how)
    gradient = loopax.grad if form == "numba" else jax.grad
    for at, slope in expected.items():
        np.testing.assert_allclose(gradient(f, at)(*arguments), slope, rtol=1e-12)
    value = pytensor.function(inputs, out.sum(), mode="FAST_COMPILE")(*arguments)
    np.testing.assert_allclose(f(*arguments), value, rtol=1e-12)


@pytest.mark.parametrize("loops", FORMS)
def test_behind_complex_numbers(loops):
    out = pt.switch(X > 0, pt.real(pt.exp(1j * pt.log(X))), X).sum()
    slopes = jax.grad(jaxify([X], out, loops=loops))(np.array([1.0, 0.0, -1.0]))
    np.testing.assert_allclose(slopes, [0.0, 1.0, 1.0], atol=1e-12)


def test_real_and_complex_branches_of_one_function():
    y = 2 * pt.log(X)
    z = y * (1 + 2j)
    out = pt.real(pt.switch(FLAGS, z * z, z)) + pt.switch(FLAGS, pt.exp(y), 0.0)
    arguments = np.array([0.5, 2.0, 3.0]), np.array([True, False, True])
    xla, native = (
        jax.grad(jaxify([X, FLAGS], out.sum(), loops=loops))(*arguments) for loops in FORMS
    )
    np.testing.assert_allclose(xla, native, rtol=1e-12)


# -- what is computed --------------------------------------------------------------------------------


def nodes_of(outs):
    return [node.op for node in toposort(outs)]


def test_a_graph_without_a_switch_is_as_it_was():
    outs = [pt.log(X).sum(), pt.dot(X, Y)]
    assert guard_branches([X, Y], outs) == outs


def test_a_test_of_the_whole_guards_the_roots_alone():
    """As of the bounds of parameters around a log-density."""
    value = -(((pt.log(X) - pt.log(M)) / M) ** 2).sum() - 3 * pt.log(M)
    (out,) = guard_branches([X, M], [pt.switch(M > 0, value, -INF)])
    masked = [n.inputs[0] for n in toposort([out]) if is_elementwise(n, MaskedTangent)]
    assert len(masked) == 2 and set(masked) == {X, M}


@pytest.mark.parametrize("n", [50, 100])
def test_the_guard_grows_with_the_graph(n):
    def nested(v, k):
        return pt.switch(X > k, pt.log(v) * Y, v)

    def joined(v, _):
        return pt.log(v[::-1]) + Y[0]

    for step in nested, joined:
        out = pt.switch(Y > 0, reduce(step, range(n), X), 0.0)
        assert len(nodes_of(guard_branches([X, Y], [out]))) < 4 * len(nodes_of([out]))


FINAL, ROWS = loopax.scan(
    lambda s, x: (s + pt.sqrt(x), s * pt.log(x + 1)), pt.constant(np.float64(0)), X
)
READ_BY_CONDITIONS = {
    "itself": pt.switch(FINAL > 1, FINAL, 0.0),
    "a function of it": pt.switch(FINAL > 1, pt.log(FINAL), 0.0),
    "another row": pt.switch(pt.tanh(ROWS)[1] > 0, pt.tanh(ROWS)[1:].sum(), 0.0),
}


@pytest.mark.parametrize("name", READ_BY_CONDITIONS)
def test_a_loop_that_its_condition_reads_runs_once(name):
    f = jaxify([X], READ_BY_CONDITIONS[name], loops="xla")
    assert primitives(jax.make_jaxpr(f)(AT))["scan"] == 1
    assert np.isfinite(jax.grad(f)(np.array([1.0, 4.0]))).all()


def inner_loop(s, x):
    final, rows = loopax.scan(lambda a, b: (a + pt.sqrt(b) * x, a * pt.sqrt(b)), s, X)
    return s + pt.switch(M > 0, rows[1] + final, x), None


# A loop in a branch, whose shape the masks may read, and its derivative where it is taken.
LOOPS = {
    "the end": (pt.switch(M > 0, FINAL, 0.0), [INF, 0.25], 1),
    "a row": (pt.switch(M > 0, ROWS[1], 0.0), [INF, 0.0], 1),
    "the end and rows": (pt.switch(M > 0, ROWS[1:].sum() + FINAL, 0.0), None, 1),
    "a loop in a loop": (loopax.scan(inner_loop, pt.constant(np.float64(1)), X)[0], None, 2),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_in_a_branch_has_no_derivative_where_it_is_not_taken(name):
    out, expected, count = LOOPS[name]
    f = jaxify([X, M], out, loops="xla")
    assert primitives(jax.make_jaxpr(f)(AT, 1.0))["scan"] == count
    assert np.isfinite(jax.grad(f)(AT, -1.0)).all()
    if expected is not None:
        np.testing.assert_array_equal(jax.grad(f)(AT, 1.0), expected)


def test_no_function_is_computed_twice():
    out = pt.switch(X > 0, pt.log(X) * pt.exp(Y), 0.0).sum() + pt.exp(Y).sum()
    f = jax.jit(jaxify([X, Y], out, loops="xla"))
    text = f.lower(AT, AT).compile().as_text()
    assert text.count(" log(") == 1 and text.count(" exponential(") == 1, text


def test_a_number_that_is_broadcast_is_computed_once():
    out = pt.switch(Y > 0, Y - pt.log(M), 0.0).sum()
    jaxpr = jax.make_jaxpr(jax.grad(jaxify([Y, M], out, loops="xla"), 1))(np.ones(7), 0.2)
    sizes = [e.outvars[0].aval.size for e in equations(jaxpr) if e.primitive.name in ("log", "div")]
    assert len(sizes) >= 2 and set(sizes) == {1}, jaxpr


def test_branches_of_as_many_elements_as_a_mask_has():
    chosen = X[FLAGS]
    f = jaxify([X, FLAGS], pt.switch(chosen > 1, chosen, pt.log(chosen)).sum(), loops="xla")
    arguments = np.array([0.5, -1.0, 2.0]), np.array([True, False, True])
    np.testing.assert_allclose(jax.jit(f)(*arguments), np.log(0.5) + 2.0)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(*arguments), [2.0, 0.0, 1.0])


@pytest.mark.filterwarnings("ignore:.*on the host")
def test_a_function_of_the_host_ends_the_guard():
    """JAX has no modified Bessel function of another order than 0 and 1."""
    out = pt.switch(X > 0, pt.ive(pt.sqrt(X) + 0.5, X + 1.0), 0.0)
    f = jax.vmap(jaxify([X], out, loops="xla"))
    expected = np.array([0.0, scipy.special.ive(2.5, 5.0)])
    np.testing.assert_allclose(f(np.stack([AT, AT])), [expected, expected], rtol=1e-12)


def test_sparse_constants_beside_a_branch():
    """Their numbers are known: those that are stored, and 0."""
    matrix = sparse.as_sparse_variable(scipy.sparse.csr_matrix(DENSE))
    spread = pt.sqrt(X)[:, None] * np.ones((1, 2))
    product = sparse.dense_from_sparse(sparse.multiply(matrix, spread)).sum()
    out = pt.switch(X[0] > 0, product, 0.0)
    for loops in FORMS:
        slopes = jax.grad(jaxify([X], out, loops=loops))
        np.testing.assert_allclose(slopes(np.array([4.0, 1.0])), [0.2, 0.7])


@pytest.mark.parametrize("loops", FORMS)
def test_a_test_that_reads_the_number_of_steps_of_a_loop(loops):
    """A mask has the values of indices: the number of steps was 0 in it, and its operand was empty."""
    x = pt.dtensor3("x")
    rows = pt.prod(x, axis=2)  # its derivative has a switch
    traces = pytensor.scan(
        lambda row, all_rows: ([all_rows * row], until(row[0] > 0)),
        sequences=[rows],
        non_sequences=[rows],
        return_updates=False,
    )
    slope = pytensor.grad((traces**2).sum(), x)
    at = np.random.default_rng(1).normal(size=(3, 2, 3))
    expected = pytensor.function([x], slope, mode=FAST_COMPILE)(at)
    np.testing.assert_allclose(jaxify([x], slope, loops=loops)(at), expected, rtol=1e-12)


def test_masks_around_a_loop_in_a_step():
    """The nodes of a step are frozen: the shapes of the inner loop were refused.

    Other programs share these nodes: they have to stay as they are.
    """
    x, xs = pt.dmatrix("x"), pt.dvector("xs")

    def step(rows, _):
        inner = loopax.scan(lambda c, row: (pt.tanh(c), row), rows, rows, truncate_gradient=2)[0]
        return inner, None

    slope = pytensor.grad((loopax.scan(step, x, xs)[0] ** 2).sum(), x)
    at = np.array([[0.3, 0.0, 0.0], [0.0, -1.0, 0.5]])
    native, in_jax = (
        jaxify([x, xs], slope, **o)(at, np.zeros(2)) for o in (NUMBA, {"loops": "xla"})
    )
    np.testing.assert_allclose(in_jax, native, rtol=1e-12)
    turned = pytensor.scan(
        lambda s: (s.reshape((s.shape[1], s.shape[0])) + 1.0).reshape(s.shape),
        outputs_info=x,
        n_steps=3,
        return_updates=False,
    )
    np.testing.assert_array_equal(jaxify([x], turned, **NUMBA)(at)[-1], at + 3)


STOPPED = {
    "mean": lambda u: u.mean(),
    "its logarithm": lambda u: pt.log(u).mean(),
    "times a test": lambda u: (u * pt.gt(u, 0.5)).sum(),
    "to an integer power": lambda u: (u ** pt.floor(u).astype("int64")).sum(),
}


@pytest.mark.parametrize("name", STOPPED)
@pytest.mark.parametrize("loops", FORMS)
def test_a_loop_that_stops_in_a_branch(name, loops):
    """Operands without a derivative are no indices: a loop that they depend on is masked as well."""
    x = pt.dscalar("x")
    states = pytensor.scan(
        lambda c, x: ([c * 0.5 + pt.sqrt(x)], until(c > 100)),
        outputs_info=[pt.ones(())],
        non_sequences=[x],
        n_steps=5,
        return_updates=False,
    )
    f = jaxify([x], pt.switch(x > 0, STOPPED[name](states), 0.0), loops=loops)
    assert jax.grad(f)(0.0) == 0.0
    check_grads(f, (2.0,), 1, modes=["rev"])
