"""Graphs turned into batches: vectorize_graph and pt.vectorize, over loops and Blockwise ops."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph

from .record import program, scan

X4 = np.array([0.5, -1.0, 2.0, 0.25])
M34 = np.linspace(-1.0, 2.0, 12).reshape(3, 4)


@program(X4, thread="pytensor 1425", grad_wrt=("rows",))
def loop_over_a_batched_state():
    x, rows = pt.scalar("x"), pt.vector("rows")
    trace = scan(lambda s: pt.sin(s) + 1.0, outputs_info=x, n_steps=5)
    return [rows], vectorize_graph(trace, {x: rows})


@program(M34, thread="pytensor 1425", grad_wrt=("rows",))
def loop_over_a_batched_sequence():
    x, rows = pt.vector("x"), pt.matrix("rows")
    trace = scan(lambda x_t, s: pt.tanh(s) + x_t, sequences=x, outputs_info=pt.zeros(()))
    return [rows], vectorize_graph(trace[-1], {x: rows})


@program(M34, X4, thread="pytensor 1482", grad_wrt=("rows", "c"))
def loop_with_a_shared_constant():
    x, c, rows = pt.vector("x"), pt.vector("c"), pt.matrix("rows")
    trace = scan(
        lambda x_t, s, c: s * c.sum() * 0.1 + x_t,
        sequences=x,
        outputs_info=pt.zeros(()),
        non_sequences=c,
    )
    return [rows, c], vectorize_graph(trace, {x: rows})


@program(M34, thread="pytensor 1482")
def gradient_of_a_batched_loop():
    x, rows = pt.vector("x"), pt.matrix("rows")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t, sequences=x, outputs_info=pt.ones(()))
    batched = vectorize_graph((trace**2).sum(), {x: rows})
    return [rows], pt.grad(batched.sum(), rows)


@program(M34, thread="pytensor 1482", grad_wrt=("rows",))
def batch_of_gradients():
    x, rows = pt.vector("x"), pt.matrix("rows")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t, sequences=x, outputs_info=pt.ones(()))
    return [rows], vectorize_graph(pt.grad((trace**2).sum(), x), {x: rows})


@program(M34, X4, thread="pytensor 306", grad_wrt=("m", "v"))
def function_with_a_signature():
    m, v = pt.matrix("m"), pt.vector("v")
    f = pt.vectorize(lambda a, b: pt.outer(a, b) @ b + a.sum(), signature="(n),(n)->(n)")
    return [m, v], f(m, v)


@program(M34, thread="pytensor 306", grad_wrt=("rows",))
def softmax_of_rows():
    x, rows = pt.vector("x"), pt.matrix("rows")
    return [rows], vectorize_graph(pt.exp(x) / pt.exp(x).sum(), {x: rows})


@program(M34, [3, 1, 2], thread="pytensor 1425")
def lookups_of_rows():
    x, i = pt.vector("x"), pt.lscalar("i")
    rows, many = pt.matrix("rows"), pt.lvector("many")
    return [rows, many], vectorize_graph(x[i] + x.max(), {x: rows, i: many})


def _jacobian(m):
    total, slope = m.sum(axis=0), 1.0 - np.tanh(m.sum(axis=0) * m[0]) ** 2
    jac = np.zeros((4, 3, 4))
    jac[range(4), :, range(4)] = (slope * m[0])[:, None]
    jac[range(4), 0, range(4)] += slope * total
    return jac


@program(M34, thread="pytensor 1425", batch=("m",), expected=_jacobian)
def jacobian_by_vectorizing():
    """pytensor's jacobian without the loop over rows; 3.0 gives it the shape (4, 1, 4)."""
    m = pt.matrix("m")
    y = pt.tanh(m.sum(axis=0) * m[0])
    return [m], pytensor.gradient.jacobian(y, m, vectorize=True)
