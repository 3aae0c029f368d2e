"""What `pytensor.function` takes besides inputs and outputs; updates are issue 4's."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.io import In

from .record import program, scan

X3 = np.array([0.5, -1.0, 2.0])


@program(X3, thread="aesara 1385", grad_wrt=("x",))
def a_dict_of_outputs():
    x = pt.vector("x")
    return [x], {"total": x.sum(), "scaled": x * 2.0}


@program(X3, thread="pymc 4142")
def a_replaced_input():
    x, y = pt.vector("x"), pt.vector("y")
    return [x], (y**2).sum(), {"givens": {y: x * 2.0}}


@program(X3, thread="pymc-extras 468")
def a_replaced_shared_value():
    w = pytensor.shared(np.ones(3), name="w")
    x = pt.vector("x")
    return [x], x * w, {"givens": {w: pt.exp(x)}}


@program(X3, 2.0, thread="aesara 1194")
def inputs_with_other_names():
    x, c = pt.vector("x"), pt.scalar("c")
    return [In(x, name="data"), In(c, name="scale", allow_downcast=True)], x * c


@program(X3, thread="pytensor 1704", issue=4)
def an_accumulator():
    """A function with an update: its first call's result."""
    total = pytensor.shared(np.float64(1.0), name="total")
    x = pt.vector("x")
    return [x], total + x.sum(), {"updates": {total: total + x.sum()}}


@program(X3, thread="pytensor 1704", issue=4)
def a_step_of_descent():
    w = pytensor.shared(np.zeros(3), name="w")
    x = pt.vector("x")
    loss = ((w - x) ** 2).sum()
    return [x], loss, {"updates": [(w, w - 0.1 * pt.grad(loss, w))]}


@program(X3, thread="aesara 500", expected=lambda x: np.cumsum(x))
def initial_state_of_a_narrow_constant():
    """pt.constant(0.0) is a float32: pytensor.scan refuses it where the step gives float64."""
    x = pt.vector("x")
    zero = pt.cast(pt.constant(0.0), "float64")
    return [x], scan(lambda x_t, s: s + x_t, sequences=x, outputs_info=zero)
