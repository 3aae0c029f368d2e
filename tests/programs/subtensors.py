"""Slices with symbolic bounds, integer and advanced indexing, setting and incrementing."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from .record import program

X6 = np.array([0.3, 1.2, -0.7, 2.0, 0.1, -1.5])
M34 = np.linspace(-1.0, 2.0, 12).reshape(3, 4)


@program(X6, 4, thread="pytensor 853", static=("n",), grad_wrt=("x",))
def head_of_input_length():
    x, n = pt.vector("x"), pt.lscalar("n")
    return [x, n], x[:n] * 2.0


@program(X6, thread="pytensor 853", grad_wrt=("x",), batch=("x",))
def halves_by_shape():
    x = pt.vector("x")
    half = x.shape[0] // 2
    return [x], x[:half] - x[half:]


@program(X6, 2, thread="pytensor 1905", static=("i",), grad_wrt=("x",))
def window_at_an_input():
    """x[i : i + 3]: the start is a value, the length is 3 whatever the start is."""
    x, i = pt.vector("x"), pt.lscalar("i")
    return [x, i], x[i : i + 3]


@program(1, thread="pytensor 312", static=("batch",))
def minibatch_of_a_shared_table():
    table = pytensor.shared(M34, name="table")
    batch = pt.iscalar("batch")
    return [batch], table[batch * 2 : (batch + 1) * 2].sum(axis=1)


@program(X6, thread="pytensor 853", grad_wrt=("x",))
def negative_and_wide_steps():
    x = pt.vector("x")
    n = x.shape[0]
    return [x], [x[::-1], x[::2], x[n - 2 : 0 : -2], x[-n:-1]]


@program(M34, 1, -1, thread="aesara 1338", grad_wrt=("m",))
def integer_indices_as_inputs():
    m, i, j = pt.matrix("m"), pt.lscalar("i"), pt.lscalar("j")
    return [m, i, j], [m[i], m[:, j], m[i, j], m[i, 1:]]


@program(X6, 0.5, thread="aesara 1338", grad_wrt=("x", "v"))
def set_a_slice_by_shape():
    x, v = pt.vector("x"), pt.scalar("v")
    return [x, v], pt.set_subtensor(x[x.shape[0] // 2 :], v * x[0])


@program(M34, [1.0, 2.0, 3.0], 2, thread="aesara 927", grad_wrt=("m", "v"))
def increment_a_column_at_an_input():
    m, v, j = pt.matrix("m"), pt.vector("v"), pt.lscalar("j")
    return [m, v, j], pt.inc_subtensor(m[:, j], v)


@program(X6, 2, thread="pytensor 267", static=("n",), grad_wrt=("x",))
def set_and_increment_to_an_input():
    x, n = pt.vector("x"), pt.lscalar("n")
    y = pt.set_subtensor(x[:n], 0.0)
    return [x, n], pt.inc_subtensor(y[n:], x[: x.shape[0] - n] * 3.0)


@program(X6, [1, 3], thread="pytensor 2339", grad_wrt=("x",))
def set_many_places_to_a_scalar():
    x, idx = pt.vector("x"), pt.lvector("idx")
    return [x, idx], pt.set_subtensor(x[idx], 1.0)


@program(X6, [1, 3, 1, 0], [1.0, 2.0, 4.0, 8.0], thread="aesara 198", grad_wrt=("x", "v"))
def increment_with_repeated_places():
    x, idx, v = pt.vector("x"), pt.lvector("idx"), pt.vector("v")
    return [x, idx, v], pt.inc_subtensor(x[idx], v)


@program(M34, [0, 2, 2], [1, 1, 3], thread="aesara 927", grad_wrt=("m",))
def pairs_of_indices():
    m, i, j = pt.matrix("m"), pt.lvector("i"), pt.lvector("j")
    return [m, i, j], [m[i, j], m[i][:, None, :], m[:, j], pt.inc_subtensor(m[i, j], 1.5)]


@program(np.linspace(0, 1, 24).reshape(2, 3, 4), [1, 0], thread="aesara 927", grad_wrt=("t",))
def index_beside_slices():
    t, i = pt.tensor3("t"), pt.lvector("i")
    return [t, i], [t[:, i, 1:3], t[i, :, i], pt.set_subtensor(t[:, i, :2], -1.0)]


@program(M34, [[0, 1, 0, 2]], thread="pytensor 838", grad_wrt=("m",))
def take_along_rows():
    m, idx = pt.matrix("m"), pt.lmatrix("idx")
    return [m, idx], [pt.take_along_axis(m, idx, axis=0), pt.take(m, idx, axis=1)]


@program(X6, thread="pytensor 838", grad_wrt=("x",))
def index_by_argmax():
    """The place is data, the shape is not: nothing here may become static."""
    x = pt.vector("x")
    best = pt.argmax(x)
    return [x], [x[best], best, pt.set_subtensor(x[best], 0.0)]


@program(X6, 2, thread="pytensor 853", static=("n",))
def roll_by_an_input():
    x, n = pt.vector("x"), pt.lscalar("n")
    return [x, n], pt.roll(x, n)


@program(M34, thread="pytensor 838", grad_wrt=("m",))
def differences_and_filled_diagonal():
    m = pt.matrix("m")
    return [m], [pt.diff(m, axis=0), pt.diff(m, n=2, axis=1), pt.fill_diagonal(m, 9.0)]


@program(X6, [0, 0, 1, 2, 1, 2], thread="pymc 5927", grad_wrt=("alpha",))
def group_effects():
    """A hierarchical model's alpha[group], summed back per group."""
    alpha, group = pt.vector("alpha"), pt.lvector("group")
    mu = alpha[group] ** 2
    return [alpha, group], [mu, pt.zeros(3)[group].inc(mu)]
