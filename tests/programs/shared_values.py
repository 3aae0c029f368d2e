"""Shared variables: read afresh, big ones, lengths that they hold; the same program twice."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from .record import program, scan

X3 = np.array([0.5, -1.0, 2.0])


@program(X3, thread="pymc-extras 468", grad_wrt=("x",))
def weights():
    w = pytensor.shared(np.arange(6.0).reshape(3, 2) / 10.0, name="w")
    b = pytensor.shared(0.5, name="b")
    x = pt.vector("x")
    return [x], pt.tanh(x @ w + b)


@program(X3, thread="pytensor 1224", grad_wrt=("x",))
def large_table():
    """Large enough that XLA would fold it for seconds, were it a constant."""
    table = pytensor.shared(np.linspace(0.0, 1.0, 30_000).reshape(10_000, 3), name="table")
    x = pt.vector("x")
    return [x], [(table @ x).sum(), table[17] * x]


@program(X3, thread="pytensor 1224", grad_wrt=("x",))
def large_constant():
    table = pt.constant(np.linspace(0.0, 1.0, 30_000).reshape(10_000, 3))
    x = pt.vector("x")
    return [x], pt.exp(-(table * x).sum(axis=1)).mean()


@program(X3, thread="pytensor 312", grad_wrt=("x",))
def length_in_a_shared_value():
    n = pytensor.shared(np.int64(2), name="n")
    x = pt.vector("x")
    return [x], [x[:n].sum(), pt.arange(n) * x[0]]


@program(X3, thread="pytensor 312")
def steps_in_a_shared_value():
    n = pytensor.shared(np.int64(3), name="n")
    x = pt.vector("x")
    return [x], scan(lambda s: s * 0.5 + 1.0, outputs_info=x, n_steps=n)


@program(thread="aesara 1385")
def no_inputs_at_all():
    w = pytensor.shared(X3, name="w")
    return [], (w**2).sum()


@program(X3, thread="aesara 1385", grad_wrt=("x",))
def an_input_as_an_output():
    x = pt.vector("x")
    return [x], [x, x, pt.constant(np.arange(3)), x * 1.0]


@program(X3, 1.0, thread="aesara 1385", grad_wrt=("x",))
def an_input_that_is_not_used():
    x, unused = pt.vector("x"), pt.scalar("unused")
    return [x, unused], x * 2.0
