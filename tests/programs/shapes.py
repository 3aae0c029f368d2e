"""Shapes and lengths that are not literals: from a shape, from an input, computed from both."""

import numpy as np
import pytensor.tensor as pt

from .record import program

X4 = np.array([0.5, -1.0, 2.0, 0.25])
X6 = np.array([0.3, 1.2, -0.7, 2.0, 0.1, -1.5])
M23 = np.array([[0.5, 1.0, -0.5], [2.0, 0.1, 0.7]])


@program(X4, thread="aesara 68", grad_wrt=("x",), batch=("x",))
def arange_of_a_shape():
    x = pt.vector("x")
    return [x], x * pt.arange(x.shape[0])


@program(X4, 3, thread="aesara 68", static=("n",))
def arange_of_an_input():
    x, n = pt.vector("x"), pt.lscalar("n")
    return [x, n], pt.arange(n) ** 2 + x.sum()


@program(X6, M23, thread="pytensor 853")
def arange_with_three_computed_bounds():
    x, m = pt.vector("x"), pt.matrix("m")
    return [x, m], pt.arange(m.shape[0], x.shape[0] + 2, m.shape[1] - 1)


@program(X4, X6, thread="pytensor 2050", grad_wrt=("x", "y"))
def zeros_of_two_shapes():
    x, y = pt.vector("x"), pt.vector("y")
    return [x, y], pt.zeros((x.shape[0], y.shape[0])) + x[:, None] * y[None, :]


@program(1.5, 4, thread="pytensor 2050", static=("n",), grad_wrt=("v",))
def full_of_an_input():
    v, n = pt.scalar("v"), pt.iscalar("n")
    return [v, n], pt.full((n, 3), v)


@program(X4, thread="pytensor 2050", grad_wrt=("x",))
def alloc_of_a_vector_over_rows():
    x = pt.vector("x")
    return [x], pt.alloc(x, 2 * x.shape[0], x.shape[0]).sum(axis=0)


@program(X4, 0.1, thread="pytensor 654", grad_wrt=("x", "jitter"))
def eye_of_a_shape():
    x, jitter = pt.vector("x"), pt.scalar("jitter")
    return [x, jitter], pt.outer(x, x) + jitter * pt.eye(x.shape[0])


@program(3, thread="pytensor 654", static=("n",))
def eye_of_an_input_off_the_diagonal():
    n = pt.lscalar("n")
    return [n], pt.eye(n, n + 1, 1)


