"""Linear algebra: written out, by loops, by LAPACK, and repeated over leading axes."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.linalg
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor, PivotToPermutations
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet

from loopax import jaxify
from loopax.numba_backend.callable.program import emitted
from tests.numba_backend.agreement import assert_agrees
from tests.numba_backend.interpreted import interpreted, lowered

rng = np.random.default_rng(0)


def everything(A, v, B):
    factors, pivots = LUFactor()(A)
    actual = [Det()(A), *SLogDet()(A), factors, pivots]
    actual += [PivotToPermutations(inverse=inverse)(pivots) for inverse in (True, False)]
    for lower in (True, False):
        actual.append(Cholesky(lower=lower)(A))
        for b in (v, B):
            actual += [
                Solve(b_ndim=b.ndim, lower=lower, assume_a=a)(A, b) for a in ("gen", "sym", "pos")
            ]
            actual.append(CholeskySolve(b_ndim=b.ndim, lower=lower)(A, b))
            actual += [
                SolveTriangular(b_ndim=b.ndim, lower=lower, unit_diagonal=unit)(A, b)
                for unit in (True, False)
            ]
    return actual


def matrices(n, dtype):
    return (
        pt.tensor("A", shape=(n, n), dtype=dtype),
        pt.tensor("v", shape=(n,), dtype=dtype),
        pt.tensor("B", shape=(n, 2), dtype=dtype),
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("n", "dtype"),
    [
        (0, "float64"),
        (1, "float64"),
        (2, "float64"),
        (3, "float32"),
        (4, "float64"),
        (6, "float64"),
    ],
)
def test_every_op(n, dtype):
    inputs = matrices(n, dtype)
    M = rng.normal(size=(n, n))
    S = M @ M.T + np.eye(n)
    sides = [rng.normal(size=n), rng.normal(size=(n, 2))]
    # A matrix that is not symmetric: an op that reads one triangle must not read the other.
    half = S / 2 + np.diag(np.diag(S)) / 2
    one_triangle = [
        [np.tril(S) + np.triu(half, 1), *sides],
        [np.triu(S) + np.tril(half, -1), *sides],
    ]
    options = {"rtol": 1e-9 if dtype == "float64" else 1e-3, "native": False}
    assert_agrees(inputs, everything(*inputs), [S, *sides], *one_triangle, **options)
    inverse = MatrixInverse()(inputs[0])
    assert_agrees(inputs[:1], [inverse], [S], [M + 3 * np.eye(n)], **options)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_row_exchanges_and_triangles(n):
    A, v, B = matrices(n, "float64")
    M = rng.normal(size=(n, n))
    factors, pivots = LUFactor()(A)
    outputs = [
        factors, pivots, PivotToPermutations(inverse=True)(pivots), Det()(A), *SLogDet()(A),
        Solve(b_ndim=1)(A, v), Solve(b_ndim=2)(A, B), MatrixInverse()(A),
        *(Solve(b_ndim=1, lower=lower, assume_a="sym")(A, v) for lower in (True, False)),
        *(SolveTriangular(b_ndim=1, lower=lower)(A, v) for lower in (True, False)),
    ]  # fmt: skip
    turned = np.roll(np.diag(np.arange(1.0, n + 1)), 1, axis=0) + 0.01 * M  # every row moves
    cases = [[m, rng.normal(size=n), rng.normal(size=(n, 2))] for m in (M, turned)]
    assert_agrees([A, v, B], outputs, *cases, rtol=1e-8, native=False)


@pytest.mark.slow
@pytest.mark.both_stacks  # PyTensor's conversion, which returns pivots that nobody has written (3.3.8)
def test_pivots_of_a_matrix_that_may_not_be_square():
    A = pt.dmatrix("A")
    factor = jaxify([A], list(pt.linalg.lu_factor(A)), backend="numba")
    for shape in [(3, 5), (3, 3), (3, 2)]:
        values = rng.normal(size=shape)
        for actual, expected in zip(factor(values), scipy.linalg.lu_factor(values), strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 5])
def test_what_has_no_answer(n):
    """nan from solves and factorizations, an error from the inverse: as PyTensor's Numba mode has it."""
    A, v, _ = matrices(n, "float64")
    zero = np.zeros((n, n))
    solves = [Solve(b_ndim=1, assume_a=a)(A, v) for a in ("gen", "sym", "pos")]
    run = interpreted(lowered([A, v], [*solves, Cholesky()(A), SolveTriangular(b_ndim=1)(A, v)]))
    assert all(np.isnan(x).all() for x in run(zero, np.ones(n)))
    assert_agrees(
        [A], [Det()(A), *SLogDet()(A), *LUFactor()(A)], [zero], [-np.eye(n)], native=False
    )
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        interpreted(lowered([A], [MatrixInverse()(A)]))(zero)
    indefinite = np.eye(n) - 2.0
    assert np.isnan(interpreted(lowered([A], [Cholesky()(A)]))(indefinite)[0]).all()


