"""Programs to transform: under jax.vmap, jax.hessian, jax.jit they are what they are alone."""

import numpy as np
import pytensor.tensor as pt

from .record import ifelse, program, scan

X3 = np.array([0.5, -1.0, 2.0])
M23 = np.array([[0.5, 1.0, -0.5], [2.0, 0.1, 0.7]])


@program(2.0, thread="aesara 1194", grad_wrt=("x",), batch=("x",), hessian_wrt="x")
def scalar_in_scalar_out():
    x = pt.scalar("x")
    return [x], pt.sin(x) * x + 1


@program(X3, 0.5, thread="aesara 1385", grad_wrt=("x", "c"), batch=("x", "c"), hessian_wrt="x")
def vector_in_scalar_out():
    x, c = pt.vector("x"), pt.scalar("c")
    return [x, c], (pt.exp(c * x) * x[::-1]).sum()


@program(M23, X3, thread="aesara 1194", batch=("m",), grad_wrt=("m", "v"))
def list_of_one():
    """A list stays a list, one output or many."""
    m, v = pt.matrix("m"), pt.vector("v")
    return [m, v], [m @ v]


@program(X3, 4, thread="aesara 1385", batch=("x",), static=("n",), grad_wrt=("x",))
def batch_beside_a_static():
    x, n = pt.vector("x"), pt.lscalar("n")
    return [x, n], pt.zeros(n) + x.sum()


@program(X3, thread="pytensor 1425", batch=("x",), hessian_wrt="x", grad_wrt=("x",))
def loop():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t + s, sequences=x, outputs_info=pt.ones(()))
    return [x], (trace**2).sum()


@program(X3, thread="pytensor 1425", batch=("x",))
def gradient_of_a_loop():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t + s, sequences=x, outputs_info=pt.ones(()))
    return [x], pt.grad((trace**2).sum(), x)


@program(X3, 1.0, thread="pytensor 501", batch=("x", "c"), grad_wrt=("x",))
def branch():
    x, c = pt.vector("x"), pt.scalar("c")
    return [x, c], ifelse(pt.gt(c * x.sum(), 1.5), pt.exp(x), x**2)


@program(M23, X3, thread="Theano 4652", batch=("m",), hessian_wrt="v", grad_wrt=("v",))
def second_order_through_a_network():
    m, v = pt.matrix("m"), pt.vector("v")
    h = scan(lambda x_t, h: pt.tanh(x_t * v + h), sequences=m, outputs_info=pt.zeros(3))
    return [m, v], (h**2).sum()