@program(X6, thread="aesara 43", grad_wrt=("x",))
def reshape_to_a_computed_shape():
    x = pt.vector("x")
    return [x], x.reshape((x.shape[0] // 2, 2)).sum(axis=0)


@program(X6, [3, 2], thread="aesara 43", static=("shape",))
def reshape_to_an_input():
    x, shape = pt.vector("x"), pt.lvector("shape")
    return [x, shape], x.reshape(shape, ndim=2).T


@program(M23, thread="pymc 5927", grad_wrt=("m",))
def reshape_of_a_logp():
    """Flattened to the product of its own shape, as pymc's transforms do."""
    m = pt.matrix("m")
    flat = m.reshape((m.shape[0] * m.shape[1],))
    return [m], [-0.5 * (flat**2).sum(), flat.reshape((-1, m.shape[0]))]


@program(M23, thread="pymc 6050", grad_wrt=("m",))
def specify_shape_from_a_shape():
    m = pt.matrix("m")
    return [m], pt.specify_shape(m.T, (m.shape[1], m.shape[0])) * 2.0


@program(X4, M23, thread="aesara 859", grad_wrt=("x",))
def broadcast_to_a_shape():
    x, m = pt.vector("x"), pt.matrix("m")
    return [x, m], pt.broadcast_to(x, (m.shape[0], x.shape[0]))


@program(X4, M23, thread="pytensor 1192", grad_wrt=("x",))
def repeat_by_a_shape():
    x, m = pt.vector("x"), pt.matrix("m")
    return [x, m], pt.repeat(x, m.shape[1])


@program(X4, 2, thread="pytensor 1192", static=("n",))
def repeat_by_an_input():
    x, n = pt.vector("x"), pt.lscalar("n")
    return [x, n], pt.repeat(x, n) + pt.arange(n * x.shape[0])


@program(M23, [2, 0], thread="pytensor 1192", static=("counts",))
def repeat_by_counts():
    m, counts = pt.matrix("m"), pt.lvector("counts")
    return [m, counts], pt.repeat(m, counts, axis=0)


@program(X4, thread="pytensor 853", grad_wrt=("x",))
def tile_by_a_shape():
    x = pt.vector("x")
    return [x], pt.tile(x, (x.shape[0] // 2, 2))


@program(X6, thread="pytensor 145", grad_wrt=("x",))
def split_at_a_computed_place():
    x = pt.vector("x")
    half = x.shape[0] // 3
    head, tail = pt.split(x, pt.stack([half, x.shape[0] - half]), n_splits=2)
    return [x], [head * 2.0, tail.sum()]


@program(X6, [1, 3, 2], thread="pytensor 145", static=("sizes",))
def split_into_input_sizes():
    x, sizes = pt.vector("x"), pt.lvector("sizes")
    return [x, sizes], list(pt.split(x, sizes, n_splits=3))


@program(X4, 2, thread="pymc-marketing 114", static=("lag",), grad_wrt=("x",))
def shift_in_zeros():
    """One lag of an adstock: zeros in front, the end cut off."""
    x, lag = pt.vector("x"), pt.lscalar("lag")
    return [x, lag], pt.concatenate([pt.zeros(lag), x[: x.shape[0] - lag]])


@program(0.0, 2.0, 5, thread="pytensor 853", static=("n",))
def linspace_of_an_input():
    start, stop, n = pt.scalar("start"), pt.scalar("stop"), pt.lscalar("n")
    return [start, stop, n], pt.linspace(start, stop, n)


@program(X4, thread="pytensor 1732")
def lower_triangle_of_a_shape():
    x = pt.vector("x")
    n = x.shape[0]
    return [x], pt.tri(n, n) * x + pt.tril(pt.ones((n, n)), -1)


@program(X6, thread="pytensor 1905", grad_wrt=("x",))
def windows_by_index():
    x = pt.vector("x")
    width = 3
    starts = pt.arange(x.shape[0] - width + 1)
    return [x], x[starts[:, None] + pt.arange(width)[None, :]].max(axis=1)


@program(M23, thread="pytensor 853")
def shapes_as_outputs():
    m = pt.matrix("m")
    return [m], [m.shape, m.size, pt.stack([m.shape[0], m.shape[1] * 2])]


@program(X6, thread="pytensor 853", grad_wrt=("x",))
def length_by_logarithm():
    """A length that is computed in floats and cast back, as for a padded FFT."""
    x = pt.vector("x")
    length = pt.cast(2 ** pt.ceil(pt.log2(pt.cast(x.shape[0], "float64"))), "int64")
    return [x], pt.zeros(length)[: x.shape[0]].inc(x) * length


@program(X4, thread="pymc 7294", grad_wrt=("x",))
def mean_over_a_padded_block():
    x = pt.vector("x")
    padded = pt.pad(x, (x.shape[0] // 2, 1))
    return [x], [padded, padded.mean(), padded.var()]


@program(M23, thread="pytensor 853", grad_wrt=("m",))
def diagonal_of_a_computed_block():
    m = pt.matrix("m")
    k = pt.minimum(m.shape[0], m.shape[1])
    return [m], pt.diag(pt.diagonal(m[:k, :k])) + pt.eye(k)


@program(X4, 3, thread="pytensor 853", error="DynamicShapeError")
def length_from_the_data():
    """The length depends on what an array holds: no static argument helps a caller's jit."""
    x, n = pt.vector("x"), pt.lscalar("n")
    return [x, n], pt.arange(pt.cast(pt.ceil(x.sum() + n), "int64"))
