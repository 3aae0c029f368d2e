"""Boolean masks: constant ones, masks that are only reduced or written through, and unique."""

import numpy as np
import pytensor.tensor as pt

from .record import program

X5 = np.array([0.5, -1.0, 2.0, -0.25, 1.5])
M23 = np.array([[0.5, -1.0, -0.5], [2.0, 0.1, 0.7]])
KEEP = np.array([True, False, True, True, False])


@program(X5, thread="pytensor 376", grad_wrt=("x",))
def constant_mask():
    x = pt.vector("x")
    return [x], [x[KEEP], x[pt.constant(KEEP)].sum(), pt.set_subtensor(x[KEEP], 0.0)]


@program(M23, thread="pytensor 849", grad_wrt=("m",))
def constant_mask_of_a_matrix():
    m = pt.matrix("m")
    mask = np.array([[True, False, True], [False, True, True]])
    return [m], [m[mask], m[:, mask[0]], pt.inc_subtensor(m[mask], np.arange(4.0))]


@program(X5, thread="pytensor 376", grad_wrt=("x",))
def mask_from_a_shape():
    """A mask that depends on no data is as good as a constant."""
    x = pt.vector("x")
    return [x], x[pt.eq(pt.arange(x.shape[0]) % 2, 0)] * 2.0


@program(X5, thread="aesara 1338", grad_wrt=("x",))
def sum_under_a_mask():
    x = pt.vector("x")
    return [x], [x[x > 0].sum(), (x > 0).sum()]


@program(X5, thread="aesara 927", grad_wrt=("x",))
def set_and_increment_under_a_mask():
    x = pt.vector("x")
    return [x], [pt.set_subtensor(x[x < 0], 0.0), pt.inc_subtensor(x[x < 0], 10.0)]


@program(M23, thread="aesara 927", grad_wrt=("m",))
def set_under_a_matrix_mask():
    m = pt.matrix("m")
    return [m], pt.set_subtensor(m[m < 0], -1.0)


@program(X5, X5 * 2.0, thread="aesara 1338", issue=5, grad_wrt=("x", "y"))
def other_reductions_under_a_mask():
    x, y = pt.vector("x"), pt.vector("y")
    kept = x > 0
    return [x, y], [x[kept].mean(), x[kept].max(), x[kept].prod(), (x[kept] * y[kept]).sum()]


@program(X5, thread="pytensor 1509", issue=5)
def sum_at_nonzero_places():
    x = pt.vector("x")
    return [x], x[pt.nonzero(x > 0)[0]].sum()


@program([1.0, np.nan, 3.0], [0.5, 0.5, 0.5], thread="pymc 6026", grad_wrt=("mu",))
def missing_observations():
    """The log-likelihood of what was observed, by switch."""
    y, mu = pt.vector("y"), pt.vector("mu")
    logp = -0.5 * (pt.switch(pt.isnan(y), 0.0, y) - mu) ** 2
    return [y, mu], pt.switch(pt.isnan(y), 0.0, logp).sum()


@program(X5, thread="pytensor 1062", issue=5)
def places_that_are_an_output():
    x = pt.vector("x")
    return [x], pt.where(x > 0)[0]


@program(X5, thread="pytensor 376", issue=5)
def rows_that_are_an_output():
    x = pt.vector("x")
    return [x], x[x > 0] * 2.0


@program([3, 1, 3, 2, 1], thread="pytensor 1432")
def unique_values():
    k = pt.lvector("k")
    return [k], pt.unique(k)


@program(X5, thread="pytensor 1432")
def unique_of_a_constant():
    x = pt.vector("x")
    values, inverse = pt.unique(pt.constant(np.array([3, 1, 3, 2, 1])), return_inverse=True)
    return [x], [values, x[: values.shape[0]][inverse]]
