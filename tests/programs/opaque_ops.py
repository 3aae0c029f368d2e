"""Ops that JAX knows nothing of: only `perform`, an overridden gradient, a user's conversion."""

import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import wrap_py
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph
from pytensor.link.jax.dispatch import jax_funcify

from tests.support.ops import SameType

from .record import program, scan

X4 = np.array([0.5, -1.0, 2.0, 0.25])


class BlackBox(Op):
    """A vector to a scalar, by NumPy only: somebody's likelihood."""

    __props__ = ()

    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [pt.scalar(dtype=x.dtype)])

    def perform(self, node, inputs, output_storage):
        [x] = inputs
        output_storage[0][0] = np.asarray(np.sum(np.sin(x) ** 2), dtype=x.dtype)


class BlackBoxWithGradient(BlackBox):
    """The same with a pullback, itself a black box."""

    def pullback(self, inputs, outputs, cotangents):
        [x], [g] = inputs, cotangents
        return [g * BlackBoxGradient()(x)]


class BlackBoxGradient(SameType):
    def perform(self, node, inputs, output_storage):
        [x] = inputs
        output_storage[0][0] = np.asarray(np.sin(2.0 * x), dtype=x.dtype)


class Doubled(SameType):
    """Has no gradient and a conversion that its author registered."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = 2.0 * inputs[0]

    def pullback(self, inputs, outputs, cotangents):
        return [2.0 * cotangents[0]]


@jax_funcify.register(Doubled)
def _(op, **kwargs):
    return lambda x: jnp.multiply(x, 2.0)


@program(X4, thread="pymc 7088")
def only_perform():
    x = pt.vector("x")
    return [x], BlackBox()(x * 2.0) + x.sum()


@program(X4, thread="pymc 4222", grad_wrt=("x",))
def with_a_pullback():
    x = pt.vector("x")
    return [x], BlackBoxWithGradient()(x) ** 2


@program(X4, thread="pymc 4222", grad_wrt=("x",))
def inside_a_loop():
    x = pt.vector("x")
    return [x], scan(
        lambda x_t, s: 0.5 * s + BlackBoxWithGradient()(pt.stack([x_t, s])),
        sequences=x,
        outputs_info=pt.zeros(()),
    )


@program(np.stack([X4, 2.0 * X4]), thread="pymc 7088", grad_wrt=("rows",))
def batched():
    x, rows = pt.vector("x"), pt.matrix("rows")
    return [rows], vectorize_graph(BlackBoxWithGradient()(x), {x: rows})


@program(X4, thread="pymc 7088")
def a_python_function():
    @wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
    def smooth(x):
        return np.convolve(x, np.ones(3) / 3.0, mode="same")

    x = pt.vector("x")
    return [x], smooth(x) * 2.0


@program(X4, thread="pytensor 537", grad_wrt=("x",), batch=("x",))
def with_a_registered_conversion():
    x = pt.vector("x")
    return [x], Doubled()(pt.exp(x))


@program(X4, X4 + 1.0, thread="pytensor 1174", grad_wrt=("x", "y"))
def graph_as_an_op():
    a, b = pt.vector("a"), pt.vector("b")
    op = OpFromGraph([a, b], [a * pt.exp(b), (a * b).sum()])
    x, y = pt.vector("x"), pt.vector("y")
    prod, total = op(x, y * 0.5)
    return [x, y], [prod + total, total]


@program(X4, thread="pytensor 723", grad_wrt=("x",))
def overridden_gradient():
    """A step function that lets the gradient through: jax.grad must obey."""
    a = pt.vector("a")
    op = OpFromGraph(
        [a], [pt.switch(a > 0, 1.0, 0.0)], pullback=lambda inputs, outputs, gs: [gs[0] * 3.0]
    )
    x = pt.vector("x")
    return [x], op(x**2 - 1.0) * x


@program(X4, thread="pytensor 723")
def overridden_gradient_taken_by_pytensor():
    a = pt.vector("a")
    op = OpFromGraph([a], [pt.round(a)], pullback=lambda inputs, outputs, gs: [gs[0]])
    x = pt.vector("x")
    return [x], pt.grad((op(x * 3.0) * x).sum(), x)


@program(X4, thread="pytensor 1375", grad_wrt=("x",))
def graph_as_an_op_with_shapes_inside():
    a = pt.vector("a")
    op = OpFromGraph(
        [a], [a.reshape((a.shape[0] // 2, 2)) @ pt.eye(2) + pt.arange(a.shape[0] // 2)[:, None]]
    )
    x = pt.vector("x")
    return [x], op(x)


@program(X4, thread="pytensor 1375", grad_wrt=("x",))
def graph_as_an_op_around_a_loop():
    a = pt.vector("a")
    op = OpFromGraph(
        [a], [scan(lambda e, s: pt.sin(s) + e, sequences=a, outputs_info=pt.zeros(()))]
    )
    x = pt.vector("x")
    return [x], scan(lambda e, x: op(x * e).sum(), sequences=x, non_sequences=x)
