"""What people build of it: time series, filters, state spaces, kernels, small networks."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor import linalg as la

from .record import program, scan

Y = np.array([0.5, -1.0, 1.2, 0.25, -0.4, 0.9])
XS = np.linspace(-1.0, 1.0, 10).reshape(5, 2)


@program(Y, 0.1, 0.2, 0.7, thread="pytensor 2024", grad_wrt=("omega", "alpha", "beta"))
def garch_log_likelihood():
    y = pt.vector("y")
    omega, alpha, beta = pt.scalars("omega", "alpha", "beta")
    var = scan(
        lambda y_t, v, omega, alpha, beta: omega + alpha * y_t**2 + beta * v,
        sequences=y[:-1],
        outputs_info=pt.var(y),
        non_sequences=[omega, alpha, beta],
    )
    return [y, omega, alpha, beta], (-0.5 * (pt.log(var) + y[1:] ** 2 / var)).sum()


@program(Y, [0.5, -0.2], 0.8, thread="pymc 4142", grad_wrt=("rho", "sigma"), hessian_wrt="rho")
def autoregression_log_likelihood():
    y, rho, sigma = pt.vector("y"), pt.vector("rho"), pt.scalar("sigma")
    mu = scan(
        lambda y1, y2, rho: rho[0] * y1 + rho[1] * y2,
        sequences={"input": y, "taps": [-1, -2]},
        non_sequences=rho,
    )
    mean = mu[: y.shape[0] - 2]
    return [y, rho, sigma], (-0.5 * ((y[2:] - mean) / sigma) ** 2 - pt.log(sigma)).sum()


@program(Y, 0.3, thread="pymc 6284", grad_wrt=("y", "alpha"))
def exponential_smoothing():
    y, alpha = pt.vector("y"), pt.scalar("alpha")
    level, error = scan(
        lambda y_t, level, alpha: (level + alpha * (y_t - level), y_t - level),
        sequences=y,
        outputs_info=[y[0], None],
        non_sequences=alpha,
    )
    return [y, alpha], [level, (error**2).sum()]


@program(Y, [0.9, 0.2], 0.3, 0.5, thread="pymc-extras 332", grad_wrt=("phi", "q", "r"))
def kalman_filter():
    """Local level and a lag: predict, gain by solve, update; the log-likelihood summed."""
    y, phi = pt.vector("y"), pt.vector("phi")
    q, r = pt.scalars("q", "r")
    trans = pt.stack([phi, pt.as_tensor(np.array([1.0, 0.0]))])
    design = np.array([[1.0, 0.0]])

    def step(y_t, m, p, trans, q, r):
        m, p = trans @ m, trans @ p @ trans.T + q * pt.eye(2)
        s = design @ p @ design.T + r
        gain = la.solve(s, design @ p).T
        miss = y_t - design @ m
        ll = -0.5 * (pt.log(la.det(s)) + miss @ la.solve(s, miss))
        return m + gain @ miss, p - gain @ design @ p, ll

    *_, ll = scan(
        step, sequences=y, outputs_info=[pt.zeros(2), pt.eye(2), None], non_sequences=[trans, q, r]
    )
    return [y, phi, q, r], ll.sum()


@program([0, 1, 1, 0, 2], [[0.8, 0.2], [0.3, 0.7]], thread="pymc 7380", grad_wrt=("trans",))
def hidden_markov_forward():
    obs, trans = pt.lvector("obs"), pt.matrix("trans")
    log_emit = np.log(np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]]))
    start = pt.log(pt.constant(np.array([0.5, 0.5]))) + log_emit[:, 0]

    def step(o, alpha, log_trans, log_emit):
        return pt.logsumexp(alpha[:, None] + log_trans, axis=0) + log_emit[:, o]

    alpha = scan(
        step,
        sequences=obs[1:],
        outputs_info=start,
        non_sequences=[pt.log(trans), pt.as_tensor(log_emit)],
    )
    return [obs, trans], pt.logsumexp(alpha[-1])


@program([1.0, 0.5], 0.4, 0.1, 5, thread="pymc 6284", static=("n",), grad_wrt=("y0", "k", "h"))
def runge_kutta():
    y0, k, h, n = pt.vector("y0"), pt.scalar("k"), pt.scalar("h"), pt.lscalar("n")

    def rhs(y):
        return pt.stack([y[1], -k * y[0] - 0.1 * y[1] * y[0] ** 2])

    def step(y):
        k1 = rhs(y)
        k2 = rhs(y + 0.5 * h * k1)
        k3 = rhs(y + 0.5 * h * k2)
        k4 = rhs(y + h * k3)
        return y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    return [y0, k, h, n], scan(step, outputs_info=y0, n_steps=n)


@program([0.99, 0.01, 0.0], 0.8, 0.3, thread="pymc 5989", grad_wrt=("beta", "gamma"))
def epidemic_by_euler():
    y0, beta, gamma = pt.vector("y0"), pt.scalar("beta"), pt.scalar("gamma")

    def step(t, s, i, r, beta, gamma):
        new, gone = beta * s * i, gamma * i
        return s - new, i + new - gone, r + gone

    s, i, r = scan(
        step,
        sequences=pt.arange(6),
        outputs_info=[y0[0], y0[1], y0[2]],
        non_sequences=[beta, gamma],
    )
    return [y0, beta, gamma], [i, (s + i + r).sum()]


@program(XS, np.arange(12.0).reshape(2, 6) / 10.0, thread="Theano 4652", grad_wrt=("x", "w"))
def gated_recurrent_unit():
    x, w = pt.matrix("x"), pt.matrix("w")

    def step(x_t, h, w):
        z = pt.sigmoid(x_t @ w[:, :2] + h)
        c = pt.tanh(x_t @ w[:, 2:4] + (h * z) @ w[:, 4:])
        return (1.0 - z) * h + z * c

    return [x, w], scan(step, sequences=x, outputs_info=pt.zeros(2), non_sequences=w)


@program(XS, 0.7, 1.3, thread="pymc 7088", grad_wrt=("x", "length", "eta"))
def gaussian_process_kernel():
    """The squared distance, rounded below zero on the diagonal, meets a clip."""
    x, length, eta = pt.matrix("x"), pt.scalar("length"), pt.scalar("eta")
    z = x / length
    sq = (z**2).sum(axis=1)
    d = pt.clip(sq[:, None] + sq[None, :] - 2.0 * z @ z.T, 0.0, np.inf)
    k = eta**2 * pt.exp(-0.5 * d) + 1e-3 * pt.eye(x.shape[0])
    factor = la.cholesky(k)
    white = la.solve_triangular(factor, x[:, 0], lower=True)
    return [x, length, eta], -0.5 * (white**2).sum() - pt.log(pt.diag(factor)).sum()


@program(XS * 3.3, 0.7, thread="tinygp 115", grad_wrt=("length",))
def matern_kernel():
    """A square root of the clipped distance: its gradient at zero distance must not be nan."""
    x, length = pt.matrix("x"), pt.scalar("length")
    d = pt.clip(((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=-1), 0.0, np.inf)
    r = pt.sqrt(3.0 * (d + 1e-12)) / length
    return [x, length], ((1.0 + r) * pt.exp(-r)).sum(axis=0)


@program(
    XS, [0.3, -0.4], 0.1, [0, 1, 1, 0, 1], thread="pymc 4142", grad_wrt=("w", "b"), hessian_wrt="w"
)
def logistic_regression():
    x, w, b, y = pt.matrix("x"), pt.vector("w"), pt.scalar("b"), pt.lvector("y")
    eta = x @ w + b
    return [x, w, b, y], (y * pt.log(pt.sigmoid(eta)) + (1 - y) * pt.log(1 - pt.sigmoid(eta))).sum()


@program(Y, [0.3, 0.7], [-1.0, 1.0], thread="pymc 6529", grad_wrt=("w", "mu"))
def mixture_log_likelihood():
    y, w, mu = pt.vector("y"), pt.vector("w"), pt.vector("mu")
    parts = pt.log(w / w.sum()) - 0.5 * (y[:, None] - mu[None, :]) ** 2
    return [y, w, mu], pt.logsumexp(parts, axis=1).sum()


@program([0.3, -0.4, 0.2], thread="pymc 5927", grad_wrt=("z",))
def simplex_and_ordered_transforms():
    z = pt.vector("z")
    full = pt.concatenate([z, -pt.sum(z, axis=-1, keepdims=True)])
    ordered = pt.cumsum(pt.set_subtensor(z[1:], pt.exp(z[1:])))
    return [z], [pt.special.softmax(full, axis=-1), ordered, pt.log(pt.exp(z).sum())]


@program(np.array([0.2, -0.3, 0.5, 0.1, 0.4, -0.2]), thread="pymc 7380", grad_wrt=("z",))
def packed_triangle():
    """A vector unpacked into a lower triangle, its side computed from its length."""
    z = pt.vector("z")
    n = pt.cast((pt.sqrt(8.0 * z.shape[0] + 1.0) - 1.0) / 2.0, "int64")
    rows, cols = np.tril_indices(3)
    low = pt.zeros((n, n))[rows, cols].set(z)
    return [z], low @ low.T


@program(Y, 3, thread="pymc-extras 394", static=("lags",), grad_wrt=("y",))
def lag_matrix():
    y, lags = pt.vector("y"), pt.lscalar("lags")
    rows = y.shape[0] - lags
    columns = scan(
        lambda k, y, rows: y[k + pt.arange(rows)], pt.arange(lags), non_sequences=[y, rows]
    )
    return [y, lags], columns.T @ columns


@program(Y, thread="pymc 6718")
def deterministic_part_of_a_latent_walk():
    """Innovations scaled by a shared value and summed up in a loop, as `pm.CustomDist` does."""
    scale = pytensor.shared(np.float64(0.5), name="scale")
    y = pt.vector("y")
    walk = scan(lambda e, s: s + scale * e, sequences=y, outputs_info=pt.zeros(()))
    return [y], [walk, pt.grad((walk**2).sum(), y)]
