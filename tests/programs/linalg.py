"""Linear algebra and its gradients, batched by Blockwise and not."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor import linalg as la

from .record import program

A = np.array([[2.0, 0.3, -0.1], [0.4, 1.5, 0.2], [0.1, -0.3, 1.8]])
S = A @ A.T
B = np.array([0.5, -1.0, 2.0])
M = np.array([[1.0, 0.5], [0.2, -1.0], [0.7, 0.3]])
BATCH = np.stack([S, S + np.eye(3)])


def symmetric(s):
    """Of the gradient of a Cholesky factor only the symmetric part means anything: the releases
    and JAX put the rest into different triangles."""
    return 0.5 * (s + s.swapaxes(-1, -2))


@program(S, thread="pymc 7088", grad_wrt=("s",), batch=("s",))
def cholesky():
    s = pt.matrix("s")
    return [s], la.cholesky(s + s.T)


@program(A, B, thread="pymc-extras 332", grad_wrt=("a", "b"))
def solve():
    a, b = pt.matrix("a"), pt.vector("b")
    return [a, b], la.solve(a, b)


@program(A, M, thread="pymc-extras 332", grad_wrt=("a", "m"))
def solve_triangular_both_ways():
    a, m = pt.matrix("a"), pt.matrix("m")
    return [a, m], [
        la.solve_triangular(a, m, lower=True),
        la.solve_triangular(a, m, lower=False),
        la.solve_triangular(pt.tril(a), m, lower=True, trans="T"),
    ]


@program(A, thread="pytensor 1637", grad_wrt=("a",), batch=("a",))
def inverse_and_determinant():
    a = pt.matrix("a")
    return [a], [la.inv(a), la.det(a), pt.log(pt.abs(la.det(a)))]


@program(A, thread="pytensor 466", grad_wrt=("a",))
def sign_and_log_determinant():
    a = pt.matrix("a")
    sign, logdet = la.slogdet(a)
    return [a], [sign, logdet]


@program(S, thread="pytensor 651", grad_wrt=("s",), grad_rtol=1e-7)
def eigenvalues_of_a_symmetric():
    s = pt.matrix("s")
    w, v = la.eigh(s + s.T)
    return [s], [w, (v * pt.exp(-w)) @ v.T]


@program(M, thread="pytensor 466")
def qr_and_svd():
    m = pt.matrix("m")
    q, r = la.qr(m)
    u, d, vt = la.svd(m, full_matrices=False)
    return [m], [q @ r, pt.abs(pt.diagonal(r)), d, (u * d) @ vt]


@program(M, thread="pytensor 466", grad_wrt=("m",), expected_grads=lambda w, m: 2.0 * w[0] * m)
def gradient_of_qr():
    """r.T @ r is m.T @ m. PyTensor 3.0 cannot differentiate qr at all."""
    m = pt.matrix("m")
    return [m], (la.qr(m)[1] ** 2).sum()


@program(M, thread="pytensor 466")
def gradient_of_singular_values():
    m = pt.matrix("m")
    return [m], pt.grad(la.svd(m, full_matrices=False, compute_uv=False).sum(), m)


@program(M, thread="pymc 7088", grad_wrt=("m",), grad_rtol=1e-7)
def pseudo_inverse():
    m = pt.matrix("m")
    return [m], la.pinv(m)


@program(A / 3.0, thread="pymc 7088", grad_wrt=("a",), grad_rtol=1e-7)
def exponential_and_powers():
    a = pt.matrix("a")
    return [a], [la.expm(a), la.matrix_power(a, 3), la.norm(a, ord="fro"), pt.trace(a)]


@program(A, M, thread="pytensor 1155", grad_wrt=("a", "m"))
def kronecker_and_block_diagonal():
    a, m = pt.matrix("a"), pt.matrix("m")
    return [a, m], [la.kron(a, m), la.block_diag(a, m)]


@program(S, B, thread="pymc 7088", grad_wrt=("s", "b"))
def log_density_of_a_normal():
    """Multivariate normal through a Cholesky factor, as pymc writes it."""
    s, b = pt.matrix("s"), pt.vector("b")
    factor = la.cholesky(symmetric(s))
    white = la.solve_triangular(factor, b, lower=True)
    return [s, b], -0.5 * (white**2).sum() - pt.log(pt.diag(factor)).sum()


@program(S, B, thread="pytensor 1669")
def gradient_of_a_log_density():
    """The same, but with PyTensor's gradient as the program."""
    s, b = pt.matrix("s"), pt.vector("b")
    factor = la.cholesky(s)
    logp = -0.5 * (la.solve_triangular(factor, b, lower=True) ** 2).sum()
    return [s, b], pt.grad(logp - pt.log(pt.diag(factor)).sum(), [s, b])


@program(BATCH, np.stack([B, 2.0 * B]), thread="pytensor 306", grad_wrt=("s", "b"))
def batched_solve_and_cholesky():
    s, b = pt.tensor3("s"), pt.matrix("b")
    return [s, b], [la.solve(s, b, b_ndim=1), la.cholesky(symmetric(s)), la.det(s), la.inv(s).sum()]


@program(BATCH, B, thread="pytensor 1482", grad_wrt=("batch",))
def vectorized_log_density():
    """A graph for one matrix, turned into one for many."""
    s, b, batch = pt.matrix("s"), pt.vector("b"), pt.tensor3("batch")
    factor = la.cholesky(symmetric(s))
    logp = -0.5 * (la.solve_triangular(factor, b, lower=True) ** 2).sum()
    return [batch, b], vectorize_graph(logp - pt.log(pt.diag(factor)).sum(), {s: batch})


@program(S, B, thread="pytensor 466", grad_wrt=("s", "b"))
def solve_with_known_structure():
    s, b = pt.matrix("s"), pt.vector("b")
    t = symmetric(s)
    return [s, b], [la.solve(t, b, assume_a="pos"), la.cho_solve((la.cholesky(t), True), b)]


@program(A / 4.0, S, thread="pymc-extras 552", grad_wrt=("a", "q"))
def discrete_lyapunov():
    a, q = pt.matrix("a"), pt.matrix("q")
    return [a, q], la.solve_discrete_lyapunov(a, q, method="bilinear")
