"""Rewrites of structured matrices: what they read and assume holds, or they leave the matrix alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify
from loopax.lowering.canonical.stabilize import stabilize
from tests.support.both_backends import NATIVE


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
@pytest.mark.parametrize("kind", ["sym", "her", "pos"])
def test_each_system_reads_its_triangle(kind, options):
    """Systems with the two triangles of one matrix; and one with a matrix known to be a triangle."""
    a, b = pt.matrix("a", shape=(3, 3)), pt.vector("b", shape=(3,))
    at = np.array([[4.0, 0.7, -0.2], [1.0, 5.0, 0.3], [0.5, -1.0, 6.0]])
    right = np.array([1.0, -2.0, 0.5])
    outputs = [pt.linalg.solve(a, b, assume_a=kind, lower=lower) for lower in (True, False)]
    outputs += [pt.linalg.solve(a, b, assume_a=kind, lower=True, transposed=True)]
    outputs += [pt.linalg.solve(pt.linalg.cholesky(a), b, assume_a=kind, lower=True)]
    factor = np.linalg.cholesky(at)
    low, up, known = (x + np.tril(x, -1).T for x in (np.tril(at), np.triu(at).T, factor))
    actual = jaxify([a, b], outputs, **options)(at, right)
    for x, matrix in zip(actual, [low, up, low, known], strict=True):
        np.testing.assert_allclose(x, np.linalg.solve(matrix, right), rtol=1e-12)


@pytest.mark.parametrize("lower", [True, False])
def test_a_positive_definite_complex_matrix(lower):
    a, b = pt.zmatrix("a"), pt.zvector("b")
    full = np.array([[4.0, 1 + 1j], [1 - 1j, 5.0]])
    at, right = (np.tril if lower else np.triu)(full), np.array([1.0, 2j])
    f = jaxify([a, b], pt.linalg.solve(a, b, assume_a="pos", lower=lower), loops="xla")
    np.testing.assert_allclose(f(at, right), np.linalg.solve(full, right), rtol=1e-12)


def test_what_is_known_of_a_matrix_that_is_read_whole_is_used():
    a, b = pt.matrix("a"), pt.vector("b")
    graph = FunctionGraph([a, b], [pt.linalg.solve(pt.linalg.cholesky(a), b)], clone=True)
    stabilize(graph)
    assert "SolveTriangular" in str(graph.toposort())


@pytest.mark.parametrize("loops", ["xla", pytest.param("native", marks=pytest.mark.slow)])
def test_promise_about_a_matrix_is_for_the_system_that_makes_it(loops):
    """The other system reads all of the matrix, whose triangles differ here."""
    a, b = pt.dmatrix("a"), pt.dvector("b")
    promised = pt.linalg.solve(a, b, assume_a="pos").sum()
    f = jaxify([a, b], promised + (b * pt.linalg.solve(a, b)).sum(), loops=loops)
    at, vector = np.array([[2.0, 0.9], [0.1, 1.0]]), np.array([1.0, 2.0])

    def expected(matrix):
        triangle = jnp.triu(matrix)
        mirrored = triangle + jnp.triu(matrix, 1).T
        return jnp.linalg.solve(mirrored, vector).sum() + vector @ jnp.linalg.solve(matrix, vector)

    value, slope = jax.jit(jax.value_and_grad(expected))(at)
    np.testing.assert_allclose(f(at, vector), value, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(f)(at, vector), slope, rtol=1e-10)


DIAGONALS = {
    f"diagonal {k} of {joined}, {shapes}": (joined, shapes, k)
    for joined, shapes, k in [
        ("block_diag", [(2, 2), (3, 3)], 0),
        ("block_diag", [(2, 2), (3, 3)], 1),
        ("block_diag", [(1, 2), (2, 1)], 0),
        ("kron", [(2, 2), (2, 2)], 0),
        ("kron", [(2, 2), (2, 2)], -1),
        ("kron", [(2, 3), (3, 2)], 0),
    ]
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize("case", DIAGONALS)
def test_diagonals_of_what_is_joined(case, is_declared, options):
    joined, shapes, k = DIAGONALS[case]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in shapes]
    parts = [pt.matrix(shape=shape if is_declared else (None, None)) for shape in shapes]
    f = jaxify(parts, pt.diagonal(getattr(pt.linalg, joined)(*parts), offset=k), **options)
    a, b = values
    whole = np.kron(a, b)
    if joined == "block_diag":
        whole = np.zeros(np.add(a.shape, b.shape))
        whole[: len(a), : a.shape[1]], whole[len(a) :, a.shape[1] :] = a, b
    np.testing.assert_array_equal(f(*values), np.diagonal(whole, k))


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_determinants_of_a_batch_of_blocks(n_rows, options):
    a, b = pt.dtensor3("a"), pt.dtensor3("b")
    blocks = pt.linalg.block_diag(a, b)
    outputs = [
        pt.linalg.det(blocks),
        *pt.linalg.slogdet(blocks),
        pt.log(abs(pt.linalg.det(blocks))),
    ]
    rng = np.random.default_rng(1)
    values = rng.normal(size=(n_rows, 3, 3)), rng.normal(size=(n_rows, 2, 2))
    expected = np.linalg.det(values[0]) * np.linalg.det(values[1])
    log = np.log(abs(expected))
    actual = jaxify([a, b], outputs, **options)(*values)
    for x, y in zip(actual, [expected, np.sign(expected), log, log], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)


def test_blocks_of_one_matrix_have_determinants_of_their_own():
    parts = [pt.matrix(shape=(n, n)) for n in (2, 3)]
    blocks = pt.linalg.block_diag(*parts)
    graph = FunctionGraph(parts, [pt.linalg.det(blocks), pt.diagonal(blocks)], clone=True)
    stabilize(graph)
    assert "BlockDiagonal" not in str(graph.toposort())


L = pt.linalg
A, B, SOME = pt.dmatrix("a"), pt.dmatrix("b"), pt.dvector("some")
SQUARE, SQUARE_TOO = (pt.matrix(shape=(3, 3)) for _ in range(2))
Q, R = L.qr(SQUARE)
NEGATIVE = -0.7 * L.cholesky(SQUARE_TOO)
WITHOUT_REWRITES = Mode(linker="py", optimizer=None)
# Of a general matrix, a positive definite one and a vector. Without a condition PyTensor's rewrite takes
# each for something else.
STRUCTURED = {
    "cho_solve with an inverse": L.cho_solve((L.inv(L.cholesky(B)), True), SOME),
    "triangular system with an inverse": L.solve_triangular(L.inv(A), SOME, lower=True),
    "positive definite system with an inverse": L.solve(L.inv(A), SOME, assume_a="pos"),
    "triangular system with an orthogonal matrix": L.solve_triangular(Q, SOME, lower=False),
    "factor of R.T R": L.cholesky(R.T @ R),
    "upper factor of R.T R": L.cholesky(R.T @ R, lower=False),
    "factor of a negative factor's product": L.cholesky(NEGATIVE @ NEGATIVE.T),
    "factor of a long triangle's product": L.cholesky(pt.tril(A[:2]) @ pt.tril(A[:2]).T),
    "inverse of generalized eigenvectors": abs(L.inv(L.eigh(B, B + A.T @ A)[1])),
    "pinv of a pinv, by one triangle": L.pinv(L.pinv(A), hermitian=True),
    "pinv of a diagonal with a zero": L.pinv(pt.diag(SOME * [0.0, 1.0, 2.0])),
    "qr of a diagonal with a zero": L.qr(pt.diag(SOME * [0.0, 1.0, 2.0]))[0],
    "inverse beside a promise": L.inv(A) @ (A + 1) + L.solve(A, SOME, assume_a="pos"),
    "eigenvalues beside a promise": abs(L.eig(A)[0]) + L.solve(A, SOME, assume_a="sym"),
    "singular values beside a promise": L.svd(A, compute_uv=False)
    + L.solve(A, SOME, assume_a="sym"),
}


@pytest.mark.filterwarnings("ignore:(?s).*has no JAX conversion")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
@pytest.mark.parametrize("case", STRUCTURED)
def test_a_structure_that_is_not_there(case, options):
    rng = np.random.default_rng(2)
    general = 0.3 * rng.normal(size=(3, 3)) + 2 * np.eye(3)
    values = {A: general, SQUARE: general, SOME: rng.normal(size=3)}
    values[B] = values[SQUARE_TOO] = general @ general.T + np.eye(3)
    out = STRUCTURED[case]
    inputs = [v for v in values if v in set(pytensor.graph.traversal.graph_inputs([out]))]
    args = [values[v] for v in inputs]
    expected = pytensor.function(inputs, out, mode=WITHOUT_REWRITES)(*args)
    np.testing.assert_allclose(
        jaxify(inputs, out, **options)(*args), expected, rtol=1e-8, atol=1e-12
    )


@pytest.mark.parametrize("options", [{"loops": "xla"}, {"backend": NATIVE}])
def test_factor_of_the_product_of_a_singular_triangle(options):
    x = pt.matrix(shape=(2, 2))
    f = jaxify([x], L.cholesky(pt.tril(x) @ pt.tril(x).T), **options)
    assert np.isnan(f(np.array([[0.0, 0.0], [1.0, 1.0]]))).any()


def test_a_factor_of_a_factor_is_not_computed_again():
    factor = L.cholesky(A)
    graph = FunctionGraph([A], [L.cholesky(factor @ factor.T)], clone=True)
    stabilize(graph)
    assert len(graph.apply_nodes) == 1