def test_over_leading_axes():
    """The core shape comes from the inputs, from the type, or from the first result."""
    A, T = pt.tensor("A", shape=(3, 3)), pt.tensor("T", shape=(None, 3, 3))
    i = pt.lmatrix("i")
    S = A @ A.T + T @ T.mT + pt.eye(3)
    outputs = [
        pt.linalg.inv(S),
        pt.linalg.det(S),
        pt.linalg.cholesky(S),
        pt.linalg.solve(S, T),
        T @ A,
        pt.vectorize(lambda x, k: x[k], signature="(n),(m)->(m)")(A, i),
        pt.vectorize(pt.diag, signature="(n)->(n,n)")(A),
        pt.vectorize(pt.sort, signature="(n)->(n)")(T[:, 0]),
    ]
    case = [rng.normal(size=(3, 3)), rng.normal(size=(2, 3, 3)), rng.integers(-3, 3, (3, 2))]
    assert_agrees([A, T, i], outputs, case, rtol=1e-9, native=False)
    none = interpreted(lowered([A, T], outputs[:5]))(case[0], case[1][:0])
    assert [x.shape for x in none] == [(0, 3, 3), (0,), (0, 3, 3), (0, 3, 3), (0, 3, 3)]


@pytest.mark.parametrize("n", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_compiled(n):
    A, v = pt.tensor("A", shape=(n, n)), pt.tensor("v", shape=(n,))
    M = rng.normal(size=(n, n))
    S = M @ M.T + np.eye(n)
    outputs = [pt.linalg.inv(A), pt.linalg.det(A), pt.linalg.cholesky(A)]
    outputs += [pt.linalg.solve(A, v, b_ndim=1, assume_a=a) for a in ("gen", "pos")]
    assert_agrees([A, v], outputs, [S, M[0]], rtol=1e-9)


def by_steps(A, xs):
    def step(x, state, A):
        S = A @ A.T + pt.outer(state, state) + pt.eye(A.shape[0])
        new = pt.linalg.solve(S, x, b_ndim=1)
        return new, pt.linalg.slogdet(S)[1] + pt.linalg.cholesky(S)[0, 0]

    return pytensor.scan(step, [xs], [xs[0], None], [A], return_updates=False)


@pytest.mark.parametrize("n", [3, 40])
def test_sizes_that_only_a_step_knows(n):
    """Inside of a loop over steps the program, or the function it calls, chooses loops or LAPACK."""
    A, xs = pt.dmatrix("A"), pt.dmatrix("xs")
    outputs = list(by_steps(A, xs))
    graph = lowered([A, xs], outputs)
    source = str(emitted(graph, {}, True).source)
    assert source.count("<= 32:") == 2
    assert source.count("large_cholesky(") == 1
    assert_agrees(
        [A, xs],
        outputs,
        [rng.normal(size=(n, n)), rng.normal(size=(4, n))],
        rtol=1e-8,
        native=False,
    )


@pytest.mark.parametrize("n", [40, None])
def test_large_factors_and_solves_call_no_conversion(n):
    """Those of PyTensor copy their operands, and compile for longer."""
    A, v = pt.tensor("A", shape=(n, n)), pt.tensor("v", shape=(n,))
    factor = pt.linalg.cholesky(A)
    outputs = [
        pt.linalg.solve_triangular(factor, v, lower=True, b_ndim=1),
        pt.linalg.cho_solve((factor, True), v, b_ndim=1),
        pt.linalg.solve(A, v, assume_a="pos", b_ndim=1),
    ]
    source = str(emitted(lowered([A, v], outputs), {}, True).source)
    names = ("large_cholesky(", "large_triangular_solve(", "large_transposed_solve(")
    assert [source.count(name) for name in names] == [2, 3, 2]
    assert "opaque" not in source and "copy()" not in source


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [20, 40])
def test_a_solve_with_a_transpose_copies_no_matrix(n, lower):
    A, B = pt.tensor("A", shape=(n, n)), pt.tensor("B", shape=(n, 2))
    outputs = [
        pt.linalg.solve_triangular(A.T, B, lower=lower),
        pt.linalg.solve_triangular(A.T, B, lower=lower, unit_diagonal=True),
        pt.linalg.cho_solve((A.T, lower), B),
    ]
    source = str(emitted(lowered([A, B], outputs), {}, True).source)
    assert source.count("transposed_solve(") == 3
    assert source.count("triangular_solve(") == 1
    a = np.eye(n) * 4 + rng.normal(size=(n, n)) / 4
    assert_agrees([A, B], outputs, [a, rng.normal(size=(n, 2))], rtol=1e-8, native=n == 20)


@pytest.mark.slow
def test_sizes_that_only_a_step_knows_compiled():
    A, xs = pt.dmatrix("A"), pt.dmatrix("xs")
    cases = [[rng.normal(size=(n, n)), rng.normal(size=(4, n))] for n in (3, 12, 40)]
    assert_agrees([A, xs], list(by_steps(A, xs)), *cases, rtol=1e-8)


@pytest.mark.parametrize("static", [True, False])
def test_shapes_that_do_not_fit(static):
    A = pt.tensor("A", shape=(2, 2) if static else (None, None))
    v = pt.tensor("v", shape=(3,) if static else (None,))
    R = pt.tensor("R", shape=(2, 3) if static else (None, None))
    for inputs, out, match in [
        ([A, v], SolveTriangular(b_ndim=1)(A, v), "dimension|incompatible|mismatch"),
        ([A, v], Solve(b_ndim=1)(A, v), "dimension|incompatible|mismatch"),
        ([R], MatrixInverse()(R), "square"),
        ([R], Cholesky()(R), "square"),
    ]:
        run = interpreted(lowered(inputs, [out]))
        values = {A: np.eye(2), v: np.ones(3), R: np.ones((2, 3))}
        with pytest.raises(ValueError, match=match):
            run(*[values[x] for x in inputs])
