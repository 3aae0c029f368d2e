"""pytensor.scan as users write it: lengths, taps, directions."""

import numpy as np
import pytensor.tensor as pt

from .record import program, scan

X5 = np.array([0.5, -1.0, 2.0, 0.25, 1.5])
M43 = np.linspace(-1.0, 1.0, 12).reshape(4, 3)


@program(X5, 4, thread="aesara 924", grad_wrt=("a",))
def power_of_an_input():
    """Only the last state is used: n_steps may stay a traced value."""
    a, k = pt.vector("a"), pt.iscalar("k")
    trace = scan(lambda prev, a: prev * a, outputs_info=pt.ones_like(a), non_sequences=a, n_steps=k)
    return [a, k], trace[-1]


@program(X5, 3, thread="aesara 924", static=("k",), grad_wrt=("a",))
def powers_up_to_an_input():
    a, k = pt.vector("a"), pt.iscalar("k")
    trace = scan(lambda prev, a: prev * a, outputs_info=pt.ones_like(a), non_sequences=a, n_steps=k)
    return [a, k], trace


@program(X5, thread="aesara 1202", grad_wrt=("x",), batch=("x",))
def running_sum():
    x = pt.vector("x")
    return [x], scan(lambda x_t, s: s + x_t, sequences=x, outputs_info=pt.zeros(()))


@program([1.0, 0.0, 2.0], 3.0, thread="pytensor 232", grad_wrt=("c", "x"))
def polynomial():
    c, x = pt.vector("c"), pt.scalar("x")
    terms = scan(
        lambda c_i, i, x: c_i * x**i,
        sequences=[c, pt.arange(c.shape[0])],
        outputs_info=None,
        non_sequences=x,
    )
    return [c, x], terms.sum()


@program(X5, thread="aesara 1202", grad_wrt=("x",))
def one_step_less_than_rows():
    x = pt.vector("x")
    return [x], scan(
        lambda x_t, s: 0.5 * s + x_t, sequences=x, outputs_info=x[0], n_steps=x.shape[0] - 1
    )


@program(X5, 2, thread="pytensor 1281", static=("n",), grad_wrt=("x",))
def sequence_longer_than_n_steps():
    x, n = pt.vector("x"), pt.lscalar("n")
    return [x, n], scan(lambda x_t: x_t**2, sequences=x, n_steps=n)


@program(X5, X5[:3], thread="pytensor 1281", grad_wrt=("x", "y"))
def sequences_of_unequal_length():
    x, y = pt.vector("x"), pt.vector("y")
    return [x, y], scan(lambda a, b: a * b, sequences=[x, y])


@program(X5, thread="pytensor 2039")
def one_literal_step():
    """n_steps=1 is unrolled by pytensor.scan itself."""
    x = pt.vector("x")
    trace = scan(lambda s: s * 2.0, outputs_info=x, n_steps=1)
    return [x], trace


@program(X5, thread="pytensor 328", grad_wrt=("x",))
def two_taps():
    x = pt.vector("x")
    return [x], scan(
        lambda x_t, y1, y2: 0.6 * y1 - 0.3 * y2 + x_t,
        sequences=x,
        outputs_info={"initial": x[:2], "taps": [-1, -2]},
    )


@program(X5, thread="pytensor 1940", grad_wrt=("x",))
def taps_that_are_not_neighbours():
    x = pt.vector("x")
    return [x], scan(
        lambda y3, y1: 0.5 * y1 + 0.25 * y3,
        outputs_info=[{"initial": x[:3], "taps": [-3, -1]}],
        n_steps=2 * x.shape[0],
    )


@program([1.0, 2.0], thread="pytensor 1940", grad_wrt=("x",))
def one_far_tap():
    x = pt.vector("x")
    trace = scan(lambda y2: y2 * 1.5, outputs_info={"initial": x, "taps": [-2]}, n_steps=5)
    return [x], trace


@program(X5, thread="pytensor 288", grad_wrt=("x",))
def sequence_taps():
    x = pt.vector("x")
    return [x], scan(
        lambda before, now, after: before - 2.0 * now + after,
        sequences={"input": x, "taps": [-1, 0, 1]},
    )


@program(M43, X5, thread="pytensor 288", grad_wrt=("u", "y0"))
def sequence_and_output_taps():
    u, y0 = pt.matrix("u"), pt.vector("y0")
    return [u, y0], scan(
        lambda u_t, u_t2, y1, y3, b: (u_t * u_t2).sum() * b + 0.3 * y1 - 0.1 * y3,
        sequences={"input": u, "taps": [0, 2]},
        outputs_info={"initial": y0[:3], "taps": [-1, -3]},
        non_sequences=y0[-1],
    )


@program([[0, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1]], thread="pytensor 328")
def mask_after_any_of_three():
    """Three int8 taps joined by bitwise or."""
    arr = pt.matrix("arr", dtype="int8")
    return [arr], scan(
        lambda now, y3, y2, y1: pt.switch(y3 | y2 | y1, np.int8(0), now),
        sequences=arr,
        outputs_info={"initial": pt.zeros((3, arr.shape[1]), dtype="int8"), "taps": [-3, -2, -1]},
    )


@program(X5, thread="pytensor 1687", grad_wrt=("x",))
def backwards():
    x = pt.vector("x")
    return [x], scan(
        lambda x_t, s: 0.5 * s + x_t, sequences=x, outputs_info=pt.zeros(()), go_backwards=True
    )
