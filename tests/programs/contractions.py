"""Products of tensors, convolutions, sorting and searching."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.signal import convolve1d

from .record import program

X5 = np.array([0.5, -1.0, 2.0, 0.25, 1.5])
M23 = np.array([[0.5, 1.0, -0.5], [2.0, 0.1, 0.7]])
T234 = np.linspace(-1.0, 1.0, 24).reshape(2, 3, 4)


@program(M23, T234, thread="aesara 343", grad_wrt=("m", "t"))
def einsum():
    m, t = pt.matrix("m"), pt.tensor3("t")
    return [m, t], [
        pt.einsum("bi,bij->bj", m, t),
        pt.einsum("bij,cij->bc", t, t),
        pt.einsum("bi->", m),
        pt.einsum("bij->jib", t),
    ]


@program(M23, T234, thread="aesara 343", grad_wrt=("m", "t"))
def tensordot_and_matmul():
    m, t = pt.matrix("m"), pt.tensor3("t")
    return [m, t], [
        pt.tensordot(m, t, axes=[[0, 1], [0, 1]]),
        pt.tensordot(t, t, axes=([1], [1])),
        m[:, None, :] @ t,
        pt.matmul(t.swapaxes(1, 2), t),
    ]


@program(M23, X5[:3], thread="aesara 46", grad_wrt=("m", "v"), batch=("v",))
def dots_of_all_ranks():
    m, v = pt.matrix("m"), pt.vector("v")
    return [m, v], [m @ v, v @ v, pt.outer(v, v), pt.dot(m, m.T), pt.dot(v, m.T)]


@program(X5, [0.5, 0.3, 0.2], thread="pytensor 2317", grad_wrt=("x", "k"))
def convolution():
    """Adstock with dynamic shapes: the kernel's and the data's."""
    x, k = pt.vector("x"), pt.vector("k")
    return [x, k], [convolve1d(x, k, mode="full"), convolve1d(x, k, mode="valid")]


@program(M23, [0.5, 0.3], thread="pytensor 2317", grad_wrt=("m", "k"))
def batched_convolution():
    m, k = pt.matrix("m"), pt.vector("k")
    return [m, k], convolve1d(m, k[None, :], mode="full")[:, : m.shape[1]]


@program(X5, [0.6, 0.4, 0.1], thread="pymc-marketing 221", grad_wrt=("x", "w"))
def adstock_by_padding():
    """Shifted copies are written into a padded block, one slice each, and summed."""
    x, w = pt.vector("x"), pt.vector("w")
    n, l_max = x.shape[0], 3
    padded = pt.zeros((n + l_max - 1, l_max))
    for i in range(l_max):
        padded = pt.set_subtensor(padded[i : i + n, i], x)
    return [x, w], (padded @ w)[:n]


@program(X5, M23, thread="aesara 79", grad_wrt=("x", "m"))
def cumulative():
    x, m = pt.vector("x"), pt.matrix("m")
    return [x, m], [
        pt.cumsum(x),
        pt.cumprod(x),
        pt.cumsum(m, axis=1),
        pt.cumsum(m),
        pt.cumprod(m, 0),
    ]


@program(X5, M23, thread="pytensor 651", grad_wrt=("x", "m"))
def sorting():
    x, m = pt.vector("x"), pt.matrix("m")
    return [x, m], [pt.sort(x), pt.argsort(x), pt.sort(m, axis=0), pt.sort(m, axis=-1)[:, ::-1]]


@program(X5, [0.4, 1.5, 9.0], thread="pytensor 1062")
def searching():
    x, v = pt.vector("x"), pt.vector("v")
    ordered = pt.sort(x)
    return [x, v], [pt.searchsorted(ordered, v), pt.searchsorted(ordered, v, side="right")]


@program(X5, M23, thread="pytensor 374", grad_wrt=("x", "m"))
def extremes():
    x, m = pt.vector("x"), pt.matrix("m")
    return [x, m], [
        m.max(axis=0),
        m.min(),
        pt.argmin(m, axis=1),
        pt.maximum(x[1:4], m),
        pt.median(x),
        pt.ptp(x),
    ]


@program([2, 0, 1, 2, 2], X5, thread="pytensor 1432")
def counts():
    """The result is as long as the largest entry: minlength says how long at least."""
    k, w = pt.lvector("k"), pt.vector("w")
    return [k, w], pt.zeros(4)[k].inc(w) + pt.eq(k[:, None], pt.arange(4)[None, :]).sum(axis=0)


@program(T234, thread="aesara 43", grad_wrt=("t",))
def axes_moved_about():
    t = pt.tensor3("t")
    return [t], [
        pt.moveaxis(t, 0, -1),
        t.dimshuffle(2, "x", 0, 1),
        pt.stack([t[0], t[1]], axis=-1),
        t.transpose(2, 0, 1).flatten(2),
        pt.concatenate([t, t[:1]], axis=0),
        pt.squeeze(t[:, :1], axis=1),
    ]
