"""What steps hold: loops, shared and outer variables, integer and matrix states, branches."""

import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.scan.basic import scan as legacy_scan
from pytensor.scan.views import foldl, foldr
from pytensor.scan.views import map as scan_map
from pytensor.scan.views import reduce as scan_reduce

from .record import program, scan

X5 = np.array([0.5, -1.0, 2.0, 0.25, 1.5])
M43 = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
W33 = np.array([[0.2, -0.1, 0.3], [0.0, 0.4, -0.2], [0.1, 0.1, 0.5]])


@program(M43, 3, thread="pytensor 1425", grad_wrt=("m",))
def nested():
    """Each row's inner loop has as many steps as an input says, and only its end is used."""
    m, k = pt.matrix("m"), pt.lscalar("k")

    def row_step(row, k):
        return scan(
            lambda s, row: s * row, outputs_info=pt.ones_like(row), non_sequences=row, n_steps=k
        )[-1]

    return [m, k], scan(row_step, sequences=m, non_sequences=k)


@program(M43, thread="pymc 6384", grad_wrt=("m",))
def nested_over_elements():
    m = pt.matrix("m")

    def row_step(row, total):
        partial_sums = scan(lambda e, s: pt.tanh(s + e), sequences=row, outputs_info=total)
        return partial_sums[-1], partial_sums

    last, sums = scan(row_step, sequences=m, outputs_info=[pt.zeros(()), None])
    return [m], [last, sums]


@program(M43, thread="pytensor 4652", grad_wrt=("x",))
def recurrent_network_of_shared_weights():
    w = pytensor.shared(W33, name="w")
    h0 = pytensor.shared(np.zeros(3), name="h0")
    x = pt.matrix("x")
    return [x], scan(lambda x_t, h: pt.tanh(x_t + h @ w), sequences=x, outputs_info=h0)


@program(X5, thread="Theano 5602", grad_wrt=("x",))
def order_of_arguments():
    """Sequences, then states in the order of outputs_info (None skipped), then the rest."""
    x = pt.vector("x")

    def step(x_t, t, prod, total, scale):
        return prod * x_t, x_t - t, total + scale * prod

    return [x], scan(
        step,
        sequences=[x, pt.arange(x.shape[0])],
        outputs_info=[pt.ones(()), None, pt.zeros(())],
        non_sequences=x.max(),
    )


@program(7, thread="pytensor 1652")
def integer_states():
    """Two counters, one of them wrapping in int8, and a flag."""
    n = pt.lscalar("n")

    def step(i, small, odd):
        return i + 2, pt.cast(small * 3, "int8"), pt.invert(odd)

    return [n], scan(
        step, outputs_info=[n, pt.constant(1, dtype="int8"), pt.eq(n % 2, 1)], n_steps=6
    )


@program(M43, thread="pytensor 287", grad_wrt=("m",))
def matrix_state():
    m = pt.matrix("m")
    square = m.T @ m
    return [m], scan(
        lambda s, a: s @ a / 2.0, outputs_info=pt.eye(3), non_sequences=square, n_steps=3
    )


@program(np.linspace(-1, 1, 24).reshape(4, 2, 3), thread="pytensor 287", grad_wrt=("t",))
def matrix_rows_and_reduction():
    t = pt.tensor3("t")
    total, norms = scan(
        lambda m, s: (s + m, (m**2).sum(axis=1)), sequences=t, outputs_info=[t[0] * 0.0, None]
    )
    return [t], [total[-1], norms]


@program(X5, thread="pytensor 1281", grad_wrt=("x",))
def parts_of_a_trace():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: s * 0.5 + x_t, sequences=x, outputs_info=pt.zeros(()))
    return [x], [trace[-1], trace[1:], trace[::2], trace[-3:], trace[x.shape[0] // 2]]


@program(X5, 0.5, thread="pytensor 6", grad_wrt=("x", "c"))
def strict_with_what_it_needs():
    x, c = pt.vector("x"), pt.scalar("c")
    return [x, c], scan(
        lambda x_t, s, c: s * c + x_t,
        sequences=x,
        outputs_info=pt.zeros(()),
        non_sequences=[c],
        strict=True,
    )


@program(X5, 2.0, thread="pytensor 6", grad_wrt=("x", "c"))
def closed_over():
    """A step that reads outer variables, computed ones too, without naming them."""
    x, c = pt.vector("x"), pt.scalar("c")
    scaled = pt.exp(-c) * x.sum()
    return [x, c], scan(lambda x_t: x_t * scaled + c, sequences=x)


@program(X5, thread="pytensor 1704")
def the_old_call_with_updates():
    x = pt.vector("x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the pair that it returns
        trace, updates = legacy_scan(lambda x_t, s: s + x_t, sequences=x, outputs_info=pt.zeros(()))
    assert not updates
    return [x], trace


@program(X5, thread="pytensor 191", grad_wrt=("x",))
def map_reduce_and_folds():
    x = pt.vector("x")
    kwargs = {"return_updates": False}
    return [x], [
        scan_map(lambda e: e**3, x, **kwargs),
        scan_reduce(lambda e, s: s + e, x, pt.zeros(()), **kwargs),
        foldl(lambda e, s: s * 0.5 + e, x, pt.zeros(()), **kwargs),
        foldr(lambda e, s: s * 0.5 + e, x, pt.zeros(()), **kwargs),
    ]


@program(X5, [3, 1, 0, 4], thread="pymc 5989", grad_wrt=("x",))
def reads_by_index():
    x, order = pt.vector("x"), pt.lvector("order")
    return [x, order], scan(lambda i, s, x: s + x[i] * x[-1], order, pt.zeros(()), [x])


@program(X5, 0.3, thread="pymc 5989", grad_wrt=("x", "alpha"))
def adstock_by_growing_shift():
    """zeros(i) and x[: n - i] inside the loop: the rows of arange(4) are literals, i is not."""
    x, alpha = pt.vector("x"), pt.scalar("alpha")
    l_max = 4
    cycles = scan(
        lambda i, x: pt.concatenate([pt.zeros(i), x[: x.shape[0] - i]]),
        sequences=pt.arange(l_max),
        non_sequences=x,
    )
    w = pt.stack([alpha**i for i in range(l_max)])
    return [x, alpha], w @ cycles


@program(X5, thread="pytensor 1281", grad_wrt=("x",))
def one_loop_feeds_another():
    x = pt.vector("x")
    first = scan(lambda x_t, s: s + x_t, sequences=x, outputs_info=pt.zeros(()))
    second = scan(
        lambda f, before, s: s + f * before,
        sequences=[first[1:], first[:-1]],
        outputs_info=first[-1],
    )
    return [x], second


@program(np.ones((1, 3)), M43, thread="pytensor 1482", grad_wrt=("row", "m"))
def state_with_an_axis_of_one():
    row = pt.tensor("row", shape=(1, None))
    m = pt.matrix("m")
    return [row, m], scan(
        lambda x_t, s: s * 0.5 + x_t[None, :],
        sequences=m,
        outputs_info=pt.specify_shape(row, (1, 3)),
    )


@program(X5, thread="pytensor 501", grad_wrt=("x",))
def branch_in_a_step():
    x = pt.vector("x")
    return [x], scan(
        lambda x_t, s: pt.switch(x_t > 0, s * x_t, s - x_t), sequences=x, outputs_info=pt.ones(())
    )


@program(X5, thread="pytensor 2024", grad_wrt=("x",))
def sum_of_a_trace_and_its_mean():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: 0.9 * s + x_t, sequences=x, outputs_info=pt.zeros(()))
    return [x], [trace.sum(), trace.mean(), (trace > 0).sum()]
