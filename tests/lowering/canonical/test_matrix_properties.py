"""What is inferred about a matrix holds for its values."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify
from loopax.lowering.canonical.matrix_properties import infer_sound_properties
from tests.support.forms import without_numba

MATRIX = np.array([[1.0, 0.3, -0.2], [0.5, 2.0, 0.7], [-0.1, 0.4, 1.5]])


def diagonal_index(*axes):
    """Zeros of three axes, and the index of a diagonal of two of them."""
    entries = [slice(None)] * 3
    for axis in axes:
        entries[axis] = np.arange(3)
    return np.zeros((3, 3, 3)), tuple(entries)


@without_numba
@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 2)])
def test_a_diagonal_is_one_of_the_last_two_axes(axes, form):
    w = pt.dmatrix("w", shape=(3, 3))
    zeros, entries = diagonal_index(*axes)
    x = pt.set_subtensor(pt.zeros((3, 3, 3))[entries], w) + 2 * pt.eye(3)
    y = pt.set_subtensor(pt.zeros((3, 3, 3))[entries], w)
    outputs = [pt.linalg.inv(x), pt.linalg.cholesky(y @ y.mT + pt.eye(3)), pt.linalg.solve(x, w)]
    outputs += [pt.linalg.det(x), y @ w]
    zeros[entries] = MATRIX
    full = zeros + 2 * np.eye(3)
    expected = [np.linalg.inv(full), np.linalg.cholesky(zeros @ zeros.mT + np.eye(3))]
    expected += [np.linalg.solve(full, np.stack([MATRIX] * 3)), np.linalg.det(full)]
    expected += [zeros @ MATRIX]
    for actual, value in zip(jaxify([w], outputs, **form)(MATRIX), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-10, atol=1e-12)


@without_numba
@pytest.mark.parametrize("join", [pt.linalg.block_diag, pt.linalg.kron], ids=["blocks", "kron"])
def test_rectangles_do_not_make_a_diagonal(join, form):
    """The whole is square, and its two parts are not."""
    w = pt.dmatrix("w", shape=(3, 3))
    high, wide = pt.eye(3, 2) * w[:, :2], pt.eye(2, 3) * w[:2]
    x = join(high, wide)
    n = 5 if join is pt.linalg.block_diag else 6
    outputs = [pt.linalg.inv(x + 3 * pt.eye(n)), pt.linalg.cholesky(x @ x.T + pt.eye(n))]
    outputs += [x @ pt.arange(float(n)), pt.linalg.pinv(x)]
    a, b = np.eye(3, 2) * MATRIX[:, :2], np.eye(2, 3) * MATRIX[:2]
    full = np.kron(a, b)
    if join is pt.linalg.block_diag:
        full = np.block([[a, np.zeros((3, 3))], [np.zeros((2, 2)), b]])
    expected = [np.linalg.inv(full + 3 * np.eye(n)), np.linalg.cholesky(full @ full.T + np.eye(n))]
    expected += [full @ np.arange(float(n)), np.linalg.pinv(full)]
    for actual, value in zip(jaxify([w], outputs, **form)(MATRIX), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-10, atol=1e-12)


@without_numba
def test_the_imaginary_part_of_a_hermitian_matrix_is_not_symmetric(form):
    w = pt.dmatrix("w", shape=(3, 3))
    z = w + 1j * w.T @ w
    x = pt.imag(z @ z.conj().T)
    f = jaxify([w], [pt.linalg.eig(x)[0], pt.linalg.solve(x + pt.eye(3), w[0])], **form)
    at = MATRIX + 1j * MATRIX.T @ MATRIX
    full = np.imag(at @ at.conj().T)
    eigenvalues, solution = f(MATRIX)
    np.testing.assert_allclose(
        np.sort(eigenvalues.imag), np.sort(np.linalg.eigvals(full).imag), atol=1e-12
    )
    np.testing.assert_allclose(solution, np.linalg.solve(full + np.eye(3), MATRIX[0]), rtol=1e-12)


@without_numba
def test_a_hermitian_system_is_not_a_symmetric_one(form):
    z, b = pt.zmatrix("z", shape=(3, 3)), pt.dvector("b", shape=(3,))
    x = z @ z.conj().T
    outputs = [pt.linalg.solve(x + 4 * pt.eye(3), b), pt.linalg.solve(pt.exp(x), b)]
    outputs += [pt.linalg.solve(x, b), pt.linalg.inv(x * x) @ b, pt.linalg.solve(z @ z.T, b)]
    at = MATRIX + 1j * MATRIX.T @ MATRIX / 4
    full = at @ at.conj().T
    matrices = [full + 4 * np.eye(3), np.exp(full), full, full * full, at @ at.T]
    actual = jaxify([z, b], outputs, **form)(at, MATRIX[0])
    for solution, matrix in zip(actual, matrices, strict=True):
        np.testing.assert_allclose(solution, np.linalg.solve(matrix, MATRIX[0]), rtol=1e-8)


def test_what_holds_is_inferred():
    """Of batches of matrices too; and a copy of the graph infers the same."""
    diagonal_key = pytest.importorskip("pytensor.assumptions").DIAGONAL  # from 3.0.7 on
    v, w = pt.dvector("v", shape=(3,)), pt.dmatrix("w", shape=(3, 3))
    i = pt.arange(3)
    diagonal = [pt.set_subtensor(pt.zeros((3, 3))[i, i], v), pt.linalg.kron(pt.diag(v), pt.eye(3))]
    diagonal += [pt.set_subtensor(pt.zeros((3, 3, 3))[:, i, i], w)]
    other = [pt.set_subtensor(pt.zeros((3, 3, 3))[i, i], w)]
    graph = FunctionGraph([v, w], [*diagonal, *other], clone=True)
    infer_sound_properties(graph)
    for fgraph in (graph, graph.clone()):
        holds = [fgraph.assumption_feature.check(x, diagonal_key) for x in fgraph.outputs]
        assert holds == [True, True, True, False]
